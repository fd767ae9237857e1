"""Store conformance: the same requirements for every kind of store."""

import hashlib
import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from pasto.errors import ConflictError, StoreError, StudyExistsError, UnsafeStoreError
from pasto.store import (
    CONFLICT_REASON,
    EXPOSURE,
    INSTALLATION,
    METRIC,
    NO_SLICE,
    AuditRow,
    CloseRow,
    EventRow,
    KeyRow,
    LayerSliceRow,
    OutboxRow,
    OutboxSize,
    PolicyRow,
    RejectedPositions,
    RejectionReason,
    Rejections,
    SenderCounts,
    Store,
    StudyRow,
)

Opened = Callable[[str], Store]


def exposure(identity: str, unit: str = "ann", version: int = 1, candidate: int = 0, excluded: int = 0) -> EventRow:
    return EventRow(identity, EXPOSURE, unit, version, "learner", candidate, excluded=excluded)


def metric(identity: str, unit: str = "ann", version: int | None = None, candidate: int | None = None) -> EventRow:
    arm = None if version is None else "learner"
    return EventRow(identity, METRIC, unit, version, arm, candidate, "watch", '{"seconds": 1.5}', 0, "s1", 7)


def policy(version: int, text: str = "{}", round: int = 1) -> PolicyRow:
    return PolicyRow(version, round, version, text, hashlib.sha256(text.encode()).hexdigest(), 0, 2.5)


def close(round: int, high_water: int = 0) -> CloseRow:
    return CloseRow(round, round, high_water, "[]", "abc", round + 1, 3.5)


def audit(action: str = "start") -> AuditRow:
    return AuditRow(2.0, "bob", action, "because", {"a": 1})


def query(store: Store, statement: str) -> list[tuple[Any, ...]]:
    with store.read_transaction() as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        cursor.close()
    return rows


def credited(store: Store) -> dict[str, Any]:
    return {row[0]: row[1:] for row in query(store, "SELECT id, version, arm, candidate FROM events")}


# Studies


def test_a_study_comes_back_as_it_was(store: Store, study: StudyRow) -> None:
    assert study.number > 0
    assert store.read_study("feed") == study
    assert store.read_study("other") is None
    assert store.read_audit_log(study.number) == [AuditRow(1.25, "ann", "create", "", {}, 1)]
    other = store.create_study(replace(study, name="a"), audit())
    assert other.number != study.number
    assert store.list_studies() == [other, study]
    assert store.read_generations() == {each.name: (each.number, each.generation) for each in (other, study)}


def test_two_studies_cannot_share_a_name(store: Store, study: StudyRow) -> None:
    with pytest.raises(StudyExistsError, match="'feed'"):
        store.create_study(replace(study, state="other"), audit())
    assert store.read_study("feed") == study
    assert len(store.read_audit_log(study.number)) == 1


def test_an_archived_study_gives_up_its_name_and_keeps_its_history(store: Store, study: StudyRow) -> None:
    assert store.update_study(study, replace(study, state="archived"), policy=policy(1), audit=[audit("archive")])
    new = store.create_study(replace(study, seed=8), audit("create"), rename_archived="feed@1")
    assert new.number != study.number
    assert store.read_study("feed") == new
    old = store.read_study("feed@1")
    assert old is not None
    assert (old.number, old.state, old.generation) == (study.number, "archived", study.generation + 2)
    assert [row.action for row in store.read_audit_log(old.number)] == ["create", "archive", "rename"]
    assert [row.action for row in store.read_audit_log(new.number)] == ["create"]
    assert store.list_policies(new.number) == []
    assert store.list_policies(old.number) == [policy(1)]
    with pytest.raises(StudyExistsError):
        store.create_study(replace(study, seed=9), audit(), rename_archived="feed@2")
    assert set(store.read_generations()) == {"feed", "feed@1"}


def test_a_deleted_draft_frees_its_name_but_not_its_number(store: Store, study: StudyRow) -> None:
    stale = replace(study, generation=study.generation + 1)
    assert not store.delete_draft(stale, "feed@1", audit("delete"))
    assert store.delete_draft(study, "feed@1", audit("delete"))
    assert store.read_study("feed") is None
    assert store.list_studies() == []
    assert store.read_generations() == {}
    gone = store.read_study("feed@1")
    assert gone is not None
    assert (gone.state, gone.study_file) == ("deleted", study.study_file)
    assert [row.action for row in store.read_audit_log(study.number)] == ["create", "delete"]
    again = store.create_study(replace(study, number=0), audit("create"))
    assert again.number != study.number
    assert list(store.check_integrity()) == []
    assert store.update_study(again, replace(again, state="learning", generation=2))
    now = store.read_study("feed")
    assert now is not None
    assert not store.delete_draft(now, "feed@2", audit("delete"))


def test_a_commit_writes_everything_at_once(store: Store, study: StudyRow) -> None:
    after = replace(study, generation=2, state="learning", round=1, version=1, opened_at=9.0, details='{"x": 1}')
    assert store.update_study(
        study, after, policy=policy(1), close=close(1), learner="{}", audit=[audit(), audit("more")]
    )
    assert store.read_study("feed") == after
    assert store.read_policy(study.number, 1) == policy(1)
    assert store.read_policy(study.number, 2) is None
    assert store.list_policies(study.number) == [policy(1)]
    assert store.list_closes(study.number) == [close(1)]
    assert store.read_learner_state(study.number) == "{}"
    rows = store.read_audit_log(study.number)
    assert [row.action for row in rows] == ["create", "start", "more"]
    assert [row.action for row in store.read_audit_log(study.number, after=rows[0].sequence, limit=1)] == ["start"]


