"""Telling someone elsewhere that a breaker warned or tripped: one POST, sent beside everything else.

The address is looked up once for each message, checked, and then connected to as it is, so that no later answer of a
name server can lead somewhere else. Addresses of private networks are refused unless their name was allowed.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pasto.errors import OptionError

log = logging.getLogger("pasto.webhook")
TIMEOUT = 5.0
"""Seconds for a connection, and for its answer."""
PAUSES = (1.0, 5.0, 25.0)
"""Seconds between tries."""
MOST_WAITING = 100
UNICAST = ipaddress.ip_network("2000::/3")
"""All that is handed out of IPv6; what translates to IPv4 (64:ff9b::/96, ::/96) lies outside."""
SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "2001::/23", "2002::/16")))
"""For protocols, some clouds' metadata, and tunnels to IPv4; not every version of Python calls them special."""
Resolve = Callable[[str, int], list[str]]


def resolved(host: str, port: int) -> list[str]:
    """The addresses of a name, as the machine finds them."""
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


class Webhook:
    """Sends messages to one address, in order, from a thread of its own; `send` never waits and never raises.

    >>> Webhook("https://hooks.example.com/pasto", resolve=lambda host, port: ["10.0.0.7"]).address()
    Traceback (most recent call last):
    pasto_sdk.errors.OptionError: the webhook's host 'hooks.example.com' is at 10.0.0.7, which is no public address; ...
    >>> hosts = frozenset({"hooks.example.com"})
    >>> Webhook("https://hooks.example.com/", hosts, resolve=lambda host, port: ["10.0.0.7"]).address()
    '10.0.0.7'
    """

    def __init__(
        self,
        url: str,
        hosts: frozenset[str] = frozenset(),
        *,
        timeout: float = TIMEOUT,
        pauses: tuple[float, ...] = PAUSES,
        resolve: Resolve = resolved,
    ) -> None:
        self._url = checked_url(url, hosts)
        self._host = (self._url.hostname or "").lower()
        self._port = self._url.port or (443 if self._url.scheme == "https" else 80)
        self._allowed = hosts
        self._timeout = timeout
        self._pauses = pauses
        self._resolve = resolve
        self._waiting: Queue[bytes] = Queue(MOST_WAITING)
        self._ended = Event()
        self._thread: Thread | None = None

    def check(self) -> None:
        """Refuse an address that no message can be sent to: BadOption if its host has no address that is allowed.

        A host that is not found now may be found later, so that is logged only.
        """
        try:
            addresses = self._resolve(self._host, self._port)
        except OSError as error:
            log.warning("the webhook's host %r cannot be found now: %s", self._host, error)
            return
        self._choose(addresses)

    def start(self) -> None:
        """Begin to send; a second start does nothing."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="pasto-webhook", daemon=True)
            self._thread.start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Have a message sent; where too many wait, it is logged and left out."""
        try:
            self._waiting.put_nowait(json.dumps(message, default=str).encode())
        except (Full, ValueError):
            log.warning("a webhook message was left out: too many are waiting")

    def stop(self) -> None:
        """Let go; what is being sent is given its time."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(self._timeout * 2)
            self._thread = None

    def address(self) -> str:
        """Where to connect to now: the first address that is allowed; BadOption where none is."""
        try:
            found = self._resolve(self._host, self._port)
        except OSError as error:
            raise OptionError(f"the webhook's host {self._host!r} cannot be found: {error}") from error
        return self._choose(found)

    def _choose(self, addresses: Sequence[str]) -> str:
        for address in addresses:
            if self._host in self._allowed or _public(address):
                return address
        raise OptionError(
            f"the webhook's host {self._host!r} is at {', '.join(addresses) or 'no address'}, which is no public "
            "address; allow the host with webhook_hosts, if it is meant"
        )

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                body = self._waiting.get(timeout=0.2)
            except Empty:
                continue
            for pause in (*self._pauses, None):
                try:
                    self._post(body)
                    break
                except Exception as error:  # whatever is wrong over there must not end the thread here
                    log.warning("the webhook could not be told: %s: %s", type(error).__name__, error)
                if pause is None or self._ended.wait(pause):
                    break

    def _post(self, body: bytes) -> None:
        connection = _Straight(self._host, self._port, self.address(), self._url.scheme == "https", self._timeout)
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            headers = {"Content-Type": "application/json", "User-Agent": "pasto", "Connection": "close"}
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read(1000)
            if not 200 <= answer.status < 300:  # a redirect is not followed: it could lead anywhere
                raise HTTPException(f"it answered {answer.status}")
        finally:
            connection.close()


class _Straight(HTTPConnection):
    """A connection to one address, whatever its name would say now."""

    def __init__(self, host: str, port: int, address: str, encrypted: bool, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout)
        self._address = address
        self._context = ssl.create_default_context() if encrypted else None

    def connect(self) -> None:
        """Reach the address; the certificate must be the name's."""
        plain = socket.create_connection((self._address, self.port), self.timeout)
        try:
            self.sock = plain if self._context is None else self._context.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def checked_url(url: str, hosts: frozenset[str]) -> SplitResult:
    """A webhook's address, if it is one that may be used.

    >>> checked_url("http://hooks.example.com/x", frozenset({"other.example.com"}))
    Traceback (most recent call last):
    pasto_sdk.errors.OptionError: the webhook's host 'hooks.example.com' is not among webhook_hosts (other.example.com)
    """
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise OptionError(f"a webhook is an address such as https://hooks.example.com/pasto, got {url!r}") from error
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise OptionError(f"a webhook is an address such as https://hooks.example.com/pasto, got {url!r}")
    if hosts and host not in hosts:
        raise OptionError(f"the webhook's host {host!r} is not among webhook_hosts ({', '.join(sorted(hosts))})")
    return parts


def _public(address: str) -> bool:
    """Whether an address is one of the open internet, and none that stands for another.

    >>> [_public(address) for address in ("93.184.216.34", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::")]
    [True, False, False, False]
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    outside = isinstance(found, ipaddress.IPv4Address) or found in UNICAST
    return outside and found.is_global and not found.is_multicast and not any(found in each for each in SPECIAL)
