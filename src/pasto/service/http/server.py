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
from pasto.service.http.connections import LimitedConnection, OpenConnections, TrackedApplication
from pasto.service.http.descriptors import claim_descriptors
from pasto.service.http.question_process import QuestionProcess
from pasto.service.http.routes import Route
from pasto.service.kafka import TopicConsumer
from pasto.service.retention_worker import RetentionWorker
from pasto.service.scheduler import Scheduler
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.service.webhook import Webhook
from pasto.store import open_store

log = logging.getLogger("pasto.server")

ANSWER_BEFORE_END = 0.8
"""The part of `shutdown_timeout` that questions under way are given; the rest is for their callers to be answered."""

ADDRESS = "service.json"
"""The file in an embedded store's directory that says where its service listens."""


class UvicornServer(uvicorn.Server):
    """uvicorn's server, ended by a signal without dying of it."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending
        self.beginning: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals that end a service, and give them back; they are not raised again afterwards."""
        try:
            before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # in another thread, whoever started it ends it
            before = {}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, and say so: from here on a signal ends it in order."""
        await super().startup(sockets)
        self.beginning()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Send away those who wait, then those who are being served."""
        self._ending()
        await super().shutdown(sockets)


class ServiceProcess:
    """A service over one store, from its first request to its last.

    `serve` returns when a signal or `stop` ended it: nobody new was let in, whoever was being served was answered,
    the store wrote what was waiting, and the scheduler stopped. `pages` makes further routes for the service.
    """

    def __init__(self, settings: Settings, pages: Callable[[Service], Sequence[Route]] | None = None) -> None:
        self.settings = settings
        self._socket = _bind(settings.host, settings.port)  # first: a port in use must leave no new store behind
        try:
            store = open_store(settings.store)
        except BaseException:
            self._socket.close()
            raise
        try:
            check_safe(ApiKeys(store), settings)
            self._webhook = Webhook(settings.webhook, settings.webhook_host_names) if settings.webhook else None
            if self._webhook is not None:
                self._webhook.check()
            archive = Archive(settings.archive) if settings.archive else None
            notify = (lambda message: None) if self._webhook is None else self._webhook.send
            self.service = Service(store, notify=notify, archive=archive)
            if settings.archive_after or settings.archive_keep:
                self.service.keeping  # noqa: B018 -- told at the start where it cannot be done
            self.scheduler = Scheduler(self.service, settings.poll)
            further = () if pages is None else pages(self.service)
            self.application = Application(
                self.service,
                settings,
                scheduler=self.scheduler,
                pages=further,
                question_process=_question_process(settings),
            )
            self.connections = OpenConnections(settings)
            self.application.context.looks.append(self.connections.look)
            self.upkeep = RetentionWorker(self.service, settings)
            self.application.context.looks.append(self.upkeep.read_metrics)
            self._topics = TopicConsumer.from_settings(self.service, settings)
            if self._topics is not None:
                self.application.context.looks.append(self._topics.read_metrics)
            _listen(self._socket, settings)
        except BaseException:
            self._socket.close()
            store.close()
            raise
        self._server = UvicornServer(_config(self.application, settings, self.connections), self._send_away)
        self._said = _say(settings.store, self.url)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def started(self) -> bool:
        """Whether it answers."""
        return self._server.started

    def serve(self, beginning: Callable[[], None] = lambda: None) -> None:
        """Serve until ended; `beginning` is called when the first request can be answered."""
        self._server.beginning = beginning
        budget = claim_descriptors(self.settings)
        self.connections.capacity = budget.connections
        self.application.context.waiting.limit = budget.waiters
        self.service.board.refresh()
        if self._webhook is not None:
            self._webhook.start()
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
        """Let go of everything; `serve` does so by itself."""
        if self._said is not None:
            self._said.unlink(missing_ok=True)
        if self._topics is not None:
            self._topics.stop(self.settings.shutdown_timeout)
        self.scheduler.stop()
        self.upkeep.stop()
        if self._webhook is not None:
            self._webhook.stop()
        if (process := self.application.context.question_process) is not None:
            process.close()  # before the store: its last connection tidies up its files
        self.service.shutdown()
        self.application.context.threads.shutdown()
        self._socket.close()

    @property
    def is_busy(self) -> bool:
        """Whether threads still work for requests that were given up."""
        return self.application.context.threads.is_busy

    def _send_away(self) -> None:
        """Answer those who wait for a policy or for a thread now, and those who wait for a long answer in time."""
        context = self.application.context
        context.waiting.end()
        context.threads["questions"].close()
        asyncio.get_running_loop().call_later(
            ANSWER_BEFORE_END * self.settings.shutdown_timeout, context.questions.close
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


def _say(store: str, url: str) -> Path | None:
    """Leave the address in an embedded store's directory, for the commands that find it taken."""
    directory = Path(store)
    if store == "memory:" or "://" in store or not directory.is_dir():
        return None
    said = directory / ADDRESS
    said.write_text(json.dumps({"url": url, "pid": os.getpid()}) + "\n", encoding="utf-8")
    return said


KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
"""What every record has; anything else was added by whoever logged."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and whatever was added.

    >>> record = logging.makeLogRecord({"name": "pasto", "levelname": "INFO", "msg": "sent pasto_0123_secret"})
    >>> JsonFormatter().format(record)
    '{"time": "...", "level": "info", "logger": "pasto", "message": "sent pasto_0123_…"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in KNOWN and value is not None},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return redact(escape_json(json.dumps(line, default=str, ensure_ascii=False)))


class TextFormatter(logging.Formatter):
    """The same for people: a line each, with whatever would break it escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        added = [f"{name}={value}" for name, value in vars(record).items() if name not in KNOWN and value is not None]
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
