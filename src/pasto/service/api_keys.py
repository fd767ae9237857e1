"""API keys: made once, shown once, kept as a digest, found by their public prefix."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from pasto.control_characters import check_lines
from pasto.errors import OptionError
from pasto.service.scopes import SCOPES, is_scope
from pasto.store import AuditRow, KeyRow, Store, StudyRow

KEY = re.compile(r"pasto_([0-9a-f]{12})_[0-9a-f]{64}")
"""A key as it is sent: a public prefix to find it by, then 256 secret bits."""

REDACTED = re.compile(r"(pasto_[0-9A-Za-z]{1,12})_[0-9A-Za-z_-]+")

UNKNOWN_DIGEST = "0" * 64
"""Compared with the key of an unknown prefix, so that it takes as long as a known one."""

MONTH = 30 * 86400.0

LONGEST = 3650 * 86400.0


@dataclass(frozen=True, slots=True)
class ApiKeyRecord:
    """API key without its secret."""

    prefix: str
    """Public part, by which the key is found."""
    name: str
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    valid: bool


@dataclass(frozen=True, slots=True)
class NewApiKey(ApiKeyRecord):
    """New API key with its secret, which no later answer contains."""

    key: str


def redact(text: str) -> str:
    """Return a text without the secret part of every key in it.

    >>> redact("Bearer pasto_0123456789ab_c0ffee")
    'Bearer pasto_0123456789ab_…'
    """
    return REDACTED.sub(r"\1_…", text)


class ApiKeys:
    """Keys of one store, cached.

    A key that another node created or revoked takes effect at the next `refresh`; a service calls it every second.

    >>> from pasto.store import open_store
    >>> store = open_store("memory:")
    >>> keys = ApiKeys(store)
    >>> made = keys.create("recommender", ["evaluate", "ingest"])
    >>> key = keys.check(made.key)
    >>> key is not None and key.name
    'recommender'
    >>> keys.revoke(made.prefix), keys.check(made.key)
    (True, None)
    >>> store.close()
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._rows: dict[str, KeyRow] = {}
        self.refresh()

    @property
    def none(self) -> bool:
        """True if no key was ever created; revoked and expired ones count, so that a store never becomes open again."""
        return not self._rows

    @property
    def usable(self) -> bool:
        """True if some key is valid now."""
        now = self._clock()
        return any(_valid(row, now) for row in self._rows.values())

    def refresh(self) -> None:
        """Read the store's keys."""
        self._rows = {row.prefix: row for row in self._store.list_keys()}

    def check(self, text: str) -> KeyRow | None:
        """Return the key that a caller sent, if it exists and is valid now."""
        match = KEY.fullmatch(text)
        row = self._rows.get(match[1]) if match else None
        same = hmac.compare_digest(_digest(text), row.digest if row else UNKNOWN_DIGEST)
        return row if row and same and _valid(row, self._clock()) else None

    def valid(self, prefix: str) -> KeyRow | None:
        """Return the key of a prefix, if it exists and is valid now; a prefix alone proves nothing."""
        row = self._rows.get(prefix)
        return row if row and _valid(row, self._clock()) else None

    def create(self, name: str, scopes: Iterable[str], *, expires_in: float | None = None, who: str = "") -> NewApiKey:
        """Create a key; only the result has its secret. The audit log names `who`."""
        check_lines(who=who)
        row, text = _make(name, scopes, self._clock(), expires_in)
        detail = {"name": row.name, "prefix": row.prefix, "scopes": row.scopes, "expires_at": row.expires_at}
        self._store.add_key(row, audit=[AuditRow(row.created_at, who, "key created", "", detail)])
        self._rows = {**self._rows, row.prefix: row}
        return NewApiKey(row.prefix, row.name, row.scopes, row.created_at, row.expires_at, None, True, text)

    def listed(self) -> list[ApiKeyRecord]:
        """Return every key without its secret, the oldest first."""
        self.refresh()
        now = self._clock()
        return [
            _describe(row, now) for row in sorted(self._rows.values(), key=lambda row: (row.created_at, row.prefix))
        ]

    def revoke(self, prefix: str, *, who: str = "") -> bool:
        """Revoke a key now; False if there is none, or it was revoked before."""
        check_lines(who=who)
        if prefix not in self._rows:
            self.refresh()
        row = self._rows.get(prefix)
        if row is None:
            return False
        now = self._clock()
        line = AuditRow(now, who, "key revoked", "", {"name": row.name, "prefix": prefix})
        if not self._store.revoke_key(prefix, now, audit=[line]):
            return False
        self._rows = {**self._rows, prefix: replace(row, revoked_at=now)}
        return True

    def rotate(self, prefix: str, *, grace: float = 86400.0, who: str = "") -> NewApiKey:
        """Make a key like another one, which stays valid for `grace` seconds more: time to hand out the new one."""
        check_lines(who=who)
        self.refresh()
        old = self._rows.get(prefix)
        if old is None or not _valid(old, self._clock()):
            raise OptionError(f"there is no valid key {prefix!r} to rotate; list the keys to see their prefixes")
        if not 0 <= grace <= MONTH:
            raise OptionError(f"a rotated key can live on for 0 to {MONTH:.0f} seconds, got {grace!r}")
        row, text = _make(old.name, old.scopes, self._clock(), _lifetime(old))
        ends_at = row.created_at + grace
        detail = {"name": old.name, "prefix": prefix, "successor": row.prefix, "revoked_at": ends_at}
        line = AuditRow(row.created_at, who, "key rotated", "", detail)
        self._store.rotate_key(prefix, ends_at, row, audit=[line])
        self.refresh()
        return NewApiKey(row.prefix, row.name, row.scopes, row.created_at, row.expires_at, None, True, text)


