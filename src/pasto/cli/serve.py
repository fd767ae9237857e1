"""`pasto serve`: the service on this machine."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from pasto.cli.environment import use_common_arithmetic
from pasto.cli.output import echo
from pasto.service.settings import SETTINGS, Setting, read_settings

Command = TypeVar("Command", bound=Callable[..., Any])
GC_THRESHOLDS = (100_000, 50, 100)
"""Thresholds of the garbage collector.

A full collection stops every request while it visits all open connections. With 3,500 of them and Python's defaults,
the 99th percentile of decisions was 137 to 150 ms; with these thresholds it is 2 ms. Reference counts free connections
and requests, so rare collections cost little memory.
"""
SWITCH_SECONDS = 0.001
"""Time that a computing thread may hold the interpreter while another thread waits, such as the event loop. It is a
fifth of Python's default, because a request can wait this long several times."""


def _describe_setting(setting: Setting) -> str:
    return f"{setting.meaning}  [{setting.variable}; default: {setting.written_default}]"


def settings_options(command: Command) -> Command:
    """Give a command an option for every setting."""
    for setting in reversed(list(SETTINGS.values())):
        command = click.option(
            setting.flag, setting.name, metavar=setting.placeholder, help=_describe_setting(setting)
        )(command)
    return command


@click.command(
    short_help="Run the service over HTTP, with its dashboard.",
    epilog="""\b
Examples:
  pasto serve
  pasto serve --store /var/lib/pasto --port 9000
  pasto serve --store postgresql://pasto@db/pasto --host 0.0.0.0
""",
)
@settings_options
def serve(**given: str | None) -> None:
    """Serve studies over HTTP until interrupted.

    All data is in the store. The service listens on this machine only, unless the store has an API key; `pasto key
    create` makes one. The environment variable named with each option sets it too; an option overrides its variable.
    """
    settings = read_settings(given, os.environ)
    use_common_arithmetic()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    from pasto.dashboard import Dashboard
    from pasto.service.http.server import ServiceProcess, start_logging

    running = ServiceProcess(settings, pages=lambda service: Dashboard(service).routes)
    start_logging(settings.log_level, settings.log_format)
    running.serve(lambda: echo(f"pasto is serving {settings.store_label} on {running.url}"))
    if running.is_busy:  # all data is written; a thread that still computes would delay the end of the process
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
