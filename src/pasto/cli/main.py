"""The `pasto` command: its subcommands, and the printing of errors and warnings."""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import IO, Any

import click

from pasto import __version__
from pasto.cli.demo import demo
from pasto.cli.environment import missing_extra
from pasto.cli.history import history
from pasto.cli.holdout import holdout
from pasto.cli.key import key
from pasto.cli.layer import layer
from pasto.cli.output import echo
from pasto.cli.plan import plan
from pasto.cli.report import report
from pasto.cli.round import round_
from pasto.cli.serve import serve
from pasto.cli.simulate import simulate
from pasto.cli.solve import solve
from pasto.cli.store import store
from pasto.cli.study import study
from pasto.cli.webhook import webhook
from pasto.errors import PastoError, PastoWarning, SolverError


class CommandInputError(click.ClickException):
    """Error in the input, printed as one line on stderr."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error."""
        echo(f"error: {self.message}", err=True)


class CommandError(CommandInputError):
    """Failure that the input does not cause, printed as one line on stderr."""

    exit_code = 1


COMMANDS_GROUP = "pasto.commands"
"""Entry points by which other distributions add commands."""
RESEARCH_COMMANDS = {
    "bench": "Measure PASTO next to other ways of doing the same work.",
    "paper": "Reproduce the paper's tables and figures.",
}
"""Commands of the distribution pasto-research, with the help shown while it is not installed."""


class CommandGroup(click.Group):
    """Group of commands that prints the library's errors and warnings as one line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the platform's commands, then of those that other distributions add."""
        added = {point.name for point in entry_points(group=COMMANDS_GROUP)} | set(RESEARCH_COMMANDS)
        return [*(name for name in super().list_commands(ctx) if name not in added), *sorted(added)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name; load it if another distribution adds it."""
        command = super().get_command(ctx, cmd_name)
        if command is None:
            for point in entry_points(group=COMMANDS_GROUP, name=cmd_name):
                command = point.load()
                self.add_command(command, cmd_name)
        if command is None and cmd_name in RESEARCH_COMMANDS:
            return _missing_research(cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", PastoWarning)
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except PastoError as error:
                raise (CommandError if isinstance(error, SolverError) else CommandInputError)(str(error)) from error
            except ModuleNotFoundError as error:
                missing = missing_extra(f"pasto {ctx.invoked_subcommand}", error)
                if missing is None:
                    raise
                raise CommandInputError(str(missing)) from error


def _missing_research(name: str) -> click.Command:
    @click.command(name, help=RESEARCH_COMMANDS[name], context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        raise CommandInputError(
            f"`pasto {name}` needs the distribution pasto-research, which is not installed; "
            "install it in a clone of PASTO with: pip install ./clients/python . ./research"
        )

    return command


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    echo(f"note: {message}" if issubclass(category, PastoWarning) else f"{category.__name__}: {message}", err=True)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pasto", message="%(prog)s %(version)s")
def main() -> None:
    """Find the best blend of settings: maximize a goal, and keep the guardrails.

    Data goes to stdout, progress and notes to stderr. With --json, commands print one JSON value. Exit codes: 0
    success, 1 a negative answer or a failure, 2 an error in the input or the command line.
    """


for command in (
    solve,
    simulate,
    demo,
    serve,
    study,
    round_,
    report,
    plan,
    history,
    layer,
    holdout,
    key,
    webhook,
    store,
):
    main.add_command(command)
