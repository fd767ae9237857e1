"""Fixtures of all tests: reproducible property tests, and a private PostgreSQL server for the marker `services`.

Tests compute with the arithmetic of a service, so both give equal bits. `OPENBLAS_CORETYPE=SkylakeX
NPY_DISABLE_CPU_FEATURES= pytest` tests another arithmetic.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from pasto.cli.environment import use_common_arithmetic

use_common_arithmetic()

# An example's time depends on the machine and not on the code, and a run must be the same on every machine:
# `--hypothesis-profile=default` tries examples that were never tried.
settings.register_profile("pasto", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pasto")


class PostgresServer:
    """Private server on a Unix socket; it refuses root, so root starts it as another user."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self._data = folder / "data"
        self._user = _unprivileged_user() if os.getuid() == 0 else None
        self._databases = count(1)
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._run("initdb", "-D", str(self._data), "-U", "pasto", "-A", "trust", "-E", "UTF8", "--no-sync", *options)
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off -c max_connections=60"
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self.folder / "log"), "-o", options, "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `immediate` is a crash."""
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "stop")

    def url(self, database: str = "postgres") -> str:
        """Return the address of one of its databases."""
        return f"postgresql://pasto@/{database}?host={self.folder}"

    def fresh(self) -> str:
        """Return the address of a new, empty database."""
        name = f"fresh_{next(self._databases)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, including its open connections."""
        name = url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def _run(self, program: str, *arguments: str) -> None:
        found = shutil.which(program) or next(
            iter(sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{program}")), reverse=True)), None
        )
        assert found is not None, f"{program} is not installed: these tests need a PostgreSQL server"
        subprocess.run(
            [found, *arguments],
            user=self._user,
            group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
            extra_groups=None if self._user is None else (),
            cwd=self.folder,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _unprivileged_user() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Run one server for all the tests of a worker."""
    folder = Path(tempfile.mkdtemp(prefix="pasto-pg-", dir="/tmp"))
    folder.chmod(0o755)
    server = PostgresServer(folder)
    try:
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the address of a new, empty database."""
    url = postgres_server.fresh()
    yield url
    postgres_server.drop(url)
