"""Sign-in of people through a trusted proxy, which names the person and their groups in headers.

A header counts only if the connection itself comes from an address of the proxy. X-Forwarded-For plays no part.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pasto.errors import OptionError
from pasto.service.http.prometheus import Gauge
from pasto.service.http.responses import ApiError
from pasto.service.scopes import is_scope
from pasto.service.settings import Settings

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

log = logging.getLogger("pasto.sign_in")

ANY_ADDRESS = "any"
"""Word for `proxy_addresses` that trusts every address."""
MIN_PREFIX_BITS = {4: 8, 6: 16}
"""Bits of the widest network that can be trusted without that word, by IP version."""
EVERYONE = "everyone"
"""Group that every person is in."""
PERSON_SCOPES = ("admin", "read")
"""Scopes of people. Assignments and events need a key, which the accounting of senders names."""
MAX_NAME_CHARACTERS = 254
MAX_GROUPS_BYTES = 16_384
MAX_LOGGED_ADDRESSES = 100
"""Addresses for which an ignored header is logged, each once."""
RESERVED_NAMES = frozenset({"local", "scheduler", "guardrail monitor", "webhooks", "anonymous"})
"""Names that the audit log gives to PASTO itself."""
RESERVED_HEADERS = frozenset({"authorization", "cookie", "host", "origin", "pasto-who", "x-forwarded-for"})
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class Person:
    """Person whom a trusted proxy signed in."""

    name: str
    """Name for the audit log, as the proxy sent it."""
    scopes: tuple[str, ...]
    """Scopes of the person's groups; empty if none of them has a role."""