def test_only_the_generation_it_was_made_from_is_changed(store: Store, study: StudyRow) -> None:
    assert store.update_study(study, replace(study, state="learning"), learner="first")
    late = replace(study, state="archived")
    assert not store.update_study(study, late, policy=policy(1), close=close(1), learner="second", audit=[audit()])
    now = store.read_study("feed")
    assert now is not None
    assert (now.state, now.generation) == ("learning", study.generation + 1)
    assert store.read_learner_state(study.number) == "first"
    assert store.list_policies(study.number) == []
    assert store.list_closes(study.number) == []
    assert len(store.read_audit_log(study.number)) == 1


@pytest.mark.parametrize("again", ["policy", "close"])
def test_what_was_published_or_closed_is_not_written_twice(store: Store, study: StudyRow, again: str) -> None:
    assert store.update_study(study, study, policy=policy(1), close=close(1))
    now = store.read_study("feed")
    assert now is not None
    twice: dict[str, Any] = {again: policy(1, '{"other": 1}') if again == "policy" else close(1, 99)}
    assert not store.update_study(now, replace(now, state="learning"), audit=[audit()], **twice)
    assert store.read_study("feed") == now
    assert store.list_policies(study.number) == [policy(1)]
    assert store.list_closes(study.number) == [close(1)]
    assert len(store.read_audit_log(study.number)) == 1


def test_policies_and_closes_are_read_in_pages(store: Store, study: StudyRow) -> None:
    now = study
    for number in range(1, 12):
        assert store.update_study(now, now, policy=policy(number), close=close(number))
        now = replace(now, generation=now.generation + 1)
    assert [row.version for row in store.list_policies(study.number, after=3, limit=4)] == [4, 5, 6, 7]
    assert [row.round for row in store.list_closes(study.number, after=9)] == [10, 11]


def test_of_racing_writers_exactly_one_wins_each_time(store: Store, study: StudyRow) -> None:
    wins = []

    def race(who: int) -> None:
        for number in range(1, 21):
            while True:
                now = store.read_study("feed")
                assert now is not None
                if now.round >= number:
                    break
                if store.update_study(
                    now, replace(now, round=number), policy=policy(number), close=close(number), audit=[audit(str(who))]
                ):
                    wins.append(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(race, range(4)))
    assert sorted(wins) == list(range(1, 21))
    assert [row.round for row in store.list_closes(study.number)] == list(range(1, 21))
    assert len(store.read_audit_log(study.number)) == 21


# Layers and settings


def home(start: int, until: int, study: str = "", state: str = "") -> LayerSliceRow:
    return LayerSliceRow("home", "user", start, until, study, state)


def test_slices_of_one_layer_never_overlap(store: Store, study: StudyRow) -> None:
    assert store.list_layer_slices() == []
    search = store.create_study(replace(study, name="search"), audit(), layer_slice=home(0, 400_000))
    for taken in (home(399_999, 500_000), home(0, 1), home(100, 200), home(0, 1_000_000)):
        with pytest.raises(ConflictError, match="just taken"):
            store.create_study(replace(study, name="other"), audit(), layer_slice=taken)
        assert store.read_study("other") is None
        assert not store.update_study(study, replace(study, state="learning"), layer_slice=taken)
        assert store.read_study("feed") == study
    elsewhere = replace(home(0, 400_000), layer="away")
    other = store.create_study(replace(study, name="other"), audit(), layer_slice=elsewhere)
    assert store.update_study(study, replace(study, state="learning"), layer_slice=home(400_000, 700_000))
    assert store.list_layer_slices() == [
        replace(elsewhere, study="other", state="draft"),
        home(0, 400_000, "search", "draft"),
        home(400_000, 700_000, "feed", "learning"),
    ]
    # A study may move within its own slice, or give it up; an archived study and a deleted draft leave theirs.
    assert store.update_study(search, search, layer_slice=home(100_000, 400_000))
    assert store.update_study(other, other, layer_slice=NO_SLICE)
    feed = store.read_study("feed")
    assert feed is not None
    assert store.update_study(feed, replace(feed, state="archived"))
    assert store.list_layer_slices() == [home(100_000, 400_000, "search", "draft")]
    draft = store.read_study("search")
    assert draft is not None
    assert store.delete_draft(draft, "search@1", audit("delete"))
    assert store.list_layer_slices() == []
    store.create_study(replace(study, name="all"), audit(), layer_slice=home(0, 1_000_000))
    assert list(store.check_integrity()) == []
    store._write(lambda connection: connection.execute("UPDATE layer_slices SET start = 0, until = 9"))  # type: ignore[attr-defined]
    assert list(store.check_integrity()) == []
    store._write(lambda connection: connection.execute("UPDATE studies SET state = 'draft' WHERE state = 'archived'"))  # type: ignore[attr-defined]
    assert list(store.check_integrity()) == ["the slices of studies 'feed' and 'all' in layer 'home' overlap"]


