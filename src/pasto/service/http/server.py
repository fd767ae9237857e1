"""Running the service: listen, serve, and end without losing anything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import uvicorn

from pasto.control_characters import escape_json
from pasto.errors import OptionError
from pasto.service.api_keys import ApiKeys, redact
from pasto.service.archive import Archive
from pasto.service.http.app import Application
from pasto.service.http.auth import check_safe
from pasto.service.http.descriptor_limit import OpenConnections, claim_descriptors
from pasto.service.http.question_process import QuestionProcess
from pasto.service.http.request_head_limits import LimitedConnection, TrackedApplication
from pasto.service.http.routes import Route
from pasto.service.kafka import TopicConsumer
from pasto.service.notifications import Notifier
from pasto.service.retention_worker import RetentionWorker
from pasto.service.scheduler import Scheduler
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.service.webhook import read_webhooks
from pasto.service.webhook_worker import WebhookWorker
from pasto.store import open_store

log = logging.getLogger("pasto.server")

QUESTION_SHUTDOWN_SHARE = 0.8
"""Share of `shutdown_timeout` for questions in progress; the rest is for sending their answers."""

ADDRESS = "service.json"
"""File in an embedded store's directory with the address of its service."""


class UvicornServer(uvicorn.Server):
    """Uvicorn server that stops on a signal without raising it again."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending
        self.beginning: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM, and restore their handlers at the end."""
        try:
            before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not in the main thread: `stop` ends it
            before = {}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call `beginning`; from then on a signal stops the server cleanly."""
        await super().startup(sockets)
        self.beginning()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the waiting callers, then finish the other requests."""
        self._ending()
        await super().shutdown(sockets)


class ServiceProcess:
    """Service with its store, server and background threads.

    `serve` returns after a signal or `stop`: no new requests were accepted, all others were answered, the store wrote
    its queue, and the scheduler stopped. `pages` returns further routes for the service.
    """

    def __init__(self, settings: Settings, pages: Callable[[Service], Sequence[Route]] | None = None) -> None:
        self.settings = settings
        self._socket = _bind(settings.host, settings.port)  # first, so that a port in use does not create a store
        try:
            store = open_store(settings.store)
        except BaseException:
            self._socket.close()
            raise
        try:
            check_safe(ApiKeys(store), settings)
            webhooks = read_webhooks(settings)
            for webhook in webhooks:
                webhook.check()
            self._webhooks = WebhookWorker(store, webhooks)
            notifier = Notifier([webhook.spec for webhook in webhooks], self._webhooks.wake) if webhooks else None
            archive = Archive(settings.archive) if settings.archive else None
            self.service = Service(store, notifier=notifier, archive=archive)
            if settings.archive_after or settings.archive_keep:
                self.service.retention  # noqa: B018 -- raises at the start if archiving is not possible
            self.scheduler = Scheduler(self.service, settings.poll, settings.close_threads)
            further = () if pages is None else pages(self.service)
            self.application = Application(
                self.service,
                settings,
                scheduler=self.scheduler,
                pages=further,
                question_process=_question_process(settings),
                webhooks=self._webhooks,
            )
            self.connections = OpenConnections(settings)
            self.application.context.gauge_sources.append(self.connections.gauges)
            self.upkeep = RetentionWorker(self.service, settings)
            self.application.context.gauge_sources.append(self.upkeep.read_metrics)
            self._topics = TopicConsumer.from_settings(self.service, settings)
            if self._topics is not None:
                self.application.context.gauge_sources.append(self._topics.read_metrics)
            _listen(self._socket, settings)
        except BaseException:
            self._socket.close()
            store.close()
            raise
        self._server = UvicornServer(_config(self.application, settings, self.connections), self._send_away)
        self._address_file = _write_address(settings.store, self.url)

    @property
    def url(self) -> str:
        """Address of the service."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def started(self) -> bool:
        """State of the server: true once it answers."""
        return self._server.started

    def serve(self, beginning: Callable[[], None] = lambda: None) -> None:
        """Serve until ended; `beginning` is called when the first request can be answered."""
        self._server.beginning = beginning
        budget = claim_descriptors(self.settings)
        self.connections.capacity = budget.connections
        self.application.context.long_poll.limit = budget.waiters
        self.service.policy_cache.refresh()
        self._webhooks.start()
        self.scheduler.start()
        self.upkeep.start()
        if self._topics is not None:
            self._topics.start()
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.close()
            log.info("ended")

    def close(self) -> None:
        """Stop the threads and close the store; `serve` calls it at its end."""
        if self._address_file is not None:
            self._address_file.unlink(missing_ok=True)
        if self._topics is not None:
            self._topics.stop(self.settings.shutdown_timeout)
        self.scheduler.stop()
        self.upkeep.stop()
        self._webhooks.stop(self.settings.shutdown_timeout)
        if (process := self.application.context.question_process) is not None:
            process.close()  # before the store: its last connection tidies up its files
        self.service.shutdown()
        self.application.context.pools.shutdown()
        self._socket.close()

    @property
    def is_busy(self) -> bool:
        """True while threads still work for requests that timed out."""
        return self.application.context.pools.is_busy

    def _send_away(self) -> None:
        """Answer those who wait for a policy or for a thread now, and those who wait for a long answer in time."""
        context = self.application.context
        context.long_poll.end()
        context.pools["questions"].close()
        asyncio.get_running_loop().call_later(
            QUESTION_SHUTDOWN_SHARE * self.settings.shutdown_timeout, context.questions.close
        )

    def stop(self) -> None:
        """End `serve` from another thread."""
        self._server.should_exit = True


def _question_process(settings: Settings) -> QuestionProcess | None:
    """Return the question process; None if threads compute: by a setting, or because the store is in memory."""
    if not settings.question_process or settings.store == "memory:":
        return None
    return QuestionProcess(settings)


def _config(application: Application, settings: Settings, connections: OpenConnections) -> uvicorn.Config:
    """Return uvicorn's configuration, with every connection of its own protocol inside a limited one."""
    inner = uvicorn.Config(application, http="httptools", ws="none", log_config=None)
    inner.load()
    return uvicorn.Config(
        TrackedApplication(application),
        loop="uvloop",
        http=cast(Any, partial(LimitedConnection, connections, inner.http_protocol_class, application.fast_assign)),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # The limited connection closes idle ones. uvicorn's timer also runs while the next request arrives, and for
        # `keep_alive` seconds while requests are answered without uvicorn. It must end later than the next request.
        timeout_keep_alive=2 * settings.keep_alive + math.ceil(settings.request_timeout) + 1,
        timeout_graceful_shutdown=settings.shutdown_timeout,
    )


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket with the address, which does not take connections yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host.strip("[]"), port))
    except OSError as error:
        bound.close()
        raise _address_error(host, port, error) from error
    bound.set_inheritable(False)
    return bound


