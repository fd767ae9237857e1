"""Webhook: an address that gets messages about studies, the POST that delivers one, and the file that lists them.

The host is resolved once per message, and the connection goes to the checked address, so that a later DNS answer
cannot redirect it. Private addresses are rejected unless the host is allowed in the settings. Messages are signed as
the Standard Webhooks specify (https://www.standardwebhooks.com), whose libraries verify them in many languages.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import logging
import os
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Annotated, Final, Literal, get_args
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Meta, Struct

from pasto.errors import OptionError, StudyFileError
from pasto.service.settings import Settings
from pasto.service.study_file.loader import read_document

log = logging.getLogger("pasto.webhook")
TIMEOUT_SECONDS = 5.0
"""Seconds for connecting, and for the response."""
UNICAST = ipaddress.ip_network("2000::/3")
"""Global unicast addresses of IPv6, without translations to IPv4 (64:ff9b::/96, ::/96)."""
SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "2001::/23", "2002::/16")))
"""Protocol assignments, metadata of some clouds, and tunnels to IPv4; some versions of Python call them global."""
Resolve = Callable[[str, int], list[str]]

EventName = Literal[
    "round_closed",
    "guardrail_warning",
    "guardrail_stop",
    "ramp_changed",
    "confirmation_decided",
    "source_failing",
    "sample_ratio_mismatch",
    "round_held",
    "sender_departure",
]
EVENTS: Final[Mapping[EventName, str]] = {
    "round_closed": "a round was closed, by the scheduler or by a person",
    "guardrail_warning": "a guardrail may soon reach its stop level",
    "guardrail_stop": "a guardrail reached its stop level, and the study was paused",
    "ramp_changed": "the verdicts on the guardrails moved the ramp of a study one step forward or back",
    "confirmation_decided": "a confirmation was judged: confirmed, failed, or inconclusive at its end",
    "source_failing": "a study's own tables could not be read",
    "sample_ratio_mismatch": "the units of candidates or arms do not match their shares",
    "round_held": "a round is held back because events seem to be missing",
    "sender_departure": "units of one key or source differ from those of others",
}
"""Events that webhooks report."""
TEST_EVENT: Final = "test"
"""Event of the message that `pasto webhook test` sends."""
DEFAULT_EVENTS: Final = tuple(event for event in EVENTS if event != "round_closed")
"""Events of a webhook that names none: everything except the rounds."""
DEFAULT_NAME = "default"
"""Name of the webhook that the setting `webhook` makes."""
MAX_WEBHOOKS = 100
MIN_SECRET_BYTES: Final = 24
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 -- the start of every secret


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the system resolves them."""
    return list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


@dataclass(frozen=True, slots=True)
class WebhookSpec:
    """Webhook as it is configured: where it goes, and what it reports.

    >>> spec = WebhookSpec("chat", "https://hooks.example.com/x", events=("guardrail_stop",), studies=("feed-*",))
    >>> spec.wants("guardrail_stop", "feed-home"), spec.wants("guardrail_stop", "shop")
    (True, False)
    """

    name: str
    url: str = field(repr=False)  # the address of a chat's webhook is a secret
    events: tuple[str, ...] = DEFAULT_EVENTS
    studies: tuple[str, ...] = ("*",)
    """Names or patterns of studies, as a shell has them."""
    format: Literal["json", "slack"] = "json"
    secret: str | None = field(default=None, repr=False)

    def wants(self, event: str, study: str) -> bool:
        """Return whether the webhook reports an event of a study."""
        return event in self.events and any(fnmatchcase(study, pattern) for pattern in self.studies)


class Webhook:
    """Webhook that can be reached: it checks its address and posts messages.

    >>> Webhook(WebhookSpec("ops", "https://hooks.example.com/"), resolve=lambda host, port: ["10.0.0.7"]).address()
    Traceback (most recent call last):
    pasto_sdk.errors.OptionError: the webhook's host 'hooks.example.com' is at 10.0.0.7, which is not public; ...
    """

    def __init__(
        self,
        spec: WebhookSpec,
        hosts: frozenset[str] = frozenset(),
        *,
        timeout: float = TIMEOUT_SECONDS,
        resolve: Resolve = resolve_host,
    ) -> None:
        self.spec = spec
        self._url = check_url(spec.url, hosts)
        self._host = (self._url.hostname or "").lower()
        self._port = self._url.port or (443 if self._url.scheme == "https" else 80)
        self._allowed = hosts
        self._timeout = timeout
        self._resolve = resolve

    @property
    def host(self) -> str:
        """Host of the address; the rest of the address may be a secret."""
        return self._host

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

    def address(self) -> str:
        """Return the first allowed address of the host; raise OptionError if there is none."""
        try:
            addresses = self._resolve(self._host, self._port)
        except OSError as error:
            raise OptionError(f"the webhook's host {self._host!r} cannot be resolved: {error}") from error
        return self._choose(addresses)

    def post(self, message: str, body: str, timestamp: int) -> None:
        """Send the body of a message, signed if the webhook has a secret; raise an error unless it was accepted."""
        headers = {"webhook-id": message, "webhook-timestamp": str(timestamp)}
        content = body.encode()
        if self.spec.secret is not None:
            headers["webhook-signature"] = sign(self.spec.secret, message, timestamp, content)
        connection = _FixedAddressConnection(
            self._host, self._port, self.address(), self._url.scheme == "https", self._timeout
        )
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            headers |= {"Content-Type": "application/json", "User-Agent": "pasto", "Connection": "close"}
            connection.request("POST", path, content, headers)
            response = connection.getresponse()
            response.read(1000)
            if not 200 <= response.status < 300:  # redirects are not followed, because they could lead anywhere
                raise HTTPException(f"the receiver answered {response.status}")
        finally:
            connection.close()

    def _choose(self, addresses: Sequence[str]) -> str:
        for address in addresses:
            if self._host in self._allowed or _is_public(address):
                return address
        raise OptionError(
            f"the webhook's host {self._host!r} is at {', '.join(addresses) or 'no address'}, which is not public; "
            "if it is meant, allow the host with webhook_hosts"
        )


