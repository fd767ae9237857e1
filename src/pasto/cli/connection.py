"""Connection of a command to its studies: a running service by its address, or the store if no service runs."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from pasto.cli.environment import use_common_arithmetic
from pasto.cli.output import echo
from pasto.errors import InputError, UnsafeStoreError

if TYPE_CHECKING:
    from pasto.service.study_api import StudyApi
    from pasto.store import Store

DEFAULT_STORE = "pasto-data"
"""Directory of the store if --store is not given."""

Command = TypeVar("Command", bound=Callable[..., Any])


def store_option(command: Command) -> Command:
    """Give a command --store."""
    return click.option(
        "--store",
        envvar="PASTO_STORE",
        show_envvar=True,
        default=DEFAULT_STORE,
        show_default=True,
        metavar="ADDRESS",
        help="Store: a directory, or postgresql://user@host/database.",
    )(command)


def api_options(command: Command) -> Command:
    """Give a command --store, --url and --key."""
    command = click.option(
        "--key",
        envvar="PASTO_KEY",
        show_envvar=True,
        metavar="KEY",
        help="API key of the service. Prefer the variable: other users of this machine can read command lines.",
    )(command)
    command = click.option(
        "--url",
        envvar="PASTO_URL",
        show_envvar=True,
        metavar="URL",
        help="Address of a running service, to use instead of a store.",
    )(command)
    return store_option(command)


@contextmanager
def open_writable_store(address: str, *, restoring: bool = False) -> Iterator[Store]:
    """Open a store for writing, and close it at the end of the block."""
    from pasto.store import open_store

    store = open_store(address, is_restoring=restoring)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def open_api(
    store: str, url: str | None, key: str | None, archive: Path | None = None, *, create: bool = False
) -> Iterator[StudyApi]:
    """Connect to the service at `url`, else to the service that runs on the store, else open the store.

    `archive` is the archive's folder if it is not in the store's directory; a running service has its own setting. If
    the directory is missing, only `create` makes it. The chosen service or store is printed on stderr.
    """
    use_common_arithmetic()  # as a service does
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

    if not create and store != "memory:" and "://" not in store and not Path(store).exists():
        raise InputError(
            f"there is no store in {_describe_store(store)}; name another with --store, or a running service with "
            "--url or PASTO_URL (`pasto study create` or `pasto serve` creates a store)"
        )
    try:
        opened = open_store(store)
    except UnsafeStoreError:
        if (running_url := _running_url(store)) is None:
            raise
        _refuse_archive(archive)
        echo(f"using the service at {running_url}, which runs on the store {_describe_store(store)}", err=True)
        yield HttpStudyApi(running_url, key)
        return
    print_store(store)
    service = Service(opened, archive=None if archive is None else Archive(archive))
    try:
        yield service
    finally:
        service.shutdown()


def warn_unserved(api: StudyApi, store: str) -> None:
    """Print a note if a study was started while no service runs.

    The lock of a directory shows that; a database has no such lock, so no note is printed for it.
    """
    from pasto.service.service import Service

    if isinstance(api, Service) and api.store.directory is not None:
        echo(
            f"note: no service runs on this store, so the study has no traffic yet; run `pasto serve --store {store}`, "
            "or name a running service with --url or PASTO_URL",
            err=True,
        )


def print_store(store: str) -> None:
    """Print on stderr which store a command uses."""
    echo(f"using the store {_describe_store(store)}", err=True)


def _describe_store(store: str) -> str:
    """Return a store's address without its password; a directory with its full path, which is unambiguous."""
    from pasto.service.settings import without_password

    return without_password(store) if "://" in store or store == "memory:" else str(Path(store).absolute())


def _refuse_archive(archive: Path | None) -> None:
    """Raise an error if --archive is given, because a running service ignores it.

    The environment variable is allowed: it is also a setting of the service.
    """
    source = click.get_current_context().get_parameter_source("folder")
    if archive is not None and source is not ParameterSource.ENVIRONMENT:
        raise InputError(
            "--archive is only for a store that no service runs on, and a service is used here; leave --archive out, "
            "or restart the service with its own --archive"
        )


def _running_url(store: str) -> str | None:
    """Return the address that a running service wrote into the store's directory; None without one."""
    try:
        address = json.loads((Path(store) / "service.json").read_text(encoding="utf-8"))["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return address if isinstance(address, str) else None


def current_user() -> str:
    """Return the login name of the person who runs the command, for the audit log."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"