class ProxySignIn:
    """Reader of the headers in which a trusted proxy names a person and their groups.

    >>> settings = Settings(proxy_user_header="X-Forwarded-User", proxy_addresses="10.0.0.0/24",
    ...     proxy_roles="feed-team=admin:feed, everyone=read")
    >>> sign_in = ProxySignIn(settings)
    >>> headers = [(b"x-forwarded-user", b"ann@example.org"), (b"x-forwarded-groups", b"feed-team,search")]
    >>> sign_in.identify(("10.0.0.7", 50112), headers)
    Person(name='ann@example.org', scopes=('read', 'admin:feed'))
    >>> sign_in.identify(("10.0.1.7", 50112), headers), sign_in.ignored
    (None, 1)
    """

    def __init__(self, settings: Settings) -> None:
        self._header = _read_header("proxy_user_header", settings.proxy_user_header)
        self._groups_header = _read_header("proxy_groups_header", settings.proxy_groups_header)
        if self._header == self._groups_header:
            raise OptionError("proxy_user_header and proxy_groups_header are the same; name two headers")
        self._networks = read_networks(settings.proxy_addresses)
        self._roles = read_roles(settings.proxy_roles)
        self.sign_out = _read_sign_out(settings.proxy_sign_out)
        """Address that ends the session of the proxy, or an empty text."""
        self.ignored = 0
        """Requests whose header was ignored, because they came from another address."""
        self._logged: set[str] = set()

    def identify(self, peer: tuple[str, int] | None, headers: Iterable[tuple[bytes, bytes]]) -> Person | None:
        """Return the person of a request, or None; `peer` is the address at the other end of the connection.

        Raise `ApiError` if the proxy sent a header twice, or one that cannot be a name or a list of groups.
        """
        users, groups = [], []
        for header, value in headers:
            if header == self._header:
                users.append(value)
            elif header == self._groups_header:
                groups.append(value)
        if not users:
            return None
        address = "" if peer is None else peer[0]
        if not self._is_trusted(address):
            self._count_ignored(address)
            return None
        if len(users) > 1 or len(groups) > 1:
            raise _identity_error("the proxy sent a sign-in header twice; it must remove those of callers")
        name = _read_name(users[0])
        return Person(name, self._find_scopes(groups[0] if groups else b""))

    def read_metrics(self) -> Iterator[Gauge]:
        """Yield the gauge of this sign-in."""
        meaning = "Requests whose sign-in header was ignored, because they did not come from the proxy."
        yield "pasto_proxy_header_ignored", meaning, self.ignored, None

    def _is_trusted(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped
        return any(peer in network for network in self._networks)

    def _count_ignored(self, address: str) -> None:
        self.ignored += 1
        if address not in self._logged and len(self._logged) < MAX_LOGGED_ADDRESSES:
            self._logged.add(address)
            log.warning(
                "the header %s from %s is ignored: the address is not one of proxy_addresses",
                self._header.decode(),
                address or "an unknown address",
            )

    def _find_scopes(self, sent: bytes) -> tuple[str, ...]:
        if len(sent) > MAX_GROUPS_BYTES:
            raise _identity_error(f"the groups of a person may have {MAX_GROUPS_BYTES} bytes, got {len(sent)}")
        groups = {group.strip() for group in _decode(sent).split(",")}
        scopes = dict.fromkeys(self._roles.get(EVERYONE, ()))
        for group, role in self._roles.items():
            if group in groups:
                scopes.update(dict.fromkeys(role))
        return tuple(scopes)


def read_sign_in(settings: Settings) -> ProxySignIn | None:
    """Return the sign-in that the settings describe; None if it is off. Raise OptionError for unsafe settings."""
    if settings.proxy_user_header:
        return ProxySignIn(settings)
    for name in ("proxy_addresses", "proxy_roles", "proxy_sign_out"):
        if getattr(settings, name):
            raise OptionError(
                f"{name} is set without proxy_user_header; name the header in which the proxy sends the person, such "
                "as X-Forwarded-User, or leave it out"
            )
    return None


def read_networks(text: str) -> tuple[Network, ...]:
    """Return the trusted networks of a setting.

    >>> read_networks("10.0.0.7, fd00::/64")
    (IPv4Network('10.0.0.7/32'), IPv6Network('fd00::/64'))
    >>> read_networks("0.0.0.0/0")
    Traceback (most recent call last):
    pasto_sdk.errors.OptionError: proxy_addresses trusts '0.0.0.0/0', from which anyone could sign in as anyone; ...
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise OptionError(
            "proxy_user_header is set and proxy_addresses is empty; list the addresses of the proxy, such as "
            "127.0.0.1 or 10.0.0.0/24"
        )
    if parts == [ANY_ADDRESS]:
        return ipaddress.IPv4Network("0.0.0.0/0"), ipaddress.IPv6Network("::/0")
    networks = []
    for part in parts:
        try:
            network = ipaddress.ip_network(part)
        except ValueError as error:
            raise OptionError(
                f"proxy_addresses needs addresses or networks such as 10.0.0.7 or 10.0.0.0/24, got {part!r}: {error}"
            ) from None
        if network.prefixlen < MIN_PREFIX_BITS[network.version]:
            raise OptionError(
                f"proxy_addresses trusts {part!r}, from which anyone could sign in as anyone; list the addresses of "
                f"the proxy, or write {ANY_ADDRESS} alone if a firewall lets only the proxy through"
            )
        networks.append(network)
    return tuple(networks)


def read_roles(text: str) -> Mapping[str, tuple[str, ...]]:
    """Return the scopes of each group of a setting.

    >>> read_roles("ops=admin, feed-team=admin:feed, feed-team=read:shop")
    {'ops': ('admin',), 'feed-team': ('admin:feed', 'read:shop')}
    """
    roles: dict[str, tuple[str, ...]] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        group, _, scope = (piece.strip() for piece in part.rpartition("="))
        if not group or not is_scope(scope) or scope.partition(":")[0] not in PERSON_SCOPES:
            raise OptionError(
                f"proxy_roles needs GROUP=SCOPE with the scope {' or '.join(PERSON_SCOPES)}, alone or with a study, "
                f"such as feed-team=admin:feed; got {part!r}"
            )
        roles[group] = (*roles.get(group, ()), scope)
    if not roles:
        raise OptionError(
            "proxy_user_header is set and proxy_roles is empty, so no person could do anything; give a role to a "
            f"group, such as pasto-admins=admin, or to all who sign in, such as {EVERYONE}=read"
        )
    return roles


def _read_header(setting: str, name: str) -> bytes:
    if _HEADER.fullmatch(name) is None or name.lower() in RESERVED_HEADERS:
        raise OptionError(
            f"{setting} needs the name of a header that only the proxy sets, of letters, digits and -, such as "
            f"X-Forwarded-User; got {name!r}"
        )
    return name.lower().encode()


def _read_sign_out(text: str) -> str:
    is_local = text.startswith("/") and not text.startswith("//") and "\\" not in text
    if text and not (text.isprintable() and " " not in text and (is_local or text.startswith("https://"))):
        raise OptionError(
            f"proxy_sign_out needs a path such as /oauth2/sign_out, or an address with https://; got {text!r}"
        )
    return text


def _read_name(sent: bytes) -> str:
    name = _decode(sent).strip()
    if not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise _identity_error(f"the name of a person must have 1 to {MAX_NAME_CHARACTERS} characters, got {len(name)}")
    if name.lower() in RESERVED_NAMES or "(" in name or ")" in name:
        raise _identity_error(f"the name {name!r} could be mistaken for PASTO or for a key in the audit log")
    return name


def _decode(sent: bytes) -> str:
    try:
        text = sent.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not text.isprintable():
        raise _identity_error("a sign-in header must be printable text in UTF-8")
    return text


def _identity_error(problem: str) -> ApiError:
    return ApiError(400, "bad_identity", f"{problem}; correct the settings of the proxy", rest=True)