def test_of_nodes_that_ask_for_the_same_slice_exactly_one_gets_it(address: str, opened: Opened) -> None:
    """On PostgreSQL two nodes race, elsewhere the threads of one."""
    nodes = [opened(address)]
    if address.startswith("postgres"):
        nodes.append(opened(address))
    row = StudyRow("feed", 0, 1, "draft", "{}", 7, 0, 0, 0.5, 1.25)
    for turn in range(8):
        start = threading.Barrier(4)

        def create(place: int, turn: int = turn, start: threading.Barrier = start) -> bool:
            start.wait()
            try:
                nodes[place % len(nodes)].create_study(
                    replace(row, name=f"s{turn}-{place}"), audit(), layer_slice=home(turn * 10 + place, turn * 10 + 9)
                )
            except ConflictError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(create, range(4))) == 1
    slices = nodes[0].list_layer_slices()
    assert len(slices) == len(nodes[0].list_studies()) == 8
    assert all(first.until <= second.start for first, second in pairwise(slices))


def test_a_setting_is_audited_with_its_change(store: Store, study: StudyRow) -> None:
    assert store.read_setting("holdout") is None
    store.write_setting("holdout", '{"share": 1}', audit("holdout"))
    store.write_setting("holdout", '{"share": 2}', audit("holdout"))
    assert store.read_setting("holdout") == '{"share": 2}'
    assert [row.action for row in store.read_audit_log(INSTALLATION)] == ["holdout", "holdout"]
    assert store.read_audit_log(study.number)[-1].action == "create"


# Events


def test_events_are_stored_as_received(store: Store, study: StudyRow) -> None:
    unit = "ünit \U0001f600"
    batch = [exposure("e1", unit), metric("m1", unit, 1, 0), metric("m2", "nobody")]
    answer = store.append_events(study.number, batch).result()
    assert answer.new == (True, True, True)
    assert answer.last == store.read_high_water(study.number)
    rows = query(
        store,
        "SELECT study, id, kind, unit, version, arm, candidate, name, fields, excluded, source, position "
        "FROM events ORDER BY sequence",
    )
    columns_of_rows = [
        (*row[:8], row[8] if row[8] is None or isinstance(row[8], dict) else json.loads(row[8]), *row[9:])
        for row in rows
    ]
    n = study.number
    assert columns_of_rows == [
        (n, "e1", EXPOSURE, unit, 1, "learner", 0, None, None, 0, None, None),
        (n, "m1", METRIC, unit, 1, "learner", 0, "watch", {"seconds": 1.5}, 0, "s1", 7),
        (n, "m2", METRIC, "nobody", None, None, None, "watch", {"seconds": 1.5}, 0, "s1", 7),
    ]


def test_an_empty_batch_and_one_of_tallies_only_are_fine(store: Store, study: StudyRow) -> None:
    assert store.append_events(study.number, []).result().new == ()
    tally = SenderCounts("s1", 1, 5, '{"a": 2}', "{}")
    assert store.append_events(study.number, [], [tally]).result().new == ()
    assert store.list_sender_counts(study.number, 1) == [tally]
    assert store.read_high_water(study.number) == 0


def test_rejections_add_up_by_reason_and_by_sender(store: Store, study: StudyRow) -> None:
    first = Rejections(
        (RejectionReason("r", "first", 2), RejectionReason("q", "q", 1)), (RejectedPositions("s1", 3, 5, 9),)
    )
    again = Rejections(
        (RejectionReason("r", "second", 4),), (RejectedPositions("s1", 4, 1, 12), RejectedPositions("s2", 1, 0, 0))
    )
    pending = [
        store.append_events(study.number, [exposure("1")], (), first),
        store.append_events(study.number, (), (), again),
    ]
    assert [one.result().new for one in pending] == [(True,), ()]
    reasons = store.list_rejections_by_reason(study.number)
    assert [row[:3] for row in reasons] == [("q", "q", 1), ("r", "first", 6)]
    assert all(row.first_at > 0 for row in reasons)
    assert store.list_rejections_by_source(study.number) == [("s1", 7, 1, 12), ("s2", 1, 0, 0)]
    other = store.create_study(replace(study, name="other"), audit())
    assert store.list_rejections_by_reason(other.number) == []


def test_events_and_rejections_have_the_key_that_sent_them(store: Store, study: StudyRow) -> None:
    rejections = Rejections((RejectionReason("r", "r", 2), RejectionReason("q", "q", 1)))
    liked = EventRow("m", METRIC, "ann", None, None, None, "like")
    store.append_events(study.number, [exposure("1"), liked], (), rejections, "ab12").result()
    store.append_events(study.number, [exposure("2")], (), Rejections((RejectionReason("r", "r", 4),)), "ab12").result()
    store.append_events(study.number, [exposure("3"), exposure("1")], (), rejections).result()
    assert query(store, "SELECT id, key_prefix FROM events ORDER BY sequence") == [
        ("1", "ab12"),
        ("m", "ab12"),
        ("2", "ab12"),
        ("3", None),
    ]
    assert store.count_rejections_by_key(study.number) == {"ab12": 7}
    assert store.count_rejections_by_key(study.number + 1) == {}


