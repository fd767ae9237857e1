"""Policy cache: this node's copy of every study, with its current policy and everything parsed from the store."""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, RLock
from typing import Any, TypeVar

from pasto.blend import Blend
from pasto.errors import LifecycleError, NotFittedError, PastoError, StoreError, UnknownStudyError
from pasto.service.lifecycle import SERVING
from pasto.service.round_history import RoundHistory, RoundHistoryReader
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_state import StudyState
from pasto.store import Store, StudyRow
from pasto.study import Study
from pasto_sdk.policy import PublishedPolicy

log = logging.getLogger("pasto.policies")
MAX_PAST_CELLS = 200_000
"""Cells of past policies that are held in memory; older policies are read again."""

Value = TypeVar("Value")


class StudySnapshot:
    """One generation of a study: its row, its study file and its policy, and what is computed from them once.

    The state, the learner's study, the blend and the measured rounds are read on first use and then kept until the
    study changes. Threads that need a part that is being computed wait for it.
    """

    def __init__(
        self,
        row: StudyRow,
        spec: StudySpec,
        policy: PublishedPolicy | None,
        *,
        store: Store,
        history: RoundHistoryReader,
        study: Study | None = None,
    ) -> None:
        self.row = row
        self.spec = spec
        self.policy = policy
        """None for drafts and archived studies."""
        self._store = store
        self._history = history
        self._parts: dict[str, Future[Any]] = {}
        self._lock = Lock()
        if study is not None:
            self.compute_once("study", lambda: study)

    @property
    def state(self) -> StudyState:
        """Maturing and correctable rounds, the frozen blend and the guardrail monitor."""
        return self.compute_once("state", lambda: StudyState.from_text(self.row.details))

    @property
    def study(self) -> Study | None:
        """The learner's study after the last close, which must not be changed; None before the first round."""
        return self.compute_once("study", self._load_study)

    @property
    def blend(self) -> Blend:
        """The answer so far; NotFittedError before a round is learned."""
        return self.compute_once("blend", self._solve_blend)

    @property
    def rounds(self) -> RoundHistory:
        """Rounds and looks as the closes measured them."""
        return self.compute_once("rounds", lambda: self._history.read(self.row.round))

    def compute_once(self, name: str, compute: Callable[[], Value]) -> Value:
        """Return the value of this name, computed at its first use; an error of `compute` is raised and not cached."""
        with self._lock:
            future = self._parts.get(name)
            is_new = future is None
            if future is None:
                future = self._parts[name] = Future()
        if not is_new:
            value: Value = future.result()
            return value
        try:
            computed = compute()
        except BaseException as error:
            with self._lock:
                del self._parts[name]
            future.set_exception(error)
            raise
        future.set_result(computed)
        return computed

    def read_study(self) -> Study:
        """Return the study; NotFittedError before the first round."""
        if self.study is None:
            raise NotFittedError(f"study {self.row.name!r} has no learner yet; start it")
        return self.study

    def _load_study(self) -> Study | None:
        saved = self._store.read_learner_state(self.row.number) if self.row.version else None
        return None if saved is None else Study.from_state(json.loads(saved))

    def _solve_blend(self) -> Blend:
        spec, ramp = self.spec, self.state.ramp
        share = spec.traffic.enrolled(1 if ramp is None else ramp.step)
        return self.read_study().blend(deploy_rounds=spec.deploy_rounds, explore_share=share)


