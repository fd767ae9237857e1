"""What is served now, in memory: every node's own copy of the store's current policies."""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock

from pasto.errors import LifecycleError, PastoError, StoreError, UnknownStudyError
from pasto.service.lifecycle import SERVING
from pasto.service.study_file import StudySpec, parse_spec
from pasto.store import Store, StudyRow
from pasto_sdk.policy import PublishedPolicy

log = logging.getLogger("pasto.board")
MOST_CELLS = 200_000
"""Cells of past policies that are kept ready; older ones are read again."""


@dataclass(frozen=True, slots=True)
class StudySnapshot:
    """One study as this node knows it."""

    row: StudyRow
    spec: StudySpec
    policy: PublishedPolicy | None
    """None for drafts and archived studies."""


class PolicyCache:
    """The current policy of every study, with the past ones that events still name.

    Reading never waits for the store, unless a study or version is not known here: another node may have just
    published it.

    >>> from pasto.store import open_store
    >>> store = open_store("memory:")
    >>> PolicyCache(store).names()
    ()
    >>> store.close()
    """

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._silent_since: float | None = None
        self._standing: dict[str, StudySnapshot] = {}
        self._past: OrderedDict[tuple[int, int], PublishedPolicy] = OrderedDict()
        self._cells = 0
        self._listeners: list[Callable[[str], None]] = []
        self._troubled: dict[str, int] = {}
        """Studies that could not be read, and in which generation."""
        self._lock = RLock()

    def current(self, name: str) -> PublishedPolicy:
        """The policy that a study serves now; UnknownStudy, or WrongState where it serves none.

        StoreError where the store has been silent for longer than the policy may be held without a word from it.
        """
        policy = self.standing(name).policy
        if policy is None:
            state = self.standing(name).row.state
            if state == "draft":
                raise LifecycleError(f"study {name!r} is a draft, so it serves no policy yet; start it")
            raise LifecycleError(f"study {name!r} is {state}, so it serves no policy any more")
        if self._silent_since is not None and self.silence > policy.expires_after:
            raise StoreError(
                f"the store has not answered for longer than the policy of study {name!r} holds, so this node cannot "
                "say what to serve; serve the baseline, or ask another node"
            )
        return policy

    def standing(self, name: str) -> StudySnapshot:
        """A study as this node knows it; UnknownStudy where the store does not know it either."""
        return self._standing.get(name) or self.reread(name)

    def names(self) -> tuple[str, ...]:
        """The studies that serve a policy."""
        return tuple(name for name, standing in sorted(self._standing.items()) if standing.policy is not None)

    def all(self) -> tuple[StudySnapshot, ...]:
        """Every study known here, by name."""
        return tuple(standing for _, standing in sorted(self._standing.items()))

    def spec(self, row: StudyRow) -> StudySpec:
        """What a study's file says, read once."""
        known = self._standing.get(row.name)
        if known is not None and known.row.study_file == row.study_file:
            return known.spec
        return parse_spec(json.loads(row.study_file), stored=True)

    def listen(self, callback: Callable[[str], None]) -> None:
        """Have a function called with a study's name each time its policy changes, from whichever thread saw it."""
        with self._lock:
            self._listeners.append(callback)

    def refresh(self) -> None:
        """Read the studies that changed in the store; one that cannot be read is logged, and the others are served."""
        try:
            found = self._store.read_generations()
        except Exception:
            self._silent_since = self._monotonic() if self._silent_since is None else self._silent_since
            raise
        self._silent_since = None
        for name, (number, generation) in sorted(found.items()):
            known = self._standing.get(name)
            if known is not None and known.row.number == number and known.row.generation >= generation:
                continue
            try:
                self.reread(name)
            except UnknownStudyError:
                pass  # a draft that was deleted since
            except (PastoError, ValueError) as error:
                if self._troubled.get(name) != generation:
                    self._troubled[name] = generation
                    log.error("study %r cannot be read: %s: %s", name, type(error).__name__, error)
        for name in self._standing.keys() - found.keys():
            with suppress(UnknownStudyError):
                self.reread(name)  # created a moment ago, or deleted, which is found out here

    @property
    def silence(self) -> float:
        """For how many seconds the store has not answered; what other nodes did meanwhile, nobody here knows."""
        since = self._silent_since
        return 0.0 if since is None else self._monotonic() - since

    def reread(self, name: str) -> StudySnapshot:
        """Read one study from the store."""
        row = self._store.read_study(name)
        if row is None:
            with self._lock:
                self._standing.pop(name, None)
            raise UnknownStudyError(f"there is no study {name!r}; create it first, or check the name")
        if row.state == "deleted":
            return StudySnapshot(row, self.spec(row), None)
        return self._take(row)

    def published(self, standing: StudySnapshot, version: int) -> PublishedPolicy | None:
        """One policy of a study, of now or before; None where it was never published."""
        policy = standing.policy
        if policy is not None and policy.version == version:
            return policy
        key = (standing.row.number, version)
        with self._lock:
            found = self._past.get(key)
            if found is not None:
                self._past.move_to_end(key)
                return found
        row = self._store.read_policy(*key)
        if row is None:
            return None
        read = PublishedPolicy.from_text(row.document, row.checksum)
        with self._lock:
            if key not in self._past:
                self._past[key] = read
                self._cells += len(read.cells)
                while self._cells > MOST_CELLS and len(self._past) > 1:
                    self._cells -= len(self._past.popitem(last=False)[1].cells)
        return read

    def _take(self, row: StudyRow) -> StudySnapshot:
        with self._lock:
            known = self._standing.get(row.name)
            if known is not None and known.row.number == row.number and known.row.generation >= row.generation:
                return known
            policy = self._policy(row)
            standing = self._standing[row.name] = StudySnapshot(row, self.spec(row), policy)
            before = None if known is None else known.policy
            listeners = tuple(self._listeners) if policy != before else ()
        for callback in listeners:
            callback(row.name)
        return standing

    def _policy(self, row: StudyRow) -> PublishedPolicy | None:
        if row.state not in SERVING:
            return None
        written = self._store.read_policy(row.number, row.version)
        if written is None:
            raise StoreError(f"policy {row.version} of study {row.name!r} is missing; run `pasto store check`")
        return PublishedPolicy.from_text(written.document, written.checksum)
