"""Store protocol: the operations that every kind of store has; one test suite checks all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from pasto.store.rows import (
    NO_REJECTIONS,
    AppendResult,
    ArchivedSpan,
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
    StoreSize,
    StudyRow,
)


class StudyStore(Protocol):
    """Studies with their policies, closed rounds, learner states and audit log.

    A change of a study is one transaction: all of it is written, or nothing.
    """

    def create_study(
        self,
        study: StudyRow,
        audit: AuditRow,
        *,
        rename_archived: str | None = None,
        layer_slice: LayerSliceRow | None = None,
    ) -> StudyRow:
        """Add a study and return it with its number; a name in use raises StudyExistsError.

        If an archived study has the name, it is renamed to `rename_archived`, with a line in its audit log.
        ConflictError if `layer_slice` overlaps a slice of another study, which may have come first.
        """
        ...

    def update_study(
        self,
        before: StudyRow,
        after: StudyRow,
        *,
        policy: PolicyRow | None = None,
        close: CloseRow | None = None,
        learner: str | None = None,
        audit: Sequence[AuditRow] = (),
        messages: Sequence[OutboxRow] = (),
        layer_slice: LayerSliceRow | None = None,
        use_reserve: bool = False,
    ) -> bool:
        """Write a change of a study, unless another writer changed it after `before` was read.

        Returns whether it was written. It is not written either if the round was closed before, the policy version
        exists, or `layer_slice` overlaps a slice of another study: exactly one of several racing writers wins.

        The store sets the new generation to that of `before` plus one. Name, number, seed and creation time do not
        change. `messages` are put into the outbox. Without `layer_slice` the study's slice stays, and NO_SLICE frees
        it. With `use_reserve`, the write may use the disk space reserved for actions that must work on a full disk,
        such as a pause.
        """
        ...

    def delete_draft(self, draft: StudyRow, name: str, audit: AuditRow) -> bool:
        """Delete a draft from every list, unless it changed after it was read; returns whether it was written.

        Its row stays as `name` in the state "deleted", because of its audit log. Its number is never used again.
        """
        ...

    def read_study(self, name: str) -> StudyRow | None:
        """Return the study of a name, a deleted draft too."""
        ...

    def list_studies(self) -> list[StudyRow]:
        """Return every study by name, without deleted drafts."""
        ...

    def read_generations(self) -> dict[str, tuple[int, int]]:
        """Return (number, generation) of every study by name, to find out which of them changed."""
        ...

    def list_layer_slices(self) -> list[LayerSliceRow]:
        """Return the slices of all studies that are neither archived nor deleted, by layer and start."""
        ...

    def read_learner_state(self, study: int) -> str | None:
        """Return the learner's state after the last close, as text."""
        ...

    def read_policy(self, study: int, version: int) -> PolicyRow | None:
        """Return one published policy."""
        ...

    def list_policies(self, study: int, *, after: int = 0, limit: int = 1000) -> list[PolicyRow]:
        """Return published policies in order, with versions greater than `after`."""
        ...

    def list_closes(self, study: int, *, after: int = 0, limit: int = 1000) -> list[CloseRow]:
        """Return closed rounds in order, with rounds greater than `after`."""
        ...

    def read_audit_log(self, study: int, *, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        """Return audit lines of a study, or of the INSTALLATION, in order, with sequences greater than `after`."""
        ...


class EventStore(Protocol):
    """Log of exposures and metric events, with its counts.

    Many callers share `append_events`: their batches are written together. The future of a batch is done when the
    batch is durable.
    """

    def append_events(
        self,
        study: int,
        events: Sequence[EventRow],
        counts: Sequence[SenderCounts] = (),
        rejections: Rejections = NO_REJECTIONS,
        key: str | None = None,
    ) -> Future[AppendResult]:
        """Append a batch; an event counts once by source and id for the life of the study.

        An event whose id came before with other content is a conflict: it is counted as rejected, and not stored. A
        metric event without a version is credited to the latest exposure of its unit, in the store's sequence. Without
        one it is stored uncredited. Excluded exposures get no credit. Raises StoreBusyError if the queue is full; then
        nothing was taken. The future raises StoreError if the batch could not be written; then nothing of it is
        stored. A batch whose future is cancelled in time is not written. `rejections` are added to those of the study
        so far. `key` is the prefix of the API key that sent the batch.
        """
        ...

    @property
    def queued_events(self) -> int:
        """Events that wait to be written."""
        ...

    def read_high_water(self, study: int) -> int:
        """Return the last sequence of the store: every later event of this study gets a greater one."""
        ...

    def read_transaction(self) -> AbstractContextManager[Any]:
        """Open a read-only transaction on a connection of Python's database interface (DB-API 2).

        All statements in it see the same state of the store. In memory the writer waits meanwhile, so never wait
        inside it for something to be written.
        """
        ...

    def list_sender_counts(self, study: int, version: int) -> list[SenderCounts]:
        """Return the latest counts of each sender for one policy."""
        ...

    def list_rejections_by_reason(self, study: int) -> list[RejectionReason]:
        """Return the reasons for which events were rejected, with the number of events of each."""
        ...

    def list_rejections_by_source(self, study: int) -> list[RejectedPositions]:
        """Return the rejected events of each numbered stream."""
        ...

    def count_rejections_by_key(self, study: int) -> dict[str, int]:
        """Return the number of rejected events of each API key, by its prefix."""
        ...

    def delete_archived_events(self, study: int, version: int, after: int, until: int) -> int:
        """Delete a policy's events in (after, until], which the archive holds; their ids and counts stay.

        Version 0 stands for events without a policy. Returns the number of deleted events; may be repeated.
        """
        ...

    def list_archived_spans(self, study: int, after: int, until: int) -> list[ArchivedSpan]:
        """Return the spans of deleted events that may overlap (after, until], by policy."""
        ...

    def find_unit_events(self, study: int, unit: str) -> list[tuple[int, int]]:
        """Return (sequence, policy version) of each event of a unit; the version is 0 if it has no policy.

        Reads the whole log, in short transactions that do not block the writer.
        """
        ...

    def erase_unit(self, study: int, unit: str, audit: AuditRow, sequences: Iterable[int] | None = None) -> int:
        """Delete all data of a unit except the digests of its event ids and their counts; returns the events.

        `sequences` are those of its events, if the caller has them already.
        """
        ...

    def delete_latest_exposures(self, study: int, version: int) -> int:
        """Delete the latest exposures under policies before a version; returns their number.

        A metric event of such a unit that names no policy is uncredited from then on.
        """
        ...


class ApiKeyStore(Protocol):
    """API keys; each change and its audit lines are one transaction."""

    def add_key(self, key: KeyRow, *, audit: Sequence[AuditRow] = ()) -> None:
        """Add a key; a prefix in use raises StoreError."""
        ...

    def rotate_key(self, prefix: str, at: float, successor: KeyRow, *, audit: Sequence[AuditRow] = ()) -> None:
        """Add a key's successor, and revoke the key at a time to come.

        A key that is revoked sooner stays so. If the prefix of the successor is in use, StoreError is raised and
        nothing changes.
        """
        ...

    def revoke_key(self, prefix: str, at: float, *, audit: Sequence[AuditRow] = ()) -> bool:
        """Revoke a key at a time, which may be to come; False if there is no such key or it is revoked by then.

        Works on a full disk: it may use the reserved disk space.
        """
        ...

    def list_keys(self) -> list[KeyRow]:
        """Return every key, revoked ones included."""
        ...


class SessionStore(Protocol):
    """Sessions of the dashboard: the secret that signs them, and those that ended early."""

    def read_session_secret(self) -> str:
        """Return the secret that signs sessions, the same on every node; creates it if there is none.

        Backups do not hold it, and `restore_backup` deletes it.
        """
        ...

    def end_session(self, key: str, until: int, session: str, now: float) -> None:
        """End a session of a key before it expires at `until`, and delete the records of expired sessions.

        After MAX_ENDED_SESSIONS of one key, all its sessions that expire by then end together.
        """
        ...

    def is_session_ended(self, key: str, until: int, session: str) -> bool:
        """Return whether a session was ended, here or on another node."""
        ...


class OutboxStore(Protocol):
    """Messages to webhooks, each written in the transaction of the fact that it reports."""

    def claim_message(self, webhook: str, now: float, until: float) -> OutboxRow | None:
        """Return the message of a webhook that has been due longest, with its attempt counted; None if none is due.

        No other node gets it before `until`.
        """
        ...

    def read_next_due(self, webhook: str) -> float | None:
        """Return the time at which the next message of a webhook is due; None if none waits."""
        ...

    def postpone_message(self, message: OutboxRow, until: float) -> None:
        """Set the next attempt of a claimed message, unless it was claimed again since."""
        ...

    def delete_message(self, message: OutboxRow) -> None:
        """Delete a delivered message."""
        ...

    def delete_old_messages(self, before: float, describe: Callable[[OutboxRow], AuditRow]) -> list[OutboxRow]:
        """Delete the messages that were written before a time, each with an audit line of its study."""
        ...

    def measure_outbox(self) -> list[OutboxSize]:
        """Return how many messages wait for each webhook."""
        ...


class ClaimStore(Protocol):
    """Claims on work that one node does at a time; they save work, and correctness does not depend on them."""

    def claim(self, name: str, holder: str, now: float, until: float) -> bool:
        """Claim a piece of work until a time, or extend the holder's own claim; False if another holds it.

        A claim of another holder counts until its own time.
        """
        ...

    def release_claim(self, name: str, holder: str) -> None:
        """End a claim, if it is the holder's own."""
        ...


class SettingStore(Protocol):
    """Settings of the whole installation."""

    def read_setting(self, name: str) -> str | None:
        """Return the setting of a name; None if it was never set."""
        ...

    def write_setting(self, name: str, text: str, audit: AuditRow) -> None:
        """Replace a setting, with a line in the audit log of the installation, in one transaction."""
        ...


class StoreMaintenance(Protocol):
    """Checks, backups and sizes."""

    def check_writable(self) -> Future[None]:
        """Write a few pages and commit them; the future raises StoreError if the store cannot be written.

        That is StoreLostError if its file was removed or replaced, and StoreDamagedError if it is damaged.
        """
        ...

    def find_damage(self, should_stop: Callable[[], bool] = lambda: False) -> str | None:
        """Check the structure of the database file, and return the damage, or None; then `check_writable` fails too.

        A database on a server is left to the server's own checks.
        """
        ...

    def check_integrity(self) -> Iterable[str]:
        """Read every row, and yield each finding as a sentence; nothing if the store is sound."""
        ...

    def find_risks(self) -> Iterable[str]:
        """Return sentences about damage that `check_integrity` cannot find; none if all rows have checksums."""
        ...

    def write_backup(self, target: Path) -> None:
        """Write everything into one new file, while others write the store."""
        ...

    def restore_backup(self, source: Path) -> None:
        """Fill an empty store from a backup of any kind of store; numbers and sequences stay."""
        ...

    def measure_size(self) -> StoreSize:
        """Return the number of events and the disk space they take; reads the whole table of ids."""
        ...

    def compact(self) -> None:
        """Free the disk space of deleted rows; events wait meanwhile."""
        ...

    def close(self) -> None:
        """Write the queued events, then close every connection and file."""
        ...


class Store(
    StudyStore,
    EventStore,
    ApiKeyStore,
    SessionStore,
    OutboxStore,
    ClaimStore,
    SettingStore,
    StoreMaintenance,
    Protocol,
):
    """Everything that a service stores."""

    dialect: str
    """SQL dialect of `read_transaction`: "sqlite" or "postgres"."""

    @property
    def directory(self) -> Path | None:
        """Directory of an embedded store, in which other files may be put; None for other kinds."""
        ...

    def read_cache(self, name: str) -> str | None:
        """Return the cached value of a name; caches hold only values that can be computed again."""
        ...

    def write_cache(self, name: str, text: str, messages: Sequence[OutboxRow] = ()) -> None:
        """Replace the cached value of a name, and put messages into the outbox; backups may leave the value out."""
        ...