def test_an_id_counts_once_while_the_study_exists(store: Store, study: StudyRow) -> None:
    other = store.create_study(replace(study, name="other"), audit())
    assert store.append_events(study.number, [exposure("1"), exposure("2"), exposure("1")]).result().new == (
        True,
        True,
        False,
    )
    assert store.append_events(study.number, [exposure("2"), exposure("3")]).result().new == (False, True)
    assert store.append_events(study.number, [exposure("2"), exposure("3")]).result().new == (False, False)
    assert store.append_events(other.number, [exposure("1")]).result().new == (True,)
    assert query(store, "SELECT count(*) FROM events") == [(4,)]


def test_an_id_belongs_to_its_source(store: Store, study: StudyRow) -> None:
    mine, theirs, none = (exposure("1")._replace(source=source, unit=f"of {source}") for source in ("a", "b", None))
    assert store.append_events(study.number, [mine]).result().new == (True,)
    answers = [
        store.append_events(study.number, batch).result() for batch in ([theirs, none, mine], [none, theirs, mine])
    ]
    assert [answer.new for answer in answers] == [(True, True, False), (False, False, False)]
    assert [answer.conflicts for answer in answers] == [(), ()]


CHANGES: list[dict[str, Any]] = [
    {"unit": "bob"},
    {"kind": EXPOSURE},
    {"version": 2},
    {"candidate": 1},
    {"name": "watch"},
    {"fields": '{"value":2}'},
    {"excluded": 1},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_other_content_under_an_id_is_a_conflict(store: Store, study: StudyRow, change: dict[str, Any]) -> None:
    first = EventRow("1", METRIC, "ann", 1, "learner", 0, "like", '{"value":1}', 0, "s", 7)
    other = first._replace(**change)
    answer = store.append_events(study.number, [first, other, first]).result()
    assert (answer.new, answer.conflicts) == ((True, False, False), (1,))
    assert store.append_events(study.number, [other, first]).result().conflicts == (0,)
    assert store.append_events(study.number, [first._replace(position=8)]).result().conflicts == (), (
        "a sender counts again"
    )
    assert query(store, "SELECT unit, name FROM events") == [("ann", "like")]
    ((kind, reason, events, _),) = store.list_rejections_by_reason(study.number)
    assert (kind, reason, events) == ("conflict", CONFLICT_REASON, 2)
    assert store.list_rejections_by_source(study.number) == []


def test_conflicts_of_batches_written_together_are_found(store: Store, study: StudyRow) -> None:
    batches = [[exposure("1", "ann"), exposure(f"own {k}")] for k in range(20)]
    batches += [[exposure(f"other {k}"), exposure("1", "bob")] for k in range(20)]
    answers = [future.result() for future in [store.append_events(study.number, batch) for batch in batches]]
    assert [answer.conflicts for answer in answers] == [()] * 20 + [(1,)] * 20
    assert [answer.new for answer in answers[20:]] == [(True, False)] * 20


def test_sequences_rise(store: Store, study: StudyRow) -> None:
    assert store.read_high_water(study.number) == 0
    first = store.append_events(study.number, [exposure("1"), exposure("2")]).result().last
    second = store.append_events(study.number, [exposure("3")]).result().last
    assert 0 < first < second == store.read_high_water(study.number)
    rows = [row[0] for row in query(store, "SELECT id FROM events ORDER BY sequence")]
    assert rows == ["1", "2", "3"]


def test_metrics_are_credited_to_their_units_latest_exposure(store: Store, study: StudyRow) -> None:
    batch = [
        metric("early"),
        exposure("e1", version=1, candidate=3),
        metric("one"),
        exposure("e2", version=2, candidate=5),
        metric("two"),
        metric("own", version=1, candidate=3),
        metric("stranger", unit="bob"),
    ]
    store.append_events(study.number, batch).result()
    store.append_events(study.number, [metric("later")]).result()
    credits = credited(store)
    assert credits["early"] == credits["stranger"] == (None, None, None)
    assert credits["one"] == credits["own"] == (1, "learner", 3)
    assert credits["two"] == credits["later"] == (2, "learner", 5)


def test_neither_duplicates_nor_excluded_exposures_move_the_latest(store: Store, study: StudyRow) -> None:
    store.append_events(study.number, [exposure("e1", candidate=1), exposure("e2", version=2, candidate=2)]).result()
    again = [exposure("e1", candidate=1), exposure("e3", version=3, candidate=3, excluded=1), metric("m1")]
    assert store.append_events(study.number, again).result().new == (False, True, True)
    assert credited(store)["m1"] == (2, "learner", 2)
    store.append_events(study.number, [metric("m1"), metric("m2")]).result()
    assert credited(store)["m2"] == (2, "learner", 2)


def test_a_unit_belongs_to_its_study(store: Store, study: StudyRow) -> None:
    other = store.create_study(replace(study, name="other"), audit())
    store.append_events(study.number, [exposure("e1")]).result()
    store.append_events(other.number, [metric("m1")]).result()
    assert credited(store)["m1"] == (None, None, None)


def test_a_later_tally_replaces_an_earlier_one(store: Store, study: StudyRow) -> None:
    def tally(position: int, version: int = 1, source: str = "s1") -> SenderCounts:
        return SenderCounts(source, version, position, f'{{"a": {position}}}', "{}")

    store.append_events(study.number, [], [tally(3), tally(1, source="s0"), tally(9, version=2)]).result()
    store.append_events(study.number, [], [tally(5), tally(4)]).result()
    store.append_events(study.number, [], [tally(2)]).result()
    assert store.list_sender_counts(study.number, 1) == [tally(1, source="s0"), tally(5)]
    assert store.list_sender_counts(study.number, 2) == [tally(9, version=2)]


def test_every_event_counts_once_however_often_it_is_sent(store: Store, study: StudyRow) -> None:
    chance = random.Random(1)
    events = [exposure(f"s{index % 7}-{index}", unit=f"u{index % 50}") for index in range(5_000)]
    sent = [event for event in events for _ in range(chance.randint(1, 5))]
    chance.shuffle(sent)
    futures = [store.append_events(study.number, sent[start : start + 100]) for start in range(0, len(sent), 100)]
    assert sum(sum(future.result().new) for future in futures) == 5_000
    assert sorted(query(store, "SELECT id FROM events")) == sorted((event.id,) for event in events)
    assert list(store.check_integrity()) == []


def test_many_writers_at_once_keep_everything_once(store: Store, study: StudyRow) -> None:
    def send(who: int) -> int:
        new = 0
        for number in range(20):
            # Half of every batch is its own, and half is sent by all.
            batch = [
                exposure(f"{who}/{number}", unit=f"u{who}"),
                exposure(f"all/{number}"),
                metric(f"{who}/{number}/m"),
            ]
            new += sum(store.append_events(study.number, batch).result().new)
        return new

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(send, range(4))) == 4 * 20 * 2 + 20
    assert query(store, "SELECT count(*) FROM events") == [(180,)]
    assert list(store.check_integrity()) == []


