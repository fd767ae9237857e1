"""The `pasto` command itself: its subcommands, and how errors and warnings reach the terminal."""

from __future__ import annotations

import warnings
from typing import IO, Any

import click

from pasto import __version__
from pasto.cli.bench import bench
from pasto.cli.demo import demo
from pasto.cli.extras import missing_extra
from pasto.cli.key import key
from pasto.cli.paper import paper
from pasto.cli.plan import plan
from pasto.cli.report import report
from pasto.cli.round import round_
from pasto.cli.screen import echo
from pasto.cli.serve import serve
from pasto.cli.simulate import simulate
from pasto.cli.solve import solve
from pasto.cli.store import store
from pasto.cli.study import study
from pasto.errors import PastoError, PastoWarning, SolverFailed


class Refused(click.ClickException):
    """Bad input, as one line on stderr."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        echo(f"error: {self.message}", err=True)


class Failed(Refused):
    """A failure that is not the input's fault, as one line on stderr."""

    exit_code = 1


class Commands(click.Group):
    """A group that tells the library's errors and warnings in plain words."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", PastoWarning)
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except PastoError as error:
                raise (Failed if isinstance(error, SolverFailed) else Refused)(str(error)) from error
            except ModuleNotFoundError as error:
                missing = missing_extra(f"pasto {ctx.invoked_subcommand}", error)
                if missing is None:
                    raise
                raise Refused(str(missing)) from error


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    echo(f"note: {message}" if issubclass(category, PastoWarning) else f"{category.__name__}: {message}", err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pasto", message="%(prog)s %(version)s")
def main() -> None:
    """Learn the best blend of settings: raise the goal, hold the guardrails, beat every single setting.

    Data goes to stdout, progress and notes to stderr; --json, where offered, prints one JSON value for machines. Exit
    codes: 0 done, 1 the answer is no or something failed, 2 the input or the command line is wrong.
    """


for command in (solve, simulate, demo, serve, study, round_, report, plan, key, store, paper, bench):
    main.add_command(command)
