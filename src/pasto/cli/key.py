"""`pasto key`: who may talk to the service."""

from __future__ import annotations

from typing import Any

import click

from pasto.cli.connection import desk_options, me, open_api
from pasto.cli.duration_option import DurationType
from pasto.cli.output import console, echo, print_json, print_table
from pasto.cli.study import as_json_option, when
from pasto.durations import format_duration
from pasto.errors import OptionError

SCOPES = ("admin", "evaluate", "ingest", "read")


@click.group(
    short_help="Create and revoke the service's keys.",
    epilog="\b\nExample:\n  pasto key create --name ranker --scope evaluate --scope ingest\n",
)
def key() -> None:
    """Create, list and revoke the keys that the service asks for.

    A key has scopes: evaluate reads policies and assigns, ingest sends events, read looks, admin does everything. To
    change a key without an outage, rotate it: both work until the grace is over.
    """


@key.command(
    short_help="Make a key; it is shown once.",
    epilog="\b\nExample:\n  pasto key create --name ranker --scope evaluate --scope ingest\n",
)
@click.option("--name", required=True, metavar="TEXT", help="Whose it is, as the audit log will call it.")
@click.option(
    "--scope", "scopes", multiple=True, required=True, type=click.Choice(SCOPES), help="What it may do; repeatable."
)
@click.option(
    "--expires-in",
    type=DurationType(low=1.0),
    metavar="TIME",
    help="Time after which it expires, such as 90d; never, if left out.",
)
@desk_options
@as_json_option
def create(
    name: str,
    scopes: tuple[str, ...],
    expires_in: float | None,
    store: str,
    url: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Make a key and print it: the only time it is shown, since only its hash is kept."""
    with open_api(store, url, key, begins=True) as desk:
        made = desk.create_key(name, scopes, expires_in=expires_in, who=me())
    if as_json:
        print_json(made)
        return
    echo(made["key"])
    echo("keep it now: it is not shown again", err=True)


@key.command("list", short_help="Every key by its prefix.", epilog="\b\nExample:\n  pasto key list\n")
@desk_options
@as_json_option
def list_keys(store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """List every key by its prefix, with its scopes and whether it still works."""
    with open_api(store, url, key) as desk:
        found = desk.keys()
    if as_json:
        print_json(found)
        return
    rows = [
        [
            each["prefix"],
            each["name"],
            " ".join(each["scopes"]),
            when(each["created_at"]),
            "never" if each["expires_at"] is None else when(each["expires_at"]),
            "" if each["revoked_at"] is None else when(each["revoked_at"]),
        ]
        for each in found
    ]
    print_table(console(), ["prefix", "name", "scopes", "created", "expires", "revoked"], rows, text=(0, 1, 2, 3, 4, 5))


@key.command(short_help="Who created, rotated and revoked keys.", epilog="\b\nExample:\n  pasto key audit\n")
@desk_options
@as_json_option
def audit(store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Print the audit log of all keys, oldest first."""
    lines: list[dict[str, Any]] = []
    with open_api(store, url, key) as desk:
        while page := desk.key_audit(after=lines[-1]["sequence"] if lines else 0, limit=1000):
            lines += page
    if as_json:
        print_json(lines)
        return
    rows = [
        [when(line["at"]), line["who"], line["action"], line["detail"]["prefix"], line["detail"]["name"]]
        for line in lines
    ]
    print_table(console(), ["when", "who", "what", "prefix", "name"], rows, text=(0, 1, 2, 3, 4))


@key.command(short_help="Stop a key from working.", epilog="\b\nExample:\n  pasto key revoke 3f9a2c\n")
@click.argument("prefix")
@desk_options
def revoke(prefix: str, store: str, url: str | None, key: str | None) -> None:
    """Revoke a key by its prefix; running services refuse it within seconds."""
    with open_api(store, url, key) as desk:
        if not desk.revoke_key(prefix, who=me()):
            raise OptionError(f"no working key has the prefix {prefix!r}; `pasto key list` shows them")
    echo(f"revoked {prefix}", err=True)


@key.command(
    short_help="Make a key's successor; both work for a while.",
    epilog="\b\nExample:\n  pasto key rotate 3f9a2c --grace 24h\n",
)
@click.argument("prefix")
@click.option(
    "--grace",
    type=DurationType(),
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Time for which the old key goes on working.",
)
@desk_options
@as_json_option
def rotate(prefix: str, grace: float, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Make a key with the same name and scopes and print it; the old one stops when the grace is over."""
    with open_api(store, url, key) as desk:
        made = desk.rotate_key(prefix, grace=grace, who=me())
    if as_json:
        print_json(made)
        return
    echo(made["key"])
    echo(f"keep it now: it is not shown again; {prefix} works for {format_duration(grace)} more", err=True)