@pytest.mark.parametrize("wrong", [{"version": 2**80}, {"unit": "\ud800"}, {"unit": None}, {"source": object()}])
def test_one_bad_batch_does_not_affect_others(store: Store, study: StudyRow, wrong: dict[str, Any]) -> None:
    started, go_on = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        started.set()
        go_on.wait()

    # While the writer is held all three wait, and then they are written together.
    holder = threading.Thread(target=store._writer.perform, args=(hold,))  # type: ignore[attr-defined]
    holder.start()
    started.wait()
    bad = exposure("bad")._replace(**wrong)
    futures = [
        store.append_events(study.number, batch) for batch in ([exposure("1")], [exposure("2"), bad], [exposure("3")])
    ]
    go_on.set()
    holder.join()
    assert futures[0].result().new == (True,)
    with pytest.raises(StoreError):
        futures[1].result()
    assert futures[2].result().new == (True,)
    assert {row[0] for row in query(store, "SELECT id FROM events")} == {"1", "3"}


def test_a_batch_given_up_in_time_is_not_written(store: Store, study: StudyRow) -> None:
    started, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        go_on.wait()

    holder = threading.Thread(target=store._writer.perform, args=(hold,))  # type: ignore[attr-defined]
    holder.start()
    started.wait()
    given_up = store.append_events(study.number, [exposure("1")])
    assert given_up.cancel()
    future = store.append_events(study.number, [exposure("2")])
    go_on.set()
    holder.join()
    assert future.result().new == (True,)
    assert not future.cancel()
    assert query(store, "SELECT id FROM events") == [("2",)]


def test_readers_cannot_write(store: Store, study: StudyRow) -> None:
    with pytest.raises(StoreError, match="read"), store.read_transaction() as connection:
        connection.cursor().execute("DELETE FROM studies")
    assert store.read_study("feed") == study
    store.append_events(study.number, [exposure("1")]).result()


# Keys


def test_keys_are_stored_and_revoked(store: Store) -> None:
    key = KeyRow("ab12", "d" * 64, "mobile", ("ingest", "read"), 1.0, 99.5)
    store.add_key(key)
    other = KeyRow("aa00", "e" * 64, "admin", ("admin",), 2.0)
    store.add_key(other)
    assert store.list_keys() == [key, other]
    with pytest.raises(StoreError, match="'ab12'"):
        store.add_key(replace(key, name="thief"))
    assert store.revoke_key("ab12", 5.0)
    assert not store.revoke_key("ab12", 6.0)
    assert not store.revoke_key("none", 6.0)
    assert store.list_keys() == [replace(key, revoked_at=5.0), other]


def test_changes_of_keys_are_audited_with_them(store: Store, study: StudyRow) -> None:
    key = KeyRow("ab12", "d" * 64, "mobile", ("ingest",), 1.0)
    successor = replace(key, prefix="cd34", created_at=2.0)
    store.add_key(key, audit=[audit("key created")])
    store.rotate_key("ab12", 9.0, successor, audit=[audit("key rotated")])
    assert store.list_keys() == [replace(key, revoked_at=9.0), successor]
    assert store.revoke_key("cd34", 5.0, audit=[audit("key revoked")])
    lines = store.read_audit_log(INSTALLATION)
    assert [line.action for line in lines] == ["key created", "key rotated", "key revoked"]
    assert store.read_audit_log(INSTALLATION, after=lines[1].sequence) == lines[2:]
    assert [line.action for line in store.read_audit_log(study.number)] == ["create"]
    assert list(store.check_integrity()) == []


def test_a_key_that_is_not_changed_leaves_no_audit_line(store: Store) -> None:
    key = KeyRow("ab12", "d" * 64, "mobile", ("ingest",), 1.0)
    store.add_key(key)
    with pytest.raises(StoreError, match="ab12"):
        store.add_key(key, audit=[audit("key created")])
    with pytest.raises(StoreError, match="ab12"):
        store.rotate_key("ab12", 5.0, key, audit=[audit("key rotated")])
    assert not store.revoke_key("none", 5.0, audit=[audit("key revoked")])
    assert (store.list_keys(), store.read_audit_log(INSTALLATION)) == ([key], [])


