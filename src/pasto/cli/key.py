"""`pasto key`: the API keys of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pasto.cli.connection import api_options, current_user, open_api
from pasto.cli.options import DurationType, as_json_option
from pasto.cli.output import console, echo, format_local_time, print_json, print_table
from pasto.errors import OptionError
from pasto.formatting import format_duration

if TYPE_CHECKING:
    from pasto.store import AuditRow


class ScopeType(click.ParamType[str]):
    """Scope of a key: admin, evaluate, ingest or read, alone or with a study."""

    name = "scope"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the scope; fail for another text."""
        from pasto.service.scopes import SCOPES, is_scope

        if not is_scope(text := str(value)):
            self.fail(f"{text!r} is not one of {', '.join(SCOPES)}, or one of them for a study, such as read:feed")
        return text


@click.group(
    short_help="Create, rotate and revoke the service's API keys.",
    epilog="\b\nExample:\n  pasto key create --name ranker --scope evaluate --scope ingest\n",
)
def key() -> None:
    """Create, list, rotate and revoke the API keys of the service.

    A key has one or more scopes: `evaluate` reads policies and assigns units, `ingest` sends events, `read` reads
    studies and reports, `admin` may do everything. A scope with a study, such as `admin:feed`, is for that study only.
    To replace a key without an outage, rotate it: the old and the new key both work until the grace time is over.
    """


@key.command(
    short_help="Create a key and print it once.",
    epilog="\b\nExample:\n  pasto key create --name ranker --scope evaluate --scope ingest\n",
)
@click.option("--name", required=True, metavar="TEXT", help="Name of the key's owner, for the audit log.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=ScopeType(),
    metavar="SCOPE",
    help="Permission of the key: admin, evaluate, ingest or read, or one for a single study, such as read:feed; can be "
    "repeated.",
)
@click.option(
    "--expires-in",
    type=DurationType(low=1.0),
    metavar="TIME",
    help="Time until the key expires, such as 90d; by default, it never expires.",
)
@api_options
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
    """Create a key and print it. It cannot be printed again, because only its hash is stored."""
    with open_api(store, url, key, create=True) as api:
        created = api.create_key(name, scopes, expires_in=expires_in, who=current_user())
    if as_json:
        print_json(created)
        return
    echo(created.key)
    echo("save the key now: it cannot be printed again", err=True)


@key.command("list", short_help="List all keys by prefix.", epilog="\b\nExample:\n  pasto key list\n")
@api_options
@as_json_option
def list_keys(store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """List all keys by prefix, with scopes, creation, expiry and revocation."""
    with open_api(store, url, key) as api:
        keys = api.keys()
    if as_json:
        print_json(keys)
        return
    rows = [
        [
            listed.prefix,
            listed.name,
            " ".join(listed.scopes),
            format_local_time(listed.created_at),
            "never" if listed.expires_at is None else format_local_time(listed.expires_at),
            "" if listed.revoked_at is None else format_local_time(listed.revoked_at),
        ]
        for listed in keys
    ]
    print_table(console(), ["prefix", "name", "scopes", "created", "expires", "revoked"], rows, text=(0, 1, 2, 3, 4, 5))


@key.command(short_help="Print who created, rotated and revoked keys.", epilog="\b\nExample:\n  pasto key audit\n")
@api_options
@as_json_option
def audit(store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Print the audit log of all keys, oldest first."""
    lines: list[AuditRow] = []
    with open_api(store, url, key) as api:
        while page := api.key_audit(after=lines[-1].sequence if lines else 0, limit=1000):
            lines += page
    if as_json:
        print_json(lines)
        return
    rows = [
        [format_local_time(line.at), line.who, line.action, line.detail["prefix"], line.detail["name"]]
        for line in lines
    ]
    print_table(console(), ["when", "who", "what", "prefix", "name"], rows, text=(0, 1, 2, 3, 4))


@key.command(short_help="Revoke a key.", epilog="\b\nExample:\n  pasto key revoke 3f9a2c\n")
@click.argument("prefix")
@api_options
def revoke(prefix: str, store: str, url: str | None, key: str | None) -> None:
    """Revoke a key by its prefix. Running services reject it within seconds."""
    with open_api(store, url, key) as api:
        if not api.revoke_key(prefix, who=current_user()):
            raise OptionError(f"no active key has the prefix {prefix!r}; `pasto key list` lists all keys")
    echo(f"revoked {prefix}", err=True)


@key.command(
    short_help="Replace a key; the old one works for a grace time.",
    epilog="\b\nExample:\n  pasto key rotate 3f9a2c --grace 24h\n",
)
@click.argument("prefix")
@click.option(
    "--grace",
    type=DurationType(),
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Time for which the old key still works.",
)
@api_options
@as_json_option
def rotate(prefix: str, grace: float, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Create a key with the same name and scopes, and print it. The old key expires after the grace time."""
    with open_api(store, url, key) as api:
        created = api.rotate_key(prefix, grace=grace, who=current_user())
    if as_json:
        print_json(created)
        return
    echo(created.key)
    echo(f"save the key now: it cannot be printed again; {prefix} works for {format_duration(grace)} more", err=True)
