"""Sessions of the dashboard: a signed cookie that every node can read, and the token of its forms."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from pasto.service.api_keys import is_permitted
from pasto.service.http.auth import LOCAL, identify_caller
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ApiError, Headers
from pasto.store import KeyRow, Store

COOKIE = "pasto_session"
LIFETIME = 12 * 3600.0
"""Seconds that a login lasts."""
STRANGER = re.compile(r"[A-Za-z0-9_-]{43}")
"""The cookie of whoever has not logged in: 256 random bits."""
LOGIN = re.compile(r"(([0-9a-f]{12})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43}))\.([0-9a-f]{64})")
"""The cookie of a login: a key's public prefix, when it ends, 256 random bits, and the signature."""


@dataclass(frozen=True, slots=True)
class Session:
    """Whoever asks for a page."""

    session: str
    """The cookie's value; new where none came."""
    fresh: bool
    """Whether the cookie has to be set."""
    key: KeyRow | None
    """The key they logged in with; None for strangers, and where nobody needs one."""
    open: bool
    """Whether nobody needs a key here."""

    @property
    def may_read(self) -> bool:
        """Whether they may look at studies."""
        return self.open or (self.key is not None and is_permitted(self.key, ("read",)))

    @property
    def may_act(self) -> bool:
        """Whether they may change studies."""
        return self.open or (self.key is not None and "admin" in self.key.scopes)

    @property
    def name(self) -> str:
        """As the audit log names them."""
        return LOCAL if self.open else identify_caller(self.key)


class Sessions:
    """Logins that every node of a service understands.

    The cookie holds the key's prefix, its expiry and a random number, signed with the installation's own secret, which
    no backup holds. At every request the key is looked up, so one that is revoked or expires ends its logins with it,
    and so are the sessions that were ended by logging out. The form token is a keyed hash of the cookie, so a page of
    another site, which can read neither, cannot make one.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._secret = store.read_session_secret().encode()

    async def meet(self, call: HttpRequest) -> Session:
        """Return who sent a request; a host that is not ours is refused if nobody needs a key."""
        guard = call.context.guard
        is_open = guard.open
        if is_open:
            guard.admit(call.headers, ("admin",))
        sent = _cookie(call.header(b"cookie") or "")
        key = None if is_open else await self._key(call, sent)
        if key is None and LOGIN.fullmatch(sent):  # it ended, or was never ours
            sent = ""
        return Session(sent or secrets.token_urlsafe(32), not sent, key, is_open)

    def token(self, visitor: Session) -> str:
        """What every form of this visitor carries."""
        return self._sign("form", visitor.session)

    def check_form(self, call: HttpRequest, visitor: Session, token: str) -> None:
        """Refuse a form that is not one of ours."""
        site = call.header(b"sec-fetch-site")
        origin, host = call.header(b"origin"), call.header(b"host") or ""
        foreign = site not in (None, "same-origin", "none") or (
            origin is not None and origin.lower().partition("://")[2] != host.lower()
        )
        if foreign or visitor.fresh or not hmac.compare_digest(token.encode(), self.token(visitor).encode()):
            raise ApiError(
                403, "forged_form", "this form is out of date or was not made here; load the page again and repeat"
            )

    def log_in(self, call: HttpRequest, text: str) -> Session | None:
        """A new cookie for whoever shows a key; None where the key does not let anyone look."""
        key = call.context.keys.check(text.strip())
        if key is None or not is_permitted(key, ("read",)):
            return None
        content = f"{key.prefix}.{int(self._clock() + LIFETIME)}.{secrets.token_urlsafe(32)}"
        return Session(f"{content}.{self._sign('login', content)}", True, key, False)

    async def log_out(self, call: HttpRequest, visitor: Session) -> None:
        """End a visitor's login on every node; its cookie opens nothing any more."""
        if visitor.key is None or (login := LOGIN.fullmatch(visitor.session)) is None:
            return
        _, prefix, until, number, _ = login.groups()
        await call.run(lambda: self._store.end_session(prefix, int(until), number, self._clock()))

    async def _key(self, call: HttpRequest, sent: str) -> KeyRow | None:
        """Return the key of a login's cookie if both are valid and nobody logged out."""
        if (login := LOGIN.fullmatch(sent)) is None:
            return None
        content, prefix, until, number, signature = login.groups()
        key = call.context.keys.valid(prefix)
        same = hmac.compare_digest(signature, self._sign("login", content))
        if key is None or not same or self._clock() >= int(until):
            return None
        ended = await call.run(lambda: self._store.is_session_ended(prefix, int(until), number))
        return None if ended else key

    def _sign(self, purpose: str, text: str) -> str:
        """Return a keyed hash that only this installation can make."""
        return hmac.new(self._secret, f"{purpose} {text}".encode(), hashlib.sha256).hexdigest()


def set_cookie(call: HttpRequest, visitor: Session) -> Headers:
    """The header that sets a visitor's cookie; only encrypted connections carry it where the request came by one."""
    return _set(call, visitor.session)


def clear_cookie(call: HttpRequest) -> Headers:
    """The header that takes the cookie back."""
    return _set(call, "gone; Max-Age=0")


def _set(call: HttpRequest, value: str) -> Headers:
    secure = call.scope.get("scheme") == "https" or call.header(b"x-forwarded-proto") == "https"
    text = f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
    return ((b"set-cookie", text.encode()),)


def _cookie(header: str) -> str:
    """The first cookie of ours that is well formed."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE and (STRANGER.fullmatch(value) or LOGIN.fullmatch(value)):
            return value
    return ""
