"""Authentication: API keys and their scopes, or any local caller while the store has no key."""

from __future__ import annotations

from collections.abc import Iterable

from pasto.errors import OptionError
from pasto.service.api_keys import ApiKeys, is_permitted
from pasto.service.http.body import RequestHeaders
from pasto.service.http.responses import ApiError
from pasto.service.settings import Settings, is_loopback
from pasto.store import KeyRow

CHALLENGE = ((b"www-authenticate", b'Bearer realm="pasto"'),)
LOCAL = "local"
"""Caller's name in the audit log if no key is needed and the caller gives no name."""


class Authenticator:
    """Authenticator of requests. A rejection does not reveal if the requested object exists."""

    def __init__(self, keys: ApiKeys, settings: Settings) -> None:
        self._keys = keys
        self._settings = settings
        self._met: set[bytes] = set()
        self.may_open = settings.is_loopback and not settings.keys_required

    @property
    def open(self) -> bool:
        """True if callers need no key."""
        return self.may_open and self._keys.none

    def admit(self, headers: RequestHeaders, scopes: Iterable[str]) -> KeyRow | None:
        """Return the caller's key, or None if no key is needed; raise `ApiError` with 401 or 403."""
        if self.may_open and self._keys.none:
            self._check_host(headers)
            return None
        kind, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        key = self._keys.check(text.strip()) if kind.lower() == "bearer" else None
        if key is None:
            raise ApiError(
                401,
                "unauthorized",
                "a valid API key is needed; send it as Authorization: Bearer pasto_…",
                headers=CHALLENGE,
                rest=True,
            )
        if not is_permitted(key, scopes):
            raise ApiError(403, "forbidden", f"an API key with the scope {' or '.join(scopes)} is needed", rest=True)
        return key

    def _check_host(self, headers: RequestHeaders) -> None:
        """Reject requests that a foreign web page may have sent, by DNS rebinding or a cross-site form."""
        origin = headers.get(b"origin")
        if not self._ours(headers.get(b"host", b"")) or (origin and not self._ours(origin.rpartition(b"://")[2])):
            raise ApiError(
                403,
                "host_not_allowed",
                "without keys this service answers only to localhost; name this host in allowed_hosts, or create a key",
                rest=True,
            )

    def _ours(self, sent: bytes) -> bool:
        if sent in self._met:
            return True
        host = _host(sent)
        ours = is_loopback(host) or host in self._settings.allowed_host_names
        if ours and len(self._met) < 100:
            self._met.add(sent)
        return ours


def check_safe(keys: ApiKeys, settings: Settings) -> None:
    """Raise OptionError if other machines could reach the service without a key."""
    if not settings.is_loopback and not keys.usable:
        raise OptionError(
            f"--host {settings.host} can be reached from other machines, and the store holds no valid key; create one "
            "with `pasto key create` first, or listen on 127.0.0.1"
        )
    if settings.keys_required and not keys.usable:
        raise OptionError(
            "--keys-required is set and the store holds no valid key; create one with `pasto key create` first"
        )


def identify_caller(key: KeyRow | None, name: str = "") -> str:
    """Return the caller's name for the audit log: its key, if any, and the name that it gives.

    >>> identify_caller(None), identify_caller(None, "ann")
    ('local', 'ann')
    """
    if key is None:
        return name or LOCAL
    return f"{key.name} ({key.prefix}): {name}" if name else f"{key.name} ({key.prefix})"


def _host(value: bytes) -> str:
    """Return a Host header without its port, in lower case."""
    sent = value.decode("latin-1").strip().lower()
    if sent.startswith("["):
        return sent[1 : sent.find("]")] if "]" in sent else ""
    return sent.rsplit(":", 1)[0] if sent.count(":") == 1 else sent