# Maintenance


def fill(store: Store, study: StudyRow) -> StudyRow:
    store.append_events(
        study.number, [exposure("e1"), metric("m1"), metric("m2", "bob"), exposure("e2", "bob", 2, 4)]
    ).result()
    rejections = Rejections((RejectionReason("r", "r", 2),), (RejectedPositions("s", 2, 6, 7),))
    tallies = [SenderCounts("s", 1, 1, "{}", "{}")]
    store.append_events(study.number, [exposure("e1"), exposure("e3")], tallies, rejections).result()
    started = replace(study, generation=study.generation + 1, version=1, round=1)
    assert store.update_study(
        study, started, policy=policy(1), learner="{}", audit=[audit()], layer_slice=home(0, 400_000)
    )
    store.write_setting("holdout", '{"share": 1}', audit("holdout"))
    after = replace(started, generation=started.generation + 1, version=2, round=2)
    ended = replace(close(1, store.read_high_water(study.number)), learner_checksum=hashlib.sha256(b"{}").hexdigest())
    assert store.update_study(started, after, policy=policy(2, round=2), close=ended, audit=[audit("close")])
    store.add_key(KeyRow("ab12", "d" * 64, "mobile", ("ingest",), 1.0), audit=[audit("key created")])
    return after


def everything(store: Store) -> list[Any]:
    (study,) = store.list_studies()
    number = study.number
    found: list[Any] = [
        study,
        store.list_policies(number),
        store.list_closes(number),
        store.read_learner_state(number),
        store.read_audit_log(number),
    ]
    found += [store.list_layer_slices(), store.read_setting("holdout")]
    found += [store.list_keys(), store.list_sender_counts(number, 1), store.read_high_water(number)]
    found.append(
        query(
            store,
            "SELECT sequence, id, unit, version, arm, candidate, name, received_at, key_prefix FROM events ORDER BY 1",
        )
    )
    found.append(
        query(store, "SELECT study, unit, version, arm, candidate, sequence FROM latest_exposures ORDER BY unit")
    )
    found += [store.list_rejections_by_reason(1), store.list_rejections_by_source(1), store.count_rejections_by_key(1)]
    found.append(store.read_audit_log(INSTALLATION))
    return found