def _listen(bound: socket.socket, settings: Settings) -> None:
    """Take connections; a caller that reads the address from the store's directory may connect at once."""
    try:
        bound.listen(2048)
    except OSError as error:
        raise _address_error(settings.host, settings.port, error) from error


def _address_error(host: str, port: int, error: OSError) -> OptionError:
    return OptionError(
        f"cannot listen on {host} port {port}: {error.strerror or error}; name another with --host and --port"
    )


def _write_address(store: str, url: str) -> Path | None:
    """Write the address into an embedded store's directory, for commands that find the store in use."""
    directory = Path(store)
    if store == "memory:" or "://" in store or not directory.is_dir():
        return None
    file = directory / ADDRESS
    file.write_text(json.dumps({"url": url, "pid": os.getpid()}) + "\n", encoding="utf-8")
    return file


RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
"""Fields of every log record; others were added by the caller."""


class JsonFormatter(logging.Formatter):
    """Formatter of one JSON object per line: time, level, logger, message and added fields.

    >>> record = logging.makeLogRecord({"name": "pasto", "levelname": "INFO", "msg": "sent pasto_0123_secret"})
    >>> JsonFormatter().format(record)
    '{"time": "...", "level": "info", "logger": "pasto", "message": "sent pasto_0123_…"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in RECORD_FIELDS and value is not None},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return redact(escape_json(json.dumps(line, default=str, ensure_ascii=False)))


class TextFormatter(logging.Formatter):
    """Formatter of plain text lines, with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        added = [
            f"{name}={value}" for name, value in vars(record).items() if name not in RECORD_FIELDS and value is not None
        ]
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        line = " ".join([moment, record.levelname.lower(), record.getMessage(), *added])
        line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return redact(line)


def start_logging(level: str, form: str, stream: IO[str] | None = None) -> logging.Handler:
    """Send everything of the process to stderr in one form; returns the handler, to be taken away again."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.getLogger("uvicorn.access").disabled = True  # requests are logged by the endpoints themselves
    logging.getLogger("uvicorn.error").setLevel("WARNING")
    return handler
