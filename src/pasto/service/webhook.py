"""Webhook that reports events of studies, such as a tripped guardrail, with one POST per message.

The host is resolved once per message, and the connection goes to the checked address, so that a later DNS answer
cannot redirect it. Private addresses are rejected unless the host is allowed in the settings.
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
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pasto.errors import OptionError
from pasto_sdk.periodic_thread import PeriodicThread

log = logging.getLogger("pasto.webhook")
TIMEOUT_SECONDS = 5.0
"""Seconds for connecting, and for the response."""
RETRY_SECONDS = (1.0, 5.0, 25.0)
"""Seconds between attempts."""
IDLE_SECONDS = 60.0
"""Seconds between two looks at an empty queue; a new message ends the wait."""
MAX_QUEUED_MESSAGES = 100
UNICAST = ipaddress.ip_network("2000::/3")
"""Global unicast addresses of IPv6, without translations to IPv4 (64:ff9b::/96, ::/96)."""
SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "2001::/23", "2002::/16")))
"""Protocol assignments, metadata of some clouds, and tunnels to IPv4; some versions of Python call them global."""
Resolve = Callable[[str, int], list[str]]


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the system resolves them."""
    return list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


class Webhook:
    """Sender of messages to one URL, in order, in a thread of its own. `send` does not block or raise.

    >>> Webhook("https://hooks.example.com/pasto", resolve=lambda host, port: ["10.0.0.7"]).address()
    Traceback (most recent call last):
    pasto_sdk.errors.OptionError: the webhook's host 'hooks.example.com' is at 10.0.0.7, which is not public; ...
    >>> hosts = frozenset({"hooks.example.com"})
    >>> Webhook("https://hooks.example.com/", hosts, resolve=lambda host, port: ["10.0.0.7"]).address()
    '10.0.0.7'
    """

    def __init__(
        self,
        url: str,
        hosts: frozenset[str] = frozenset(),
        *,
        timeout: float = TIMEOUT_SECONDS,
        retry_seconds: tuple[float, ...] = RETRY_SECONDS,
        resolve: Resolve = resolve_host,
    ) -> None:
        self._url = check_url(url, hosts)
        self._host = (self._url.hostname or "").lower()
        self._port = self._url.port or (443 if self._url.scheme == "https" else 80)
        self._allowed = hosts
        self._timeout = timeout
        self._retry_seconds = retry_seconds
        self._resolve = resolve
        self._queue: Queue[bytes] = Queue(MAX_QUEUED_MESSAGES)
        self._unsent: bytes | None = None
        """Message that was taken from the queue and is not sent yet."""
        self._failures = 0
        """Failed attempts of that message."""
        self._next_attempt = 0.0
        self._thread = PeriodicThread("webhook", self._send_messages, IDLE_SECONDS, log.warning)

    def check(self) -> None:
        """Raise OptionError if the host has no allowed address.

        A host that cannot be resolved now may be resolved later, so that is only logged.
        """
        try:
            addresses = self._resolve(self._host, self._port)
        except OSError as error:
            log.warning("the webhook's host %r cannot be resolved now: %s", self._host, error)
            return
        self._choose(addresses)

    def start(self) -> None:
        """Start the thread; a second start does nothing."""
        self._thread.start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message; if the queue is full, log that and drop the message."""
        try:
            self._queue.put_nowait(json.dumps(message, default=str).encode())
        except (Full, ValueError):
            log.warning("a webhook message was dropped: the queue is full")
        self._thread.wake()

    def stop(self) -> None:
        """Stop the thread; a message that is being sent may be finished."""
        self._thread.stop(self._timeout * 2)

    def address(self) -> str:
        """Return the first allowed address of the host; raise OptionError if there is none."""
        try:
            addresses = self._resolve(self._host, self._port)
        except OSError as error:
            raise OptionError(f"the webhook's host {self._host!r} cannot be resolved: {error}") from error
        return self._choose(addresses)

    def _choose(self, addresses: Sequence[str]) -> str:
        for address in addresses:
            if self._host in self._allowed or _is_public(address):
                return address
        raise OptionError(
            f"the webhook's host {self._host!r} is at {', '.join(addresses) or 'no address'}, which is not public; "
            "if it is meant, allow the host with webhook_hosts"
        )

    def _send_messages(self) -> float | None:
        """Send the queued messages in order; return the seconds until the next attempt after a failure."""
        while not self._thread.is_stopping:
            if (seconds := self._next_attempt - monotonic()) > 0:  # woken by a later message
                return seconds
            if self._unsent is None:
                try:
                    self._unsent = self._queue.get_nowait()
                except Empty:
                    return None
            try:
                self._post(self._unsent)
            except Exception as error:  # no failure of the receiver ends the thread
                log.warning("the webhook message could not be sent: %s: %s", type(error).__name__, error)
                if self._failures < len(self._retry_seconds):
                    self._next_attempt = monotonic() + self._retry_seconds[self._failures]
                    self._failures += 1
                    continue
            self._unsent, self._failures = None, 0
        return None

    def _post(self, body: bytes) -> None:
        connection = _FixedAddressConnection(
            self._host, self._port, self.address(), self._url.scheme == "https", self._timeout
        )
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            headers = {"Content-Type": "application/json", "User-Agent": "pasto", "Connection": "close"}
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            response.read(1000)
            if not 200 <= response.status < 300:  # redirects are not followed, because they could lead anywhere
                raise HTTPException(f"the receiver answered {response.status}")
        finally:
            connection.close()


class _FixedAddressConnection(HTTPConnection):
    """HTTP connection to a fixed address, without resolving the host again."""

    def __init__(self, host: str, port: int, address: str, encrypted: bool, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout)
        self._address = address
        self._context = ssl.create_default_context() if encrypted else None

    def connect(self) -> None:
        """Connect to the address; the certificate must be valid for the host."""
        plain = socket.create_connection((self._address, self.port), self.timeout)
        try:
            self.sock = plain if self._context is None else self._context.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def check_url(url: str, hosts: frozenset[str]) -> SplitResult:
    """Return the parts of a webhook's URL; raise OptionError if it is not allowed.

    >>> check_url("http://hooks.example.com/x", frozenset({"other.example.com"}))
    Traceback (most recent call last):
    pasto_sdk.errors.OptionError: the webhook's host 'hooks.example.com' is not among webhook_hosts (other.example.com)
    """
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise OptionError(f"a webhook must be a URL such as https://hooks.example.com/pasto, got {url!r}") from error
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise OptionError(f"a webhook must be a URL such as https://hooks.example.com/pasto, got {url!r}")
    if hosts and host not in hosts:
        raise OptionError(f"the webhook's host {host!r} is not among webhook_hosts ({', '.join(sorted(hosts))})")
    return parts


def _is_public(address: str) -> bool:
    """Return whether an address is public and does not translate to another one.

    >>> [_is_public(address) for address in ("93.184.216.34", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::")]
    [True, False, False, False]
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    is_assigned = isinstance(parsed, ipaddress.IPv4Address) or parsed in UNICAST
    is_special = any(parsed in network for network in SPECIAL)
    return is_assigned and parsed.is_global and not parsed.is_multicast and not is_special
