"""`python -m tests.chaos`: run the campaign and print one table of counts and losses."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Sequence

from tests.chaos import authorization, disk, floods, kills, maintenance, malformed, poison
from tests.chaos.campaign import STORES, Scenario, Workshop
from tests.chaos.report import Outcome, exit_code, format_json, format_table

SCENARIOS: tuple[Scenario, ...] = (
    *kills.SCENARIOS,
    *maintenance.SCENARIOS,
    *disk.SCENARIOS,
    *floods.SCENARIOS,
    *malformed.SCENARIOS,
    *poison.SCENARIOS,
    *authorization.SCENARIOS,
)
GROUPS = tuple(dict.fromkeys(scenario.group for scenario in SCENARIOS))


def read_options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="make chaos OPTIONS=…",
        description="Attack real `pasto serve` processes on loopback and count losses. Exit code 1: a promise broke.",
    )
    parser.add_argument("--quick", action="store_true", help="few repetitions of each scenario")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"one group ({', '.join(GROUPS)}) or scenario")
    parser.add_argument("--store", choices=STORES, action="append", help="only on this store")
    parser.add_argument(
        "--no-latency", action="store_true", help="report latencies without judging them (busy machine)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of every random choice")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    options = parser.parse_args(words)
    unknown = [name for name in options.only or () if not select_scenarios([name])]
    if unknown:
        parser.error(f"--only needs a group or a part of a scenario's name, got {unknown[0]!r}. See --list.")
    return options


def select_scenarios(names: Sequence[str] | None) -> list[Scenario]:
    """Return the scenarios of the named groups, or whose names contain one of the names."""
    if not names:
        return list(SCENARIOS)
    return [one for one in SCENARIOS if any(name == one.group or name in one.name for name in names)]


def run_scenario(scenario: Scenario, store: str, workshop: Workshop) -> Outcome:
    """Run one scenario; a scenario that cannot continue counts as a broken promise and does not end the campaign."""
    outcome = Outcome(scenario.name, store)
    try:
        scenario.run(workshop, outcome, scenario.repetitions_for(workshop))
    except Exception as error:
        traceback.print_exc()
        outcome.broken.append(f"the scenario could not be finished: {type(error).__name__}: {error}")
    return outcome


def main(words: Sequence[str] | None = None) -> int:
    """Run what the options select; return the exit code."""
    options = read_options(words)
    planned = [
        (scenario, store)
        for scenario in select_scenarios(options.only)
        for store in scenario.stores
        if not options.store or store in options.store
    ]
    if options.list:
        for scenario in SCENARIOS:
            sys.stdout.write(f"{scenario.group:14} {scenario.name} ({', '.join(scenario.stores)})\n")
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends what the campaign started
    began = time.monotonic()
    outcomes: list[Outcome] = []
    with Workshop(seed=options.seed, is_quick=options.quick, judges_latency=not options.no_latency) as workshop:
        for place, (scenario, store) in enumerate(planned, 1):
            report_progress(f"[{place}/{len(planned)}] {scenario.name} ({store})", began)
            outcomes.append(run_scenario(scenario, store, workshop))
    seconds = time.monotonic() - began
    report_progress(f"{len(planned)} scenarios in {seconds:.0f} s", began)
    text = format_json(outcomes, seed=options.seed, seconds=seconds) if options.json else format_table(outcomes)
    sys.stdout.write(text + "\n")
    return exit_code(outcomes)


def report_progress(line: str, began: float) -> None:
    """Write a progress line."""
    sys.stderr.write(f"{time.monotonic() - began:5.0f} s  {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
