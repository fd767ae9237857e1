"""Kills and stops under load: of the service, of PostgreSQL, and of one of two nodes."""

from __future__ import annotations

from tests.chaos.campaign import POSTGRES, STORES, Scenario, Workshop
from tests.chaos.load import Ledger, Load, create_studies
from tests.chaos.report import Outcome
from tests.chaos.verification import verify_service

EVENTS_BETWEEN_KILLS = 800
STOP_LIMIT_SECONDS = 20.0
"""The default `shutdown_timeout` twice over: what systemd allows before it kills is 30 s."""


def kill_under_load(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Kill the service by SIGKILL while senders, a closer and assigners use it."""
    rng, ledger = workshop.random("kill"), Ledger()
    node = workshop.node(workshop.store(outcome.store)).start()
    create_studies(node)
    with Load([node], ledger, seed=workshop.seed) as load:
        for _ in workshop.turns(repetitions):
            load.wait_until_acknowledged(rng.randrange(EVENTS_BETWEEN_KILLS))
            node.kill()
            outcome.repetitions += 1
            node.start()
        load.wait_until_acknowledged(EVENTS_BETWEEN_KILLS)
    verify_service(outcome, node, ledger)
    node.close()


def stop_under_load(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Stop the service by SIGTERM under the same load: it must end by itself and lose nothing, including decisions."""
    rng, ledger = workshop.random("stop"), Ledger()
    node = workshop.node(workshop.store(outcome.store)).start()
    create_studies(node)
    with Load([node], ledger, seed=workshop.seed) as load:
        for _ in workshop.turns(repetitions):
            load.wait_until_acknowledged(rng.randrange(EVENTS_BETWEEN_KILLS))
            code, seconds = node.stop()
            outcome.require(code == 0, f"SIGTERM ended with code {code}")
            outcome.require(seconds < STOP_LIMIT_SECONDS, f"SIGTERM took {seconds:.0f} s")
            outcome.repetitions += 1
            node.start()
        load.wait_until_acknowledged(EVENTS_BETWEEN_KILLS)
    node.stop()
    verify_service(outcome, node.start(), ledger, lossless_decisions=True)
    node.close()


def crash_postgres(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Crash PostgreSQL under load: the service must recover by itself when the database does."""
    rng, ledger = workshop.random("postgres"), Ledger()
    node = workshop.node(workshop.store(outcome.store)).start()
    create_studies(node)
    with Load([node], ledger, seed=workshop.seed) as load:
        for _ in workshop.turns(repetitions):
            load.wait_until_acknowledged(rng.randrange(EVENTS_BETWEEN_KILLS))
            workshop.postgres.stop("immediate")
            workshop.postgres.start()
            outcome.repetitions += 1
            node.wait_for(node.is_ready, "the service was not ready again after PostgreSQL came back")
        load.wait_until_acknowledged(EVENTS_BETWEEN_KILLS)
    verify_service(outcome, node, ledger)
    node.close()


def kill_one_of_two_nodes(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Kill two nodes in turn; callers go to the other one."""
    rng, ledger = workshop.random("nodes"), Ledger()
    store = workshop.store(outcome.store)
    nodes = [workshop.node(store).start() for _ in range(2)]
    create_studies(nodes[0])
    for node in nodes:
        node.wait_for(node.is_ready, "the second node was not ready")
    with Load(nodes, ledger, seed=workshop.seed, closers=2) as load:
        for turn in workshop.turns(repetitions):
            load.wait_until_acknowledged(rng.randrange(EVENTS_BETWEEN_KILLS))
            nodes[turn % 2].kill()
            outcome.repetitions += 1
            load.wait_until_acknowledged(EVENTS_BETWEEN_KILLS // 4)
            nodes[turn % 2].start()
        load.wait_until_acknowledged(EVENTS_BETWEEN_KILLS)
    verify_service(outcome, nodes[1], ledger)
    for node in nodes:
        node.close()


SCENARIOS = (
    Scenario("kills", "kill -9 under load", kill_under_load, 50, 2, STORES),
    Scenario("kills", "SIGTERM under load", stop_under_load, 20, 1, STORES),
    Scenario("kills", "crash of PostgreSQL", crash_postgres, 15, 1, (POSTGRES,)),
    Scenario("kills", "kill of one of two nodes", kill_one_of_two_nodes, 24, 2, (POSTGRES,)),
)
