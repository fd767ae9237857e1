"""How a command reaches its studies: a running service by its address, or the store itself where none runs."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from pasto.cli.output import echo
from pasto.errors import InputError, UnsafeStoreError

if TYPE_CHECKING:
    from pasto.service.api import StudyApi
    from pasto.store import Store

STORE = "pasto-data"
"""The directory of a store that nobody named."""

Command = TypeVar("Command", bound=Callable[..., Any])


def store_option(command: Command) -> Command:
    """Give a command --store."""
    return click.option(
        "--store",
        envvar="PASTO_STORE",
        show_envvar=True,
        default=STORE,
        show_default=True,
        metavar="PLACE",
        help="A directory, or postgresql://user@host/database.",
    )(command)


def desk_options(command: Command) -> Command:
    """Give a command --store, --url and --key."""
    command = click.option(
        "--key", envvar="PASTO_KEY", show_envvar=True, metavar="KEY", help="The service's key, best not typed here."
    )(command)
    command = click.option(
        "--url", envvar="PASTO_URL", show_envvar=True, metavar="URL", help="A running service, instead of a store."
    )(command)
    return store_option(command)


@contextmanager
def open_service(store: str, *, restoring: bool = False) -> Iterator[Store]:
    """A store for as long as the command runs."""
    from pasto.store import open_store

    found = open_store(store, is_restoring=restoring)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def open_api(
    store: str, url: str | None, key: str | None, archive: Path | None = None, *, begins: bool = False
) -> Iterator[StudyApi]:
    """Whoever answers for the studies: the service at `url`, the one running on the store, or the store itself.

    `archive` is where the store's archive is, if not in its directory; a service knows that of its own. Only a command
    that `begins` something makes a directory where there is none. Which of them it is goes to stderr.
    """
    from pasto.service.archive import Archive
    from pasto.service.http_client import HttpStudyApi
    from pasto.service.service import Service
    from pasto.service.settings import without_password

    if url:
        _refuse_archive(archive)
        remote = HttpStudyApi(url, key)
        echo(f"using the service at {without_password(remote.url)}", err=True)
        yield remote
        return
    from pasto.store import open_store

    if not begins and store != "memory:" and "://" not in store and not Path(store).exists():
        raise InputError(
            f"there is no store in {_place(store)}; name another with --store, or a running service with --url or "
            "PASTO_URL (`pasto study create` or `pasto serve` begins a store)"
        )
    try:
        kept = open_store(store)
    except UnsafeStoreError:
        if (running := _running(store)) is None:
            raise
        _refuse_archive(archive)
        echo(f"using the service at {running}, which runs on the store {_place(store)}", err=True)
        yield HttpStudyApi(running, key)
        return
    print_store(store)
    service = Service(kept, archive=None if archive is None else Archive(archive))
    try:
        yield service
    finally:
        service.shutdown()


def warn_unserved(desk: StudyApi, store: str) -> None:
    """Note that a study was started where no service runs: a directory's lock tells, and a database has none."""
    from pasto.service.service import Service

    if isinstance(desk, Service) and desk.store.directory is not None:
        echo(
            f"note: no service runs on this store, so nobody is served yet; run `pasto serve --store {store}`, or name "
            "a running service with --url or PASTO_URL",
            err=True,
        )


def print_store(store: str) -> None:
    """Say which store a command uses."""
    echo(f"using the store {_place(store)}", err=True)


def _place(store: str) -> str:
    """A store's address as it may be shown; a directory whole, because another one may have the same short name."""
    from pasto.service.settings import without_password

    return without_password(store) if "://" in store or store == "memory:" else str(Path(store).absolute())


def _refuse_archive(archive: Path | None) -> None:
    """A flag that would be ignored is refused; the variable is the service's too, and says nothing here."""
    source = click.get_current_context().get_parameter_source("folder")
    if archive is not None and source is not ParameterSource.ENVIRONMENT:
        raise InputError("--archive is for a store that no service runs on; the service was told by its own --archive")


def _running(store: str) -> str | None:
    """The address of the service that runs on a directory, which it writes there."""
    try:
        address = json.loads((Path(store) / "service.json").read_text(encoding="utf-8"))["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return address if isinstance(address, str) else None


def me() -> str:
    """Who is at this terminal, for the audit log."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"
