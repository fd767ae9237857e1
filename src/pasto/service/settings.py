"""Settings of a running service: one table, the source of its flags, its variables and the reference page."""

from __future__ import annotations

import functools
import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pasto.durations import YEAR_SECONDS, describe_durations, parse_duration
from pasto.errors import OptionError
from pasto.formatting import format_duration


@dataclass(frozen=True, slots=True)
class Setting:
    """Row of the settings table: a name, the values it takes, and its default.

    >>> setting = SETTINGS["body_limit"]
    >>> setting.variable, setting.flag, setting.default
    ('PASTO_BODY_LIMIT', '--body-limit', 5000000)
    """

    name: str
    kind: type
    default: Any
    meaning: str
    minimum: float
    maximum: float
    choices: tuple[str, ...]
    is_duration: bool
    """The value is in seconds, and is written as a duration such as 30min."""

    @property
    def variable(self) -> str:
        """Environment variable that sets it."""
        return f"PASTO_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """Flag of `pasto serve` that sets it."""
        return "--" + self.name.replace("_", "-")

    @property
    def placeholder(self) -> str:
        """Word for the value in `pasto serve --help`."""
        if self.choices:
            return "|".join(self.choices)
        if self.is_duration:
            return "TIME"
        return {int: "N", float: "NUMBER", bool: "yes|no"}.get(self.kind, "TEXT")

    @property
    def written_default(self) -> str:
        """Default as a user would write it."""
        if self.is_duration:
            return format_duration(self.default)
        if self.kind is bool:
            return "yes" if self.default else "no"
        return f"{self.default:g}" if self.kind is float else str(self.default) or "none"

    def read(self, given: object, source: str) -> Any:
        """Return the checked value; `source` is the flag or variable that the user typed.

        >>> SETTINGS["port"].read("80", "--port"), SETTINGS["keep_alive"].read("2min", "--keep-alive")
        (80, 120)
        """
        value = self._convert(str(given).strip())
        if value is None:
            raise OptionError(f"{source} needs {self._describe_values()}, got {given!r}")
        return value

    def _convert(self, text: str) -> Any:
        """Return the value of a text, or None if it is not possible."""
        if self.kind is bool:
            return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}.get(text.lower())
        if self.kind is str:
            return text if not self.choices or text in self.choices else None
        try:
            number = parse_duration(text) if self.is_duration else self.kind(text)
            if self.kind(number) != number:  # a fraction of a second where whole seconds are needed
                return None
        except (ValueError, OverflowError):
            return None
        return self.kind(number) if self.minimum <= number <= self.maximum else None

    def _describe_values(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is bool:
            return "yes or no"
        if self.is_duration:
            return describe_durations(self.minimum, self.maximum)
        return f"a whole number from {self.minimum:,.10g} to {self.maximum:,.10g}"


def _setting(
    default: Any, meaning: str, minimum: float = 0, maximum: float = math.inf, choices: tuple[str, ...] = ()
) -> Any:
    limits = {"minimum": minimum, "maximum": maximum, "choices": choices, "is_duration": False}
    return field(default=default, metadata={"meaning": meaning, **limits})


def _duration(seconds: float, meaning: str, minimum: float, maximum: float) -> Any:
    """Return a setting in seconds; whole seconds if the default is an integer."""
    limits = {"minimum": minimum, "maximum": maximum, "choices": (), "is_duration": True}
    return field(default=seconds, metadata={"meaning": meaning, **limits})


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a service; every field is set by a flag or a variable, or has its default.

    >>> Settings().port, Settings(port=9000).port
    (8300, 9000)
    """

    store: str = _setting(
        "pasto-data",
        "Store of all records: a directory, postgresql://… for several nodes, or memory: to try things out.",
    )
    host: str = _setting("127.0.0.1", "The address to listen on; beyond loopback only when the store holds a key.")
    port: int = _setting(8300, "The port to listen on; 0 takes a free one.", maximum=65535)
    keys_required: bool = _setting(False, "Ask every caller for a key, also on loopback in a store without keys.")
    allowed_hosts: str = _setting(
        "", "Names other than localhost that callers may use for this service while no key exists, with commas between."
    )
    proxy_user_header: str = _setting(
        "", "Header in which a trusted proxy names the person who is signed in; none turns this sign-in off."
    )
    proxy_addresses: str = _setting(
        "",
        "Addresses or networks of that proxy, with commas between, such as 10.0.0.7; the header counts from there "
        "only. The word any trusts every address.",
    )
    proxy_groups_header: str = _setting(
        "X-Forwarded-Groups", "Header in which the proxy lists the person's groups, with commas between."
    )
    proxy_roles: str = _setting(
        "",
        "Scopes of groups, with commas between, such as ops=admin, feed-team=admin:feed, everyone=read.",
    )
    proxy_sign_out: str = _setting(
        "", "Where the dashboard's link to sign out leads, such as /oauth2/sign_out; none shows no link."
    )
    public_metrics: bool = _setting(False, "Allow callers without a key to read /metrics, also when there are keys.")
    log_level: str = _setting("info", "The least that is logged.", choices=("debug", "info", "warning", "error"))
    log_format: str = _setting("json", "One JSON object a line, or text for people.", choices=("json", "text"))
    poll: float = _duration(
        1.0, "Time between two checks for rounds to close, and for policies and keys of other nodes.", 0.05, 60
    )
    ofrep_exposures: str = _setting(
        "single",
        "Which flag evaluations count as exposures: of single flags, all, or none (the caller then sends them).",
        choices=("single", "all", "none"),
    )
    webhook: str = _setting(
        "",
        "Address that gets a POST when a guardrail warns or stops a study, a confirmation is decided, or data are in "
        "doubt, such as https://hooks.example.com/pasto.",
    )
    webhook_file: str = _setting(
        "", "A YAML file of further webhooks, each with its events, studies and form; see the guide to operations."
    )
    webhook_hosts: str = _setting(
        "",
        "Hosts of the webhooks, with commas between; a host in a private network must be named here.",
    )
    archive: str = _setting("", "The archive's folder; none is `archive` in the store's own directory.")
    archive_after: float = _duration(
        0.0,
        "Time after a round was learned until its events go to the archive, such as 7d; 0 leaves them in the store.",
        0,
        100 * YEAR_SECONDS,
    )
    archive_keep: float = _duration(
        0.0,
        "Time after a round was closed until its archived events are deleted, such as 400d; 0 never deletes them.",
        0,
        100 * YEAR_SECONDS,
    )
    kafka_servers: str = _setting("", "Kafka brokers to read events from, such as kafka-1:9092,kafka-2:9092.")
    kafka_topic: str = _setting(
        "",
        "Topics to read, with commas between: TOPIC=STUDY, or TOPIC alone if each event has a field study.",
    )
    kafka_group: str = _setting("pasto", "The consumer group; the nodes of one store share it, and the partitions.")
    kafka_properties: str = _setting(
        "", "A file of further settings of the Kafka client, such as its security: one NAME=VALUE a line."
    )
    body_limit: int = _setting(5_000_000, "Bytes of a request's body, unpacked.", 1_000, 1_000_000_000)
    batch_limit: int = _setting(10_000, "Events, or units to assign, in one request.", 1, 1_000_000)
    key_rate: int = _setting(
        0, "Events per second that one API key may send, saved up for 10 seconds; 0 for no limit.", 0, 100_000_000
    )
    depth_limit: int = _setting(32, "Levels that a JSON document may nest.", 4, 200)
    inflate_ratio: int = _setting(20, "Factor by which a gzip body may grow, once it is beyond 1 MB.", 1, 1100)
    request_timeout: float = _duration(
        30.0, "Time for a request to arrive, and for its answer; waiting for a policy is not counted.", 0.1, 3600
    )
    keep_alive: int = _duration(30, "Time after which an idle connection is closed, in whole seconds.", 1, 3600)
    max_concurrent: int = _setting(1_000, "Requests in work at once; more are asked to come back.", 1, 1_000_000)
    max_waiters: int = _setting(10_000, "Callers waiting for a policy to change at once.", 1, 1_000_000)
    retry_after: int = _duration(1, "Time after which a caller is asked to come back, in whole seconds.", 1, 3600)
    threads: int = _setting(
        8, "Threads for events; as many for changes of studies and keys, and as many for other slow requests.", 1, 256
    )
    question_process: bool = _setting(
        True, "Compute reports, what-if, trade-offs and replays in a process of their own, started when needed."
    )
    question_threads: int = _setting(
        2, "Threads for questions that take long: reports, what-if, trade-offs and replays.", 1, 64
    )
    max_questions: int = _setting(32, "Questions that wait for a thread; more are asked to come back.", 0, 10_000)
    close_threads: int = _setting(
        4, "Threads that close rounds; as many others close those of studies that read a team's own tables.", 1, 64
    )
    shutdown_timeout: int = _duration(10, "Time for running requests to end on shutdown, in whole seconds.", 0, 3600)

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach the address."""
        return is_loopback(self.host)

    @property
    def store_label(self) -> str:
        """Store as it may be printed: without a password.

        >>> Settings(store="postgresql://ann:secret@db/pasto?password=secret").store_label
        'postgresql://ann:…@db/pasto?password=…'
        """
        return without_password(self.store)

    @property
    def allowed_host_names(self) -> frozenset[str]:
        """Allowed names, in lower case."""
        return _split_names(self.allowed_hosts)

    @property
    def webhook_host_names(self) -> frozenset[str]:
        """Hosts of the webhooks, in lower case."""
        return _split_names(self.webhook_hosts)


def _split_names(text: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in text.split(",") if name.strip())


SETTINGS: Mapping[str, Setting] = {
    each.name: Setting(each.name, type(each.default), each.default, **each.metadata) for each in fields(Settings)
}
"""The table, by name."""


def read_settings(given: Mapping[str, object], environment: Mapping[str, str] | None = None) -> Settings:
    """Return settings from flags (by name, None if not given), else from variables, else their defaults.

    >>> read_settings({"port": "9000", "poll": None}, {"PASTO_POLL": "2", "PASTO_PORT": "1"}).poll
    2.0
    >>> read_settings({}, {"PASTO_PORT": "http"})
    Traceback (most recent call last):
    pasto_sdk.errors.OptionError: PASTO_PORT needs a whole number from 0 to 65,535, got 'http'
    """
    environment = environment or {}
    values: dict[str, Any] = {}
    for setting in SETTINGS.values():
        flag, variable = given.get(setting.name), environment.get(setting.variable)
        if flag is not None:
            values[setting.name] = setting.read(flag, setting.flag)
        elif variable:
            values[setting.name] = setting.read(variable, setting.variable)
    return Settings(**values)


@functools.lru_cache(maxsize=1024)
def without_password(address: str) -> str:
    """Return the address of a store or service as it may be printed.

    >>> without_password("postgresql://ann:secret@db/pasto?password=secret"), without_password("pasto-data")
    ('postgresql://ann:…@db/pasto?password=…', 'pasto-data')
    """
    return re.sub(r"(password=)[^&\s]*", r"\1…", re.sub(r"(://[^:/@]*:)[^@]*@", r"\1…@", address))


def is_loopback(host: str) -> bool:
    """Return whether an address or name is this machine's own, so that no other can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    host = host.strip("[]").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