class PolicyCache:
    """The current snapshot of every study, with the past policies that events still name.

    Reading does not wait for the store, except for a study or version that is not known here: another node may have
    just published it.

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
        self._snapshots: dict[str, StudySnapshot] = {}
        self._histories: dict[int, RoundHistoryReader] = {}
        self._past: OrderedDict[tuple[int, int], PublishedPolicy] = OrderedDict()
        self._past_cells = 0
        self._listeners: list[Callable[[str], None]] = []
        self._unreadable: dict[str, int] = {}
        """Generations of the studies that could not be read."""
        self._lock = RLock()

    def current(self, name: str) -> PublishedPolicy:
        """Return the policy that a study serves now; LifecycleError if it serves none.

        StoreError if the store has not answered for longer than the policy is valid without it.
        """
        snapshot = self.snapshot(name)
        policy = snapshot.policy
        if policy is None:
            state = snapshot.row.state
            if state == "draft":
                raise LifecycleError(f"study {name!r} is a draft, so it serves no policy yet; start it")
            raise LifecycleError(f"study {name!r} is {state}, so it serves no policy any more")
        if self._silent_since is not None and self.silence > policy.expires_after:
            raise StoreError(
                f"the store has not answered for longer than the policy of study {name!r} holds, so this node cannot "
                "say what to serve; serve the baseline, or ask another node"
            )
        return policy

    def drawn(self, name: str) -> PublishedPolicy:
        """Return the policy from which PASTO draws units; LifecycleError if another platform assigns them."""
        if self.snapshot(name).spec.is_external:
            raise LifecycleError(
                f"units of study {name!r} are assigned by another platform (exposures.assigned_by: external); ask that "
                "platform, and send the candidate that it gave as an exposure"
            )
        return self.current(name)

    def snapshot(self, name: str) -> StudySnapshot:
        """Return the latest snapshot on this node; UnknownStudyError if the store has no such study either."""
        return self._snapshots.get(name) or self.reload(name)

    def names(self) -> tuple[str, ...]:
        """Return the studies that serve a policy."""
        return tuple(name for name, snapshot in sorted(self._snapshots.items()) if snapshot.policy is not None)

    def all(self) -> tuple[StudySnapshot, ...]:
        """Return the snapshots of all studies, by name."""
        return tuple(snapshot for _, snapshot in sorted(self._snapshots.items()))

    def spec(self, row: StudyRow) -> StudySpec:
        """Return the study file of a row, parsed once."""
        known = self._snapshots.get(row.name)
        if known is not None and known.row.study_file == row.study_file:
            return known.spec
        return parse_spec(json.loads(row.study_file), stored=True)

    def listen(self, callback: Callable[[str], None]) -> None:
        """Call a function with a study's name each time its policy changes, from the thread that read the change."""
        with self._lock:
            self._listeners.append(callback)

    def refresh(self) -> None:
        """Read the studies that changed in the store; one that cannot be read is logged, and the others are read."""
        try:
            generations = self._store.read_generations()
        except Exception:
            self._silent_since = self._monotonic() if self._silent_since is None else self._silent_since
            raise
        self._silent_since = None
        for name, (number, generation) in sorted(generations.items()):
            known = self._snapshots.get(name)
            if known is not None and known.row.number == number and known.row.generation >= generation:
                continue
            try:
                self.reload(name)
            except UnknownStudyError:
                pass  # a draft that was deleted since
            except (PastoError, ValueError) as error:
                if self._unreadable.get(name) != generation:
                    self._unreadable[name] = generation
                    log.error("study %r cannot be read: %s: %s", name, type(error).__name__, error)
        for name in self._snapshots.keys() - generations.keys():
            with suppress(UnknownStudyError):
                self.reload(name)  # created after the generations were read, or deleted

    @property
    def silence(self) -> float:
        """Seconds since which the store has not answered, so that changes of other nodes are unknown here."""
        since = self._silent_since
        return 0.0 if since is None else self._monotonic() - since

    def reload(self, name: str) -> StudySnapshot:
        """Read one study from the store."""
        row = self._store.read_study(name)
        if row is None:
            with self._lock:
                self._snapshots.pop(name, None)
            raise UnknownStudyError.named(name)
        if row.state == "deleted":
            return self._snapshot(row)
        return self.take(row)

    def snapshot_of(self, row: StudyRow) -> StudySnapshot:
        """Return the snapshot of a row that was just read, from which a change of the study follows.

        It is this node's own, with everything already computed, if the generation is the same. Otherwise it has no
        policy: a study can be paused even if its policy cannot be read.
        """
        known = self._snapshots.get(row.name)
        is_current = known is not None and (known.row.number, known.row.generation) == (row.number, row.generation)
        return known if known is not None and is_current else self._snapshot(row)

    def published(self, snapshot: StudySnapshot, version: int) -> PublishedPolicy | None:
        """Return a present or past policy of a study; None if it was never published."""
        policy = snapshot.policy
        if policy is not None and policy.version == version:
            return policy
        key = (snapshot.row.number, version)
        with self._lock:
            past = self._past.get(key)
            if past is not None:
                self._past.move_to_end(key)
                return past
        row = self._store.read_policy(*key)
        if row is None:
            return None
        policy = PublishedPolicy.from_text(row.document, row.checksum)
        with self._lock:
            if key not in self._past:
                self._past[key] = policy
                self._past_cells += policy.bucket_count
                while self._past_cells > MAX_PAST_CELLS and len(self._past) > 1:
                    self._past_cells -= self._past.popitem(last=False)[1].bucket_count
        return policy

    def take(self, row: StudyRow, policy: PublishedPolicy | None = None, study: Study | None = None) -> StudySnapshot:
        """Make a row from the store the current one, unless a later one is known.

        A close passes the policy and the study that it has just committed, so that they are not read again.
        """
        with self._lock:
            known = self._snapshots.get(row.name)
            if known is not None and known.row.number == row.number and known.row.generation >= row.generation:
                return known
            policy = self._policy(row) if policy is None else policy
            snapshot = self._snapshots[row.name] = self._snapshot(row, policy, study)
            before = None if known is None else known.policy
            listeners = tuple(self._listeners) if policy != before else ()
        for callback in listeners:
            callback(row.name)
        return snapshot

    def _snapshot(
        self, row: StudyRow, policy: PublishedPolicy | None = None, study: Study | None = None
    ) -> StudySnapshot:
        with self._lock:
            history = self._histories.get(row.number)
            if history is None:
                history = self._histories[row.number] = RoundHistoryReader(self._store, row.number)
        return StudySnapshot(row, self.spec(row), policy, store=self._store, history=history, study=study)

    def _policy(self, row: StudyRow) -> PublishedPolicy | None:
        if row.state not in SERVING:
            return None
        written = self._store.read_policy(row.number, row.version)
        if written is None:
            raise StoreError(f"policy {row.version} of study {row.name!r} is missing; run `pasto store check`")
        return PublishedPolicy.from_text(written.document, written.checksum)
