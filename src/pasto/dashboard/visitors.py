"""Who is at the browser: sessions behind a cookie, and the token that tells our own forms from others'."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pasto.service.http.answers import Headers, Refused
from pasto.service.http.calls import Call
from pasto.service.http.guard import LOCAL, who
from pasto.service.keys import permits
from pasto.store import KeyRow

COOKIE = "pasto_session"
LIFETIME = 12 * 3600.0
"""Seconds that a login lasts."""
MOST = 10_000
"""Logins that are kept; the oldest are let go first."""
TOKEN = 43
"""Characters of a cookie: 256 random bits."""


@dataclass(frozen=True, slots=True)
class Visitor:
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
        return self.open or (self.key is not None and permits(self.key, ("read",)))

    @property
    def may_act(self) -> bool:
        """Whether they may change studies."""
        return self.open or (self.key is not None and "admin" in self.key.scopes)

    @property
    def name(self) -> str:
        """As the audit log names them."""
        return LOCAL if self.open else who(self.key)


class Visitors:
    """The sessions of one process.

    A cookie is a random number. What it stands for is kept here, in memory, under the number's digest; a key that is
    revoked or expires ends its sessions. The form token is a keyed hash of the cookie, so a page of another site, which
    can read neither, cannot make one.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._logins: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def meet(self, call: Call) -> Visitor:
        """Who sent a request; a host that is not ours is refused where nobody needs a key."""
        guard = call.context.guard
        is_open = guard.open
        if is_open:
            guard.admit(call.headers, ("admin",))
        sent = _cookie(call.header(b"cookie") or "")
        key = None
        if sent and not is_open and (login := self._logins.get(_digest(sent))):
            text, until = login
            key = call.context.keys.check(text) if self._clock() < until else None
            if key is None:
                self._logins.pop(_digest(sent), None)
        return Visitor(sent or secrets.token_urlsafe(32), not sent, key, is_open)

    def token(self, visitor: Visitor) -> str:
        """What every form of this visitor carries."""
        return hmac.new(self._secret, visitor.session.encode(), hashlib.sha256).hexdigest()

    def check_form(self, call: Call, visitor: Visitor, token: str) -> None:
        """Refuse a form that is not one of ours."""
        site = call.header(b"sec-fetch-site")
        origin, host = call.header(b"origin"), call.header(b"host") or ""
        foreign = site not in (None, "same-origin", "none") or (
            origin is not None and origin.lower().partition("://")[2] != host.lower()
        )
        if foreign or visitor.fresh or not hmac.compare_digest(token.encode(), self.token(visitor).encode()):
            raise Refused(
                403, "forged_form", "this form is out of date or was not made here; load the page again and repeat"
            )

    def log_in(self, call: Call, text: str) -> Visitor | None:
        """A new session for a key, under a new cookie; None where the key does not let anyone look."""
        key = call.context.keys.check(text.strip())
        if key is None or not permits(key, ("read",)):
            return None
        session = secrets.token_urlsafe(32)
        self._logins[_digest(session)] = text.strip(), self._clock() + LIFETIME
        while len(self._logins) > MOST:
            self._logins.popitem(last=False)
        return Visitor(session, True, key, False)

    def log_out(self, visitor: Visitor) -> None:
        """End a session."""
        self._logins.pop(_digest(visitor.session), None)


def cookie(call: Call, visitor: Visitor) -> Headers:
    """The header that sets a visitor's cookie; only encrypted connections carry it where the request came by one."""
    secure = call.scope.get("scheme") == "https" or call.header(b"x-forwarded-proto") == "https"
    value = f"{COOKIE}={visitor.session}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
    return ((b"set-cookie", value.encode()),)


def _cookie(header: str) -> str:
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if (
            name == COOKIE
            and len(value) == TOKEN
            and value.isascii()
            and value.replace("-", "").replace("_", "").isalnum()
        ):
            return value
    return ""


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()