@pytest.mark.parametrize("into", ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def test_a_backup_fills_a_store_of_any_kind(
    store: Store, study: StudyRow, tmp_path: Path, opened: Opened, into: str, request: pytest.FixtureRequest
) -> None:
    after = fill(store, study)
    store.write_backup(tmp_path / "backup.db")
    assert (tmp_path / "backup.db").stat().st_mode & 0o777 == 0o600
    before = everything(store)
    store.append_events(study.number, [exposure("e9")]).result()
    if into == "postgres":
        where = request.getfixturevalue("postgres_server").fresh()
    else:
        where = {"memory": "memory:", "sqlite": str(tmp_path / "second")}[into]
    second = opened(where)
    second.restore_backup(tmp_path / "backup.db")
    assert everything(second) == before
    assert list(second.check_integrity()) == []
    # Work continues from the last event.
    answer = second.append_events(study.number, [exposure("e1"), exposure("e4"), metric("m9", "bob")]).result()
    assert answer.new == (False, True, True)
    assert answer.last > before[9]
    assert second.update_study(after, replace(after, state="learning"), audit=[audit("again")])
    assert second.create_study(replace(study, name="other"), audit()).number != study.number
    assert list(second.check_integrity()) == []


def test_a_backup_holds_all_that_was_acknowledged_before_it(
    store: Store, study: StudyRow, tmp_path: Path, opened: Opened
) -> None:
    acknowledged: list[str] = []
    stop = threading.Event()

    def write() -> None:
        for number in count():
            if stop.is_set():
                return
            batch = [exposure(f"{number}/{place}", unit=f"u{place}") for place in range(20)]
            if all(store.append_events(study.number, batch).result().new):
                acknowledged.extend(event.id for event in batch)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for turn in range(4):
            while len(acknowledged) < 200 * turn:
                assert writer.is_alive()
                time.sleep(0.001)
            before = set(acknowledged)
            store.write_backup(tmp_path / f"{turn}.db")
            copy = opened("memory:")
            copy.restore_backup(tmp_path / f"{turn}.db")
            held = [row[0] for row in query(copy, "SELECT id FROM events")]
            assert before <= set(held)
            assert len(held) % 20 == 0
            assert list(copy.check_integrity()) == []
    finally:
        stop.set()
        writer.join()


def test_a_backup_overwrites_nothing_and_fills_only_what_is_empty(
    store: Store, study: StudyRow, tmp_path: Path
) -> None:
    fill(store, study)
    target = tmp_path / "backup.db"
    store.write_backup(target)
    content = target.read_bytes()
    with pytest.raises(StoreError, match="never overwrites"):
        store.write_backup(target)
    assert target.read_bytes() == content
    before = everything(store)
    with pytest.raises(StoreError, match="not empty"):
        store.restore_backup(target)
    assert everything(store) == before
    with pytest.raises(StoreError, match="backup"):
        store.restore_backup(tmp_path / "nowhere.db")
    (tmp_path / "text").write_text("not a database, but long enough to look like one" * 100)
    with pytest.raises(UnsafeStoreError, match="not a backup"):
        store.restore_backup(tmp_path / "text")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["backup.db", "text"]


def test_notes_are_stored_by_name(store: Store, study: StudyRow) -> None:
    assert store.read_cache("books/1") is None
    assert store.read_cache("schema") is None
    store.write_cache("books/1", "seven")
    store.write_cache("books/2", "eight")
    store.write_cache("books/1", "nine ?%s'")
    assert (store.read_cache("books/1"), store.read_cache("books/2")) == ("nine ?%s'", "eight")
    assert list(store.check_integrity()) == []


def test_a_session_is_ended_for_every_node_until_it_expires(store: Store, study: StudyRow) -> None:
    key, other = "0" * 12, "0" * 11 + "1"
    store.end_session(key, 1000, "first", 10.0)
    store.end_session(key, 1000, "first", 11.0)
    assert store.is_session_ended(key, 1000, "first")
    assert not store.is_session_ended(key, 1000, "second")
    assert not store.is_session_ended(key, 1001, "first")
    assert not store.is_session_ended(other, 1000, "first")
    store.end_session(other, 2000, "second", 1000.0)
    assert not store.is_session_ended(key, 1000, "first")  # it has expired, and leaves no record
    assert store.is_session_ended(other, 2000, "second")
    assert list(store.check_integrity()) == []


def test_ended_sessions_are_bounded(store: Store, study: StudyRow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pasto.store.dashboard_sessions.MAX_ENDED_SESSIONS", 3)
    key, other = "a" * 12, "b" * 12
    for number in range(20):
        store.end_session(key, 1000 + number, f"session {number}", 10.0)
        assert all(store.is_session_ended(key, 1000 + past, f"session {past}") for past in range(number + 1))
        assert not store.is_session_ended(key, 1001 + number, "later")
        assert not store.is_session_ended(other, 1000 + number, "other")
        assert len(query(store, "SELECT name FROM meta WHERE name LIKE 'ended_session/%'")) <= 3


def test_the_secret_of_sessions_is_in_no_backup(
    store: Store, study: StudyRow, address: str, tmp_path: Path, opened: Opened
) -> None:
    secret = store.read_session_secret()
    assert len(secret) == 64
    assert store.read_session_secret() == secret
    for number in range(100):
        store.write_cache(f"books/{number}", "x" * 500)
    store.write_backup(tmp_path / "backup.db")
    assert secret.encode() not in (tmp_path / "backup.db").read_bytes()
    if address != "memory:":
        store.close()
        assert opened(address).read_session_secret() == secret
    restored = opened(str(tmp_path / "restored"))
    before = restored.read_session_secret()
    restored.restore_backup(tmp_path / "backup.db")
    assert len({secret, before, restored.read_session_secret()}) == 3


def test_a_sound_store_has_no_findings(store: Store, study: StudyRow) -> None:
    assert list(store.check_integrity()) == []
    fill(store, study)
    assert list(store.check_integrity()) == []


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        ("UPDATE policies SET document = '{\"forged\": 1}'", "checksum"),
        ("DELETE FROM policies", "serves policy 2"),
        ("DELETE FROM policies WHERE version = 1", "round 1 of study 'feed' refers to policy 1, which is missing"),
        ("DELETE FROM policies WHERE version = 1", "study 'feed' has 1 policies, and the last one is number 2"),
        ("UPDATE policies SET after_sequence = 99999", "read events up to 5, and its policy begins after 99999"),
        ("UPDATE policies SET published_at = 2.75", "the row of policies with study 1, version 1"),
        ("UPDATE round_closes SET round = 2", "closed round 2 after round 0"),
        ("UPDATE round_closes SET high_water = 99999", "the last stored one"),
        ("UPDATE round_closes SET record = '[1]'", "the row of round_closes with study 1, round 1"),
        ("UPDATE round_closes SET next_version = 7", "refers to policy 7, which is missing"),
        ("DELETE FROM round_closes", "has round 2 open, and the last one closed is 0"),
        ("UPDATE learner_states SET state = '{ }'", "the learner's state of study 'feed' does not match"),
        ("UPDATE audit_log SET reason = 'becauze'", "the row of audit_log with sequence 2"),
        (
            "UPDATE api_keys SET scopes = '[\"ingest'",
            "the row of api_keys with prefix 'ab12' holds JSON that cannot be read",
        ),
        ("UPDATE events SET version = 9 WHERE version = 2", "1 events of study 'feed' name policy 9, which is missing"),
        ("UPDATE latest_exposures SET sequence = 1, version = 1 WHERE unit = 'bob'", "not its latest"),
        ("DELETE FROM latest_exposures WHERE unit = 'bob'", "'bob' of study 'feed' is not stored"),
        ("DELETE FROM studies", "missing"),
        ("UPDATE layer_slices SET study = 99", "1 rows in layer_slices belong to study number 99"),
        ("UPDATE settings SET value = '{'", "the row of settings with name 'holdout' holds JSON"),
        ("DELETE FROM event_ids", "the ids of 0 events are stored"),
    ],
)
def test_damage_is_found(store: Store, study: StudyRow, damage: str, finding: str) -> None:
    fill(store, study)
    store._write(lambda connection: connection.execute(damage))  # type: ignore[attr-defined]
    assert any(finding in found for found in store.check_integrity())


