"""Authentication: API keys, people whom a trusted proxy signed in, or any local caller while neither is set up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pasto.errors import LayerShareError, OptionError, UnknownStudyError
from pasto.service.api_keys import ApiKeys
from pasto.service.http.body import RequestHeaders
from pasto.service.http.prometheus import Gauge
from pasto.service.http.proxy_sign_in import PERSON_SCOPES, Person, read_sign_in
from pasto.service.http.responses import ApiError
from pasto.service.scopes import permits, permits_somewhere, reaches
from pasto.service.settings import Settings, is_loopback
from pasto.store import KeyRow

CHALLENGE = ((b"www-authenticate", b'Bearer realm="pasto"'),)
LOCAL = "local"
"""Caller's name in the audit log if no key is needed and the caller gives no name."""
KEY_START = b"pasto_"
"""Start of an API key. In a request with one, the key alone counts."""

Caller = KeyRow | Person | None
"""Holder of the scopes of a request; None if everyone on this machine may do everything."""

ANONYMOUS = Person("anonymous", ())
"""Caller of a route that is open to everyone; may do nothing else."""


class Authenticator:
    """Authenticator of requests. A rejection does not reveal if the requested object exists."""

    def __init__(self, keys: ApiKeys, settings: Settings) -> None:
        self._keys = keys
        self._settings = settings
        self._met: set[bytes] = set()
        self._sign_in = read_sign_in(settings)
        self.may_open = settings.is_loopback and not settings.keys_required and self._sign_in is None

    @property
    def open(self) -> bool:
        """True if callers need no key."""
        return self.may_open and self._keys.none

    @property
    def sign_out(self) -> str:
        """Address that ends the session of the proxy, or an empty text."""
        return "" if self._sign_in is None else self._sign_in.sign_out

    def admit(
        self,
        headers: RequestHeaders,
        scopes: Collection[str],
        study: str = "",
        *,
        somewhere: bool = False,
        request: Mapping[str, Any] | None = None,
    ) -> Caller:
        """Return the caller, or None if no key is needed; raise `ApiError` with 400, 401, 403 or 404.

        The caller needs one of the scopes: for `study`, in any study if `somewhere`, or else for all studies. `request`
        is the ASGI scope; without it, only keys are admitted.
        """
        if self.may_open and self._keys.none:
            self._check_host(headers)
            return None
        caller = self._find_key(headers) or (None if request is None else self.find_person(headers, request))
        if caller is None:
            raise ApiError(
                401,
                "unauthorized",
                "a valid API key is needed; send it as Authorization: Bearer pasto_…",
                headers=CHALLENGE,
                rest=True,
            )
        if isinstance(caller, Person):
            check_role(caller)
            if request is not None and request["method"] not in ("GET", "HEAD"):
                check_same_site(headers)
        if permits_caller(caller, scopes, study, somewhere=somewhere):
            return caller
        if study and not reaches(caller.scopes, study):
            unknown = str(UnknownStudyError.named(study))
            raise ApiError(404, "unknown_study", unknown, rest=True)
        held = "an API key" if isinstance(caller, KeyRow) or not set(scopes) & {*PERSON_SCOPES} else "a role"
        raise ApiError(403, "forbidden", f"{held} with the scope {' or '.join(scopes)} is needed", rest=True)

    def find_person(self, headers: RequestHeaders, request: Mapping[str, Any]) -> Person | None:
        """Return the person whom the proxy names, unless the request has an API key, which alone counts."""
        if self._sign_in is None or KEY_START in headers.get(b"authorization", b""):
            return None
        return self._sign_in.identify(request.get("client"), request["headers"])

    def read_metrics(self) -> Iterator[Gauge]:
        """Yield the gauges of the sign-in through a proxy, if there is one."""
        if self._sign_in is not None:
            yield from self._sign_in.read_metrics()

    def _find_key(self, headers: RequestHeaders) -> KeyRow | None:
        kind, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        return self._keys.check(text.strip()) if kind.lower() == "bearer" else None

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


def permits_caller(caller: Caller, scopes: Collection[str], study: str = "", *, somewhere: bool = False) -> bool:
    """Return whether a caller has one of the scopes; see `Authenticator.admit`. People never assign or send events."""
    if caller is None:
        return True
    if isinstance(caller, Person) and not any(scope in PERSON_SCOPES for scope in scopes):
        return False
    return permits_somewhere(caller.scopes, scopes) if somewhere else permits(caller.scopes, scopes, study)


def hide_studies(error: Exception, caller: Caller) -> Exception:
    """Return an error as a caller may see it: without the names of studies that the caller may not read."""
    if isinstance(error, LayerShareError) and not permits_caller(caller, ("read",)):
        return error.anonymous
    return error


def check_role(person: Person) -> None:
    """Raise `ApiError` for a person none of whose groups has a role."""
    if not person.scopes:
        raise ApiError(403, "no_role", no_role_text(person), rest=True)


def no_role_text(person: Person) -> str:
    """Return the message for a person none of whose groups has a role."""
    return (
        f"{person.name} is signed in, but none of their groups has a role here; ask the operator of this service to "
        "give one of the groups a role in proxy_roles"
    )


def is_cross_site(headers: RequestHeaders) -> bool:
    """Return whether a page of another site sent a request.

    >>> is_cross_site({b"origin": b"https://evil.example", b"host": b"pasto.example"})
    True
    """
    site, origin, host = headers.get(b"sec-fetch-site"), headers.get(b"origin"), headers.get(b"host", b"")
    return site not in (None, b"same-origin", b"none") or (
        origin is not None and origin.lower().partition(b"://")[2] != host.lower()
    )


def check_same_site(headers: RequestHeaders) -> None:
    """Raise `ApiError` for a change that a page of another site requests in the name of a person who is signed in."""
    if is_cross_site(headers):
        raise ApiError(
            403,
            "cross_site",
            "a page of another site cannot change anything here; the proxy must pass on the header Host unchanged",
            rest=True,
        )


def check_safe(keys: ApiKeys, settings: Settings) -> None:
    """Raise OptionError if other machines could reach the service without a key or a sign-in."""
    if read_sign_in(settings) is not None:
        return
    if not settings.is_loopback and not keys.usable:
        raise OptionError(
            f"--host {settings.host} can be reached from other machines, and the store holds no valid key; create one "
            "with `pasto key create` first, or listen on 127.0.0.1"
        )
    if settings.keys_required and not keys.usable:
        raise OptionError(
            "--keys-required is set and the store holds no valid key; create one with `pasto key create` first"
        )


def identify_caller(caller: Caller, name: str = "") -> str:
    """Return the caller's name for the audit log: its key, if any, and the name that it gives; or the person.

    >>> identify_caller(None), identify_caller(None, "ann"), identify_caller(Person("ann@example.org", ()), "bob")
    ('local', 'ann', 'ann@example.org')
    """
    if caller is None:
        return name or LOCAL
    if isinstance(caller, Person):
        return caller.name
    return f"{caller.name} ({caller.prefix}): {name}" if name else f"{caller.name} ({caller.prefix})"


def _host(value: bytes) -> str:
    """Return a Host header without its port, in lower case."""
    sent = value.decode("latin-1").strip().lower()
    if sent.startswith("["):
        return sent[1 : sent.find("]")] if "]" in sent else ""
    return sent.rsplit(":", 1)[0] if sent.count(":") == 1 else sent
