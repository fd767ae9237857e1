"""`pasto serve`: the running system on this machine."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from pasto.cli.output import echo
from pasto.cli.threads import one_thread
from pasto.service.settings import SETTINGS, Setting, read_settings

Command = TypeVar("Command", bound=Callable[..., Any])
SWITCH_SECONDS = 0.001
"""How long a thread that computes may hold the interpreter while another waits for it, such as the event loop:
a fifth of Python's default, because a batch or a pause waits so long at every step that it takes."""


def _meaning(setting: Setting) -> str:
    return f"{setting.meaning}  [{setting.variable}; default: {setting.written_default}]"


def settings_options(command: Command) -> Command:
    """Give a command a flag for every setting there is."""
    for setting in reversed(list(SETTINGS.values())):
        command = click.option(setting.flag, setting.name, metavar=setting.placeholder, help=_meaning(setting))(command)
    return command


@click.command(
    short_help="Run the service: assign, ingest, learn, publish.",
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

    Everything is kept in the store. Listens on this machine only, unless the store holds a key: `pasto key create`
    makes one. Each setting below can also be given by the environment variable beside it; a flag goes before it.
    """
    settings = read_settings(given, os.environ)
    one_thread()
    sys.setswitchinterval(SWITCH_SECONDS)
    from pasto.dashboard import Dashboard
    from pasto.service.http.server import ServiceProcess, start_logging

    running = ServiceProcess(settings, pages=lambda service: Dashboard(service).routes)
    start_logging(settings.log_level, settings.log_format)
    running.serve(lambda: echo(f"pasto is serving {settings.place} on {running.url}"))
    if running.is_busy:  # everything is written; a thread that computes for nobody would hold up the end of the process
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