def test_a_closed_store_raises_an_error(store: Store, study: StudyRow) -> None:
    late = store.append_events(study.number, [exposure("1")])
    store.close()
    assert late.result().new == (True,)
    store.close()
    for call in (
        store.list_studies,
        lambda: store.append_events(1, []),
        lambda: store.read_high_water(1),
        lambda: store.revoke_key("a", 1),
    ):
        with pytest.raises(StoreError, match="closed"):
            call()


# Messages to webhooks, and claims


def message(identity: str, study: int, webhook: str = "chat", at: float = 10.0) -> OutboxRow:
    return OutboxRow(identity, study, webhook, "round_closed", '{"é": 1}', at, at)


def test_a_message_is_written_with_its_fact_or_not_at_all(store: Store, study: StudyRow) -> None:
    after = replace(study, state="learning")
    assert store.update_study(study, after, messages=[message("m1", study.number), message("m2", study.number, "ops")])
    assert not store.update_study(study, after, messages=[message("m3", study.number)])
    store.write_cache("source/1", "failing", [message("m4", study.number, "ops", 12.0)])
    assert store.measure_outbox() == [OutboxSize("chat", 1, 10.0), OutboxSize("ops", 2, 10.0)]


def test_a_claimed_message_comes_back_after_its_time(store: Store, study: StudyRow) -> None:
    sent = message("m1", study.number)
    assert store.update_study(study, study, messages=[sent])
    assert store.claim_message("other", 50.0, 99.0) is None
    assert store.claim_message("chat", 9.5, 99.0) is None
    assert store.read_next_due("chat") == 10.0
    assert store.claim_message("chat", 10.0, 70.0) == replace(sent, due_at=70.0, attempts=1)
    assert store.claim_message("chat", 69.0, 129.0) is None
    again = store.claim_message("chat", 70.0, 130.0)
    assert again == replace(sent, due_at=130.0, attempts=2)
    store.postpone_message(replace(sent, attempts=1), 71.0)  # its claim has passed to another node
    assert store.read_next_due("chat") == 130.0
    assert again is not None
    store.postpone_message(again, 80.0)
    assert store.read_next_due("chat") == 80.0
    store.delete_message(again)
    assert store.read_next_due("chat") is None
    assert store.measure_outbox() == []


def test_messages_are_claimed_in_the_order_in_which_they_are_due(store: Store, study: StudyRow) -> None:
    times = {"c": 3.0, "a": 1.0, "b": 2.0}
    assert store.update_study(study, study, messages=[message(name, study.number, at=at) for name, at in times.items()])
    claimed = [store.claim_message("chat", 5.0, 60.0) for _ in range(4)]
    assert [None if one is None else one.id for one in claimed] == ["a", "b", "c", None]


def test_old_messages_are_deleted_with_an_audit_line(store: Store, study: StudyRow) -> None:
    messages = [message("old", study.number, at=1.0), message("new", study.number, at=2.0)]
    assert store.update_study(study, study, messages=messages)

    def describe(row: OutboxRow) -> AuditRow:
        return AuditRow(9.0, "webhooks", "give up", row.id)

    assert store.delete_old_messages(1.0, describe) == []
    assert store.delete_old_messages(2.0, describe) == [messages[0]]
    assert [line.reason for line in store.read_audit_log(study.number) if line.action == "give up"] == ["old"]
    assert store.measure_outbox() == [OutboxSize("chat", 1, 2.0)]


def test_a_claim_has_one_holder_until_it_ends(store: Store) -> None:
    assert store.claim("close/1", "node a", 0.0, 60.0)
    assert not store.claim("close/1", "node b", 59.0, 119.0)
    assert store.claim("close/2", "node b", 59.0, 119.0)
    assert store.claim("close/1", "node a", 30.0, 90.0)  # extended
    assert not store.claim("close/1", "node b", 60.0, 120.0)
    assert store.claim("close/1", "node b", 90.0, 150.0)  # node a died
    store.release_claim("close/1", "node a")
    assert not store.claim("close/1", "node a", 91.0, 151.0)
    store.release_claim("close/1", "node b")
    assert store.claim("close/1", "node a", 91.0, 151.0)


def test_messages_and_claims_are_taken_once(address: str, opened: Opened) -> None:
    """Many threads, on PostgreSQL of two nodes, take each message and each claim once."""
    nodes = [opened(address)]
    if address.startswith("postgres"):
        nodes.append(opened(address))
    row = nodes[0].create_study(StudyRow("feed", 0, 1, "draft", "{}", 7, 0, 0, 0.5, 1.25), audit())
    assert nodes[0].update_study(row, row, messages=[message(f"m{place}", row.number) for place in range(20)])
    start = threading.Barrier(4)

    def take(place: int) -> list[str]:
        node = nodes[place % len(nodes)]
        start.wait()
        taken = ["claim"] if node.claim("close/1", f"thread {place}", 0.0, 60.0) else []
        while (claimed := node.claim_message("chat", 10.0, 99.0)) is not None:
            taken.append(claimed.id)
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [name for names in pool.map(take, range(4)) for name in names]
    assert sorted(taken) == sorted(["claim", *(f"m{place}" for place in range(20))])
