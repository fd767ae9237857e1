"""Sessions of the dashboard: a signed cookie that every node can verify, and a token for its forms.

Starlette's `SessionMiddleware` signs a cookie too, but its sessions outlive their API key, and it has no form tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from pasto.service.http.auth import (
    ANONYMOUS,
    Caller,
    identify_caller,
    is_cross_site,
    permits_caller,
)
from pasto.service.http.proxy_sign_in import Person
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ApiError, Headers
from pasto.service.scopes import permits_somewhere
from pasto.store import KeyRow, Store

COOKIE = "pasto_session"
LOGIN_SECONDS = 12 * 3600.0
"""Seconds that a login lasts."""
ANONYMOUS_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")
"""Cookie of a visitor who is not logged in: 256 random bits."""
LOGIN_COOKIE = re.compile(r"(([0-9a-f]{12})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43}))\.([0-9a-f]{64})")
"""Cookie of a login: the key's public prefix, the expiry, 256 random bits, and the signature."""


@dataclass(frozen=True, slots=True)
class Session:
    """Session of a visitor."""

    cookie: str
    """Value of the cookie; a new one if the request has none."""
    is_new: bool
    """Whether the cookie has to be set."""
    caller: Caller
    """Key of the login, or the person whom the proxy signed in; ANONYMOUS without either, None if no key is needed."""
    sign_out: str = ""
    """Address that ends the session of the proxy, or an empty text."""

    @property
    def is_open(self) -> bool:
        """True if the service needs no keys."""
        return self.caller is None

    @property
    def person(self) -> Person | None:
        """Person whom the proxy signed in."""
        return self.caller if isinstance(self.caller, Person) and self.caller is not ANONYMOUS else None

    @property
    def may_read(self) -> bool:
        """True if the visitor may read any study."""
        return permits_caller(self.caller, ("read",), somewhere=True)

    @property
    def may_create(self) -> bool:
        """True if the visitor may create a study, of any or of certain names."""
        return permits_caller(self.caller, ("admin",), somewhere=True)

    @property
    def name(self) -> str:
        """Name of the visitor in the audit log."""
        return identify_caller(self.caller)

    def may_read_study(self, study: str) -> bool:
        """Return whether the visitor may read a study."""
        return permits_caller(self.caller, ("read",), study)

    def may_change_study(self, study: str) -> bool:
        """Return whether the visitor may change a study."""
        return permits_caller(self.caller, ("admin",), study)


class Sessions:
    """Sessions that are valid on every node of a service.

    The cookie holds the key's prefix, the expiry and a random number, signed with the secret of the installation.
    Backups do not contain this secret. Each request checks that the key is valid and that the session was not ended by
    logging out. The form token is a keyed hash of the cookie, so that other sites cannot forge a form.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._secret = store.read_session_secret().encode()

    async def get_session(self, call: HttpRequest) -> Session:
        """Return the session of a request; raise `ApiError` for a foreign host if no keys are needed.

        A person whom the proxy names comes before a login with a key.
        """
        guard = call.context.authenticator
        caller: Caller = None
        cookie = _read_cookie(call.header(b"cookie") or "")
        if guard.open:
            guard.admit(call.headers, ("admin",))
        else:
            caller = guard.find_person(call.headers, call.scope) or await self._login_key(call, cookie) or ANONYMOUS
        if not isinstance(caller, KeyRow) and LOGIN_COOKIE.fullmatch(cookie):  # expired, ended, forged or not used
            cookie = ""
        sign_out = guard.sign_out if isinstance(caller, Person) else ""
        return Session(cookie or secrets.token_urlsafe(32), not cookie, caller, sign_out)

    def form_token(self, session: Session) -> str:
        """Return the token that the forms of this session contain."""
        person = session.person
        return self._sign("form", session.cookie if person is None else f"{session.cookie} {person.name}")

    def check_form(self, call: HttpRequest, session: Session, token: str) -> None:
        """Raise `ApiError` for a form that was not rendered for this session."""
        is_foreign = is_cross_site(call.headers)
        if is_foreign or session.is_new or not hmac.compare_digest(token.encode(), self.form_token(session).encode()):
            raise ApiError(
                403, "forged_form", "this form is too old or was not made by this service; reload the page and repeat"
            )

    def log_in(self, call: HttpRequest, text: str) -> Session | None:
        """Return a new session for a key; None if the key is not valid or may not read studies."""
        key = call.context.keys.check(text.strip())
        if key is None or not permits_somewhere(key.scopes, ("read",)):
            return None
        content = f"{key.prefix}.{int(self._clock() + LOGIN_SECONDS)}.{secrets.token_urlsafe(32)}"
        return Session(f"{content}.{self._sign('login', content)}", True, key)

    async def log_out(self, call: HttpRequest, session: Session) -> None:
        """End a login on every node."""
        if not isinstance(session.caller, KeyRow) or (login := LOGIN_COOKIE.fullmatch(session.cookie)) is None:
            return
        _, prefix, until, number, _ = login.groups()
        await call.run(lambda: self._store.end_session(prefix, int(until), number, self._clock()))

    async def _login_key(self, call: HttpRequest, cookie: str) -> KeyRow | None:
        """Return the key of a login cookie, if both are valid and the session was not ended."""
        if (login := LOGIN_COOKIE.fullmatch(cookie)) is None:
            return None
        content, prefix, until, number, signature = login.groups()
        key = call.context.keys.valid(prefix)
        is_signed = hmac.compare_digest(signature, self._sign("login", content))
        if key is None or not is_signed or self._clock() >= int(until):
            return None
        is_ended = await call.run(lambda: self._store.is_session_ended(prefix, int(until), number))
        return None if is_ended else key

    def _sign(self, purpose: str, text: str) -> str:
        """Return a keyed hash that only this installation can compute."""
        return hmac.new(self._secret, f"{purpose} {text}".encode(), hashlib.sha256).hexdigest()


def set_cookie(call: HttpRequest, session: Session) -> Headers:
    """Return the header that sets a session's cookie; it is Secure if the request came over HTTPS."""
    return _cookie_header(call, session.cookie)


def clear_cookie(call: HttpRequest) -> Headers:
    """Return the header that deletes the cookie."""
    return _cookie_header(call, "gone; Max-Age=0")


def _cookie_header(call: HttpRequest, value: str) -> Headers:
    secure = call.scope.get("scheme") == "https" or call.header(b"x-forwarded-proto") == "https"
    text = f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
    return ((b"set-cookie", text.encode()),)


def _read_cookie(header: str) -> str:
    """Return the first well-formed session cookie."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE and (ANONYMOUS_COOKIE.fullmatch(value) or LOGIN_COOKIE.fullmatch(value)):
            return value
    return ""
