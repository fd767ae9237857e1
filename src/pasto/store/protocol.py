"""What every store can do; one suite of tests examines them all."""

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
    PolicyRow,
    RejectedPositions,
    RejectionReason,
    Rejections,
    SenderCounts,
    StoreSize,
    StudyRow,
)


class Store(Protocol):
    """Where studies, policies, closes and events rest.

    Two kinds of writes. What changes a study goes through `create` and `commit`, each one transaction that is written
    whole or not at all. Events go through `append`, which many callers share: their batches are written together and
    each caller's future is done when its own are durable.
    """

    dialect: str
    """The SQL that `reading` speaks: "sqlite" or "postgres"."""

    @property
    def directory(self) -> Path | None:
        """The directory it lives in, where others may put their own files beside it; None where there is none."""
        ...

    def close(self) -> None:
        """Write what is waiting, then let go of everything."""
        ...

    # Studies

    def create_study(self, study: StudyRow, audit: AuditRow, *, rename_archived: str | None = None) -> StudyRow:
        """Take in a new study and return it with its number; a name in use raises StudyExists.

        An archived study that has the name gets the name `rename_archived`, and a line about it in its audit log.
        """
        ...

    def delete_draft(self, draft: StudyRow, name: str, audit: AuditRow) -> bool:
        """Take a draft out of every list, if it is still as it was seen; returns whether it was written.

        Its row stays under another name, in the state "deleted", for its audit log; its number is never used again.
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
        use_reserve: bool = False,
    ) -> bool:
        """Write a change of a study in one transaction, if `before` is still how it stands; else do nothing.

        Returns whether it was written. A round that was closed before, or a policy's version that exists, also makes
        it nothing: exactly one of several racing writers wins. The store counts the generations, so the study's next
        one is that behind `before`'s; its name, number, seed and birth stay as they are. `use_reserve` lets it have
        the room that is held for actions that must work on a full disk, such as a pause.
        """
        ...

    def read_study(self, name: str) -> StudyRow | None:
        """The study of that name as it stands; a deleted draft too."""
        ...

    def list_studies(self) -> list[StudyRow]:
        """Every study, by name; deleted drafts are left out."""
        ...

    def read_generations(self) -> dict[str, tuple[int, int]]:
        """The number and generation of every study, by name: enough to know which of them changed.

        Deleted drafts are left out.
        """
        ...

    def read_learner_state(self, study: int) -> str | None:
        """The learner's state after the last close, as text."""
        ...

    def read_policy(self, study: int, version: int) -> PolicyRow | None:
        """One published policy."""
        ...

    def list_policies(self, study: int, *, after: int = 0, limit: int = 1000) -> list[PolicyRow]:
        """Published policies in order, from the version behind `after`."""
        ...

    def list_closes(self, study: int, *, after: int = 0, limit: int = 1000) -> list[CloseRow]:
        """Closed rounds in order, from the round behind `after`."""
        ...

    def read_audit_log(self, study: int, *, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        """Return the audit log of one study, or of the INSTALLATION, in order, from the sequence after `after`."""
        ...

    # Events

    def append_events(
        self,
        study: int,
        events: Sequence[EventRow],
        tallies: Sequence[SenderCounts] = (),
        rejections: Rejections = NO_REJECTIONS,
        key: str | None = None,
    ) -> Future[AppendResult]:
        """Keep a batch: counted once by source and id for the study's life, done when durable.

        An event that comes again with other content is a conflict: it is not kept, and counted as rejected.
        A metric event without a version is credited to its unit's latest exposure in the store's sequence, those
        before it in the batch included; without any, it is kept uncredited. Excluded exposures credit nothing. Raises
        StoreBusy, and takes nothing, when too much is waiting; the future raises StoreError, and nothing of the batch
        was kept, when it could not be written. A batch whose future is cancelled in time is not written. `rejections`
        are added to those of the study so far. `key` is the prefix of the API key that sent the batch.
        """
        ...

    def delete_archived_events(self, study: int, version: int, after: int, until: int) -> int:
        """Delete a policy's events in (after, until], which the archive holds; their ids and counts stay.

        Version 0 means events of no policy. Returns how many there were; may be done again.
        """
        ...

    def list_archived_spans(self, study: int, after: int, until: int) -> list[ArchivedSpan]:
        """Return the records of deleted events that may lie in a span of the log, by policy."""
        ...

    def find_unit_events(self, study: int, unit: str) -> list[tuple[int, int]]:
        """Where a unit's events are: their sequences, and the policy of each, 0 for none.

        All of the log is looked through, by a reader that holds nobody up.
        """
        ...

    def erase_unit(self, study: int, unit: str, audit: AuditRow, sequences: Iterable[int] | None = None) -> int:
        """Delete all that is kept of a unit except the digests of its events' ids and their counts, and record that.

        `sequences` say where its events are, if that was found out already. Returns how many of them there were.
        """
        ...

    def delete_latest_exposures(self, study: int, version: int) -> int:
        """Let go of the latest exposures under policies before a version: nothing is credited to them any more.

        Returns how many there were. A metric event of such a unit that names no policy is then kept uncredited.
        """
        ...

    @property
    def queued_events(self) -> int:
        """How many events are waiting to be written."""
        ...

    def read_high_water(self, study: int) -> int:
        """The last sequence of the store, behind which no event of this study can still appear."""
        ...

    def read_transaction(self) -> AbstractContextManager[Any]:
        """A connection for one short read-only transaction, of Python's database interface (DB-API 2).

        Everything read through it is of one moment. In memory the writer waits meanwhile, so nothing may be awaited
        inside that has yet to be written.
        """
        ...

    def list_sender_counts(self, study: int, version: int) -> list[SenderCounts]:
        """The latest tally of each sender for one policy."""
        ...

    def list_rejections_by_reason(self, study: int) -> list[RejectionReason]:
        """Why events of a study were rejected, and how many for each reason."""
        ...

    def list_rejections_by_source(self, study: int) -> list[RejectedPositions]:
        """The rejected events of each numbered stream."""
        ...

    def count_rejections_by_key(self, study: int) -> dict[str, int]:
        """Return how many events of each API key were rejected, by its prefix."""
        ...

    # Keys

    def add_key(self, key: KeyRow, *, audit: Sequence[AuditRow] = ()) -> None:
        """Store a new key and its audit lines in one transaction; a prefix in use raises StoreError."""
        ...

    def rotate_key(self, prefix: str, at: float, successor: KeyRow, *, audit: Sequence[AuditRow] = ()) -> None:
        """Store a key's successor, revoke the key at a time to come and write the audit lines, in one transaction.

        A key that is revoked sooner stays so. A successor's prefix in use raises StoreError, and nothing is changed.
        """
        ...

    def revoke_key(self, prefix: str, at: float, *, audit: Sequence[AuditRow] = ()) -> bool:
        """Revoke a key, perhaps from a time to come; False where there is none, or it is revoked by then already.

        The audit lines are written in the same transaction, if the key is revoked. It may use the room that is held
        for actions that must work on a full disk.
        """
        ...

    def list_keys(self) -> list[KeyRow]:
        """Every key, revoked ones included."""
        ...

    # Sessions of the dashboard

    def read_session_secret(self) -> str:
        """Return the secret that sessions are signed with: the same on every node, made if there is none.

        No backup holds it, and `restore` makes another.
        """
        ...

    def end_session(self, key: str, until: int, session: str, now: float) -> None:
        """End a session of a key before it expires at `until`; what was noted of expired ones is deleted.

        After MAX_ENDED_SESSIONS of one key, all its sessions that expire by then are ended together.
        """
        ...

    def is_session_ended(self, key: str, until: int, session: str) -> bool:
        """Return whether a session was ended, here or on another node."""
        ...

    # Notes

    def read_cache(self, name: str) -> str | None:
        """What was last noted under a name: only ever something that can be worked out again from the rest."""
        ...

    def write_cache(self, name: str, text: str) -> None:
        """Keep a note in the place of the last one of that name; backups may leave notes out."""
        ...

    # Care

    def check_writable(self) -> Future[None]:
        """Write a few pages and commit them; the future raises StoreError if the store cannot take writes now.

        That is StoreLostError if its file was removed or replaced, and StoreDamagedError if it is known to be damaged.
        """
        ...

    def find_damage(self, should_stop: Callable[[], bool] = lambda: False) -> str | None:
        """Look through the structure of a database file, and return what is wrong; None if it is sound.

        Then `check_writable` fails too. A database on a server is left to the server's own checks.
        """
        ...

    def write_backup(self, target: Path) -> None:
        """Write everything into one new file, while others go on writing; `restore` reads it into an empty store."""
        ...

    def restore_backup(self, source: Path) -> None:
        """Fill an empty store from a backup, of this kind of store or another; numbers and sequences are kept."""
        ...

    def check_integrity(self) -> Iterable[str]:
        """Look for damage, and tell each finding in a sentence; nothing where all is well."""
        ...

    def find_risks(self) -> Iterable[str]:
        """Return what keeps damage from being noticed, each in a sentence; nothing if all rows have checksums."""
        ...

    def measure_size(self) -> StoreSize:
        """Return how much it holds and how much room that takes; reads the whole table of ids."""
        ...

    def compact(self) -> None:
        """Give back, or free for new events, the room of what was deleted; events wait meanwhile."""
        ...