def _make(name: str, scopes: Iterable[str], now: float, expires_in: float | None) -> tuple[KeyRow, str]:
    """Return a new key as it is stored, and as it is sent."""
    scopes = tuple(dict.fromkeys(scopes))
    _check(name, scopes, expires_in)
    prefix = secrets.token_hex(6)
    text = f"pasto_{prefix}_{secrets.token_hex(32)}"
    expires_at = None if expires_in is None else now + expires_in
    return KeyRow(prefix, _digest(text), name, scopes, now, expires_at), text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _valid(row: KeyRow, now: float) -> bool:
    return (row.revoked_at is None or now < row.revoked_at) and (row.expires_at is None or now < row.expires_at)


def _lifetime(row: KeyRow) -> float | None:
    """Return the lifetime of a key in seconds, which its successor gets too."""
    return None if row.expires_at is None else row.expires_at - row.created_at


def _check(name: str, scopes: tuple[str, ...], expires_in: float | None) -> None:
    if not (isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable()):
        raise OptionError(f"a key's name is 1 to 100 printable characters, got {name!r}")
    unknown = [scope for scope in scopes if not is_scope(scope)]
    if unknown or not scopes:
        raise OptionError(
            f"a key's scopes are some of {', '.join(SCOPES)}, each alone or with a study such as read:feed; "
            f"got {', '.join(map(repr, unknown)) or 'none'}"
        )
    if expires_in is not None and not 0 < expires_in <= LONGEST:
        raise OptionError(f"a key expires in 0 to {LONGEST:.0f} seconds, or never; got {expires_in!r}")


def _describe(row: KeyRow, now: float) -> ApiKeyRecord:
    return ApiKeyRecord(
        row.prefix, row.name, row.scopes, row.created_at, row.expires_at, row.revoked_at, _valid(row, now)
    )


class SigningKeys:
    """The signing key of each study, derived from the secret of the installation.

    Every node of one store derives the same key. No backup holds the secret, so a restored store has other keys.

    >>> from pasto.store import open_store
    >>> store = open_store("memory:")
    >>> feed = StudyRow("feed", 1, 1, "draft", "{}", 7, 0, 0, 0.0, 0.0)
    >>> keys = SigningKeys(store)
    >>> len(keys.derive(feed)), keys.derive(feed) == SigningKeys(store).derive(feed)
    (64, True)
    >>> store.close()
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._secret: bytes | None = None

    def derive(self, study: StudyRow) -> str:
        """Return a study's key in hexadecimal; a later study of the same name has another."""
        if self._secret is None:
            self._secret = self._store.read_session_secret().encode()
        return hmac.digest(self._secret, f"exposures/{study.name}/{study.number}".encode(), "sha256").hex()