def make_secret() -> str:
    """Return a new secret for signing messages."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def decode_secret(secret: str) -> bytes:
    """Return the bytes of a secret; OptionError if it is not one.

    >>> decode_secret("letmein")
    Traceback (most recent call last):
    pasto_sdk.errors.OptionError: a webhook's secret is whsec_ and at least 24 bytes in base64; ...
    """
    try:
        content = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        content = b""
    if not secret.startswith(SECRET_PREFIX) or len(content) < MIN_SECRET_BYTES:
        raise OptionError(
            f"a webhook's secret is {SECRET_PREFIX} and at least {MIN_SECRET_BYTES} bytes in base64; make one with "
            "`pasto webhook secret`"
        )
    return content


def sign(secret: str, message: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message: HMAC-SHA256 over its id, the time of sending and the body.

    >>> secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    >>> sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    signed = f"{message}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(decode_secret(secret), signed, "sha256")).decode()


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


class WebhookEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of the webhook file."""

    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]{0,39}$")]
    url: str | None = None
    events: Annotated[tuple[EventName, ...], Meta(min_length=1)] = DEFAULT_EVENTS
    studies: Annotated[tuple[str, ...], Meta(min_length=1)] = ("*",)
    format: Literal["json", "slack"] = "json"
    signed: bool = True
    """Whether messages are signed; those of a Slack-compatible chat never are."""


class WebhookFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Webhook file: the webhooks of a service, each with its events, studies and form."""

    webhooks: Annotated[tuple[WebhookEntry, ...], Meta(max_length=MAX_WEBHOOKS)]


def read_webhooks(settings: Settings, environment: Mapping[str, str] | None = None) -> tuple[Webhook, ...]:
    """Return the webhooks of a service; OptionError names what is wrong.

    `webhook_file` names a file, and `webhook` one address for every event except closed rounds. The address and the
    secret of the webhook `chat` can be in the variables PASTO_WEBHOOK_CHAT_URL and PASTO_WEBHOOK_CHAT_SECRET.

    >>> hook = Settings(webhook="https://hooks.example.com/pasto")
    >>> [(webhook.spec.name, webhook.host, len(webhook.spec.events)) for webhook in read_webhooks(hook, {})]
    [('default', 'hooks.example.com', 8)]
    """
    environment = os.environ if environment is None else environment
    specs: list[WebhookSpec] = []
    if settings.webhook:
        secret = environment.get(_variable(DEFAULT_NAME, "secret"))
        specs.append(WebhookSpec(DEFAULT_NAME, settings.webhook, secret=secret))
    if settings.webhook_file:
        path = Path(settings.webhook_file)
        specs += [_read_entry(entry, path, environment) for entry in _read_file(path).webhooks]
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"two webhooks have the name {name!r}; give each a name of its own")
    for spec in specs:
        if spec.secret is not None:
            decode_secret(spec.secret)
    return tuple(Webhook(spec, settings.webhook_host_names) for spec in specs)


def _read_file(path: Path) -> WebhookFile:
    try:
        document = read_document(path.read_bytes(), "yaml")
        return msgspec.convert(document, WebhookFile, strict=False)
    except OSError as error:
        raise OptionError(f"the webhook file {path} cannot be read: {error.strerror or error}") from error
    except (StudyFileError, msgspec.ValidationError) as error:
        raise OptionError(
            f"the webhook file {path} cannot be used: {error}; a webhook has name, url, events (of "
            f"{', '.join(get_args(EventName))}), studies, format (json or slack) and signed"
        ) from error


def _read_entry(entry: WebhookEntry, path: Path, environment: Mapping[str, str]) -> WebhookSpec:
    url_variable, secret_variable = _variable(entry.name, "url"), _variable(entry.name, "secret")
    url = entry.url or environment.get(url_variable)
    if not url:
        raise OptionError(f"the webhook {entry.name!r} of {path} needs an address: write url, or set {url_variable}")
    secret = environment.get(secret_variable) if entry.format == "json" and entry.signed else None
    if entry.format == "json" and entry.signed and not secret:
        raise OptionError(
            f"the webhook {entry.name!r} of {path} needs a secret in {secret_variable}; make one with `pasto webhook "
            "secret`, or write signed: false"
        )
    return WebhookSpec(entry.name, url, entry.events, entry.studies, entry.format, secret)


def _variable(name: str, part: str) -> str:
    return f"PASTO_WEBHOOK_{name.upper()}_{part.upper()}"
