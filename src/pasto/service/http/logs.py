"""Logs that machines read: one JSON object a line, without keys and without units."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Any

from pasto.control_characters import escape_json
from pasto.service.keys import redact

KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
"""What every record has; anything else was added by whoever logged."""


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and whatever was added.

    >>> record = logging.makeLogRecord({"name": "pasto", "levelname": "INFO", "msg": "sent pasto_0123_secret"})
    >>> JsonLines().format(record)
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


class Lines(logging.Formatter):
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
    handler.setFormatter(JsonLines() if form == "json" else Lines())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.getLogger("uvicorn.access").disabled = True  # requests are logged by the endpoints themselves
    logging.getLogger("uvicorn.error").setLevel("WARNING")
    return handler
