"""Every close computed again from the study file and the log, and compared with what was published."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pasto.assign.document import has_checksum, remove_checksum
from pasto.errors import PastoError
from pasto.measure import Moments
from pasto.service.details import Frozen, Waiting, identity_of
from pasto.service.packing import read_cells
from pasto.service.rounds.again import Again
from pasto.service.rounds.close import Terms, lesson, publication
from pasto.service.rounds.rejudged import Rejudged
from pasto.service.rounds.reopened import Reopened
from pasto.service.rounds.step import Stepped, begun, step
from pasto.service.spec import Spec
from pasto.store import CloseRow, PolicyRow, Store, StudyRow

if TYPE_CHECKING:
    from pasto.service.archive import Archive

Row = TypeVar("Row", CloseRow, PolicyRow)
PAGE = 200


def replay(store: Store, spec: Spec, row: StudyRow, archive: Archive | None = None) -> dict[str, Any]:
    """Whether every policy and every state of the learner comes out as it was published, bit for bit.

    Rounds are measured again from the events that their close had seen; whatever arrived later changes nothing. The
    first difference is told with its round. Where the study has moved to another kind of store since, whose sums may
    differ in their last digits, what is measured must agree with what was recorded but for those. Rounds that knew a
    unit which was deleted since, or whose events are no longer kept, are told as exceptions.
    """
    if not row.version:
        return _told(0, None)
    closes = _pages(lambda after: store.closes(row.number, after=after, limit=PAGE), lambda close: close.round)
    policies = _pages(lambda after: store.policies(row.number, after=after, limit=PAGE), lambda policy: policy.version)
    first = next(policies, None)
    if first is None or first.version != 1:
        return _told(0, {"round": 1, "what": "policy", "problem": "the first policy is missing from the log"})
    stepped = begun(spec.study(row.seed))
    frozen: Frozen | None = None
    identity = identity_of(row)
    _, again = publication(spec, stepped, Terms("learning"), None, version=1, at=first.published_at, identity=identity)
    if again is None or not _is_published(again.text, first.text):
        return _told(0, _difference(1, "policy", first.checksum, None if again is None else again.checksum))
    served = {1: Waiting(1, stepped.study.policy.version, first.after, 0.0)}
    done, measuring = 0, Again(store, spec, row, archive)
    open_ = Reopened(store, spec, row, measuring)
    rejudged = Rejudged(spec, measuring, first.after, first.published_at)
    for close in closes:
        if close.round != done + 1:
            return _told(done, _difference(done + 1, "close", "missing", None))
        try:
            stepped, frozen, difference = _again(
                measuring, open_, rejudged, spec, close, stepped, frozen, served, policies, identity
            )
        except (PastoError, KeyError, ValueError) as error:
            difference = _difference(close.round, "close", None, None, f"{type(error).__name__}: {error}")
        if difference is not None:
            return _told(done, difference)
        done += 1
    if done < row.round - (row.state != "archived"):
        return _told(done, _difference(done + 1, "close", "missing", None))
    return {**_told(done, None), **measuring.exceptions(rejudged.otherwise)}


def _again(
    measuring: Again,
    open_: Reopened,
    rejudged: Rejudged,
    spec: Spec,
    close: CloseRow,
    stepped: Stepped,
    frozen: Frozen | None,
    served: dict[int, Waiting],
    policies: Iterator[PolicyRow],
    identity: str,
) -> tuple[Stepped, Frozen | None, dict[str, Any] | None]:
    """One close once more; `served` learns what the next round serves."""
    told = json.loads(close.observed)
    rounds: list[tuple[int, Sequence[Moments]]] = []
    if told["learns"]:
        if not open_.measure(close, told):
            return stepped, frozen, _difference(close.round, "correction", "recorded", "not as recorded")
        due = [served.pop(one["round"]) for one in told["rounds"]]
        lessons = []
        for one, record in zip(due, told["rounds"], strict=True):
            recorded = read_cells(record["moments"])
            measured = measuring.measure(one, close.high_water, recorded, told["engine"])
            if measured is None:
                return stepped, frozen, _difference(close.round, "measurement", "recorded", "not as recorded")
            lessons.append(lesson(spec, one, measured))
            rounds.append((one.round, measured))
        stepped = step(stepped.text, lessons, open_.revision(told))
        open_.add([(one, measured) for one, (_, measured) in zip(due, rounds, strict=True)], told)
        rounds = [*open_.corrected.items(), *rounds]
    if stepped.checksum != close.learner_checksum:
        return stepped, frozen, _difference(close.round, "learner", close.learner_checksum, stepped.checksum)
    terms = Terms(**told["next"])
    looked = read_cells(told.get("look", {}).get("moments", ()))
    if (different := rejudged.close(close, told, terms, rounds, looked)) is not None:
        return stepped, frozen, _difference(close.round, *different)
    if close.next_version == close.version:
        return stepped, frozen, None
    policy = next(policies, None)
    if policy is None or policy.version != close.next_version:
        return stepped, frozen, _difference(close.round, "policy", "missing", None)
    frozen, again = publication(
        spec, stepped, terms, frozen, version=policy.version, at=policy.published_at, identity=identity
    )
    if again is None or not _is_published(again.text, policy.text):
        found = None if again is None else again.checksum
        return stepped, frozen, _difference(close.round, "policy", policy.checksum, found)
    rejudged.serving(close.high_water, policy.published_at)
    if terms.state == "learning":
        learned = stepped.study.policy.version
        served[policy.version] = Waiting(policy.round, learned, close.high_water, 0.0)
    return stepped, frozen, None


def _is_published(computed: str, stored: str) -> bool:
    """Return whether a document is the stored one; one that carries no checksum of its own is compared without it."""
    return stored == (computed if has_checksum(stored.encode()) else remove_checksum(computed))


def _pages(read: Callable[[int], list[Row]], number: Callable[[Row], int]) -> Iterator[Row]:
    after = 0
    while rows := read(after):
        yield from rows
        after = number(rows[-1])


def _told(rounds: int, difference: dict[str, Any] | None) -> dict[str, Any]:
    return {"identical": difference is None, "rounds": rounds, "first_difference": difference}


def _difference(
    number: int, what: str, published: str | None, computed: str | None, problem: str = ""
) -> dict[str, Any]:
    told = {"round": number, "what": what, "published": published, "computed": computed}
    return {**told, "problem": problem} if problem else told
