"""`pasto webhook`: the webhooks of a running service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pasto.cli.connection import api_options, current_user, open_api
from pasto.cli.options import as_json_option
from pasto.cli.output import console, echo, format_local_time, print_json, print_table
from pasto.errors import InputError

if TYPE_CHECKING:
    from pasto.service.http_client import HttpStudyApi
    from pasto.service.study_api import StudyApi


@click.group(
    short_help="List and test the webhooks of a running service.",
    epilog="\b\nExample:\n  pasto webhook test chat --url http://127.0.0.1:8300\n",
)
def webhook() -> None:
    """List and test the webhooks of a running service.

    The service reads them at its start from --webhook and --webhook-file. They report closed rounds, warnings and
    stops of guardrails, decided confirmations, failing sources and sample-ratio mismatches.
    """


@webhook.command(
    "list", short_help="List the webhooks and their waiting messages.", epilog="\b\nExample:\n  pasto webhook list\n"
)
@api_options
@as_json_option
def list_webhooks(store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """List the webhooks with their events, and the messages that wait to be delivered."""
    with open_api(store, url, key) as api:
        webhooks = require_service(api).webhooks()
    if as_json:
        print_json(webhooks)
        return
    rows = [
        [
            listed.name,
            listed.host,
            f"{listed.format}, signed" if listed.signed else listed.format,
            " ".join(listed.events),
            " ".join(listed.studies),
            str(listed.waiting),
            "" if listed.oldest_at is None else format_local_time(listed.oldest_at),
            listed.last_error or "",
        ]
        for listed in webhooks
    ]
    columns = ["name", "host", "format", "events", "studies", "waiting", "oldest", "last error"]
    print_table(console(), columns, rows, text=(0, 1, 2, 3, 4, 6, 7))


@webhook.command(
    "test", short_help="Send a test message to a webhook.", epilog="\b\nExample:\n  pasto webhook test chat\n"
)
@click.argument("name")
@api_options
@as_json_option
def try_webhook(name: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Send a test message to a webhook now. The exit code is 1 if its receiver does not accept it."""
    with open_api(store, url, key) as api:
        result = require_service(api).try_webhook(name, who=current_user())
    if as_json:
        print_json(result)
    elif result.delivered:
        echo(f"the webhook {name} accepted a test message", err=True)
    else:
        echo(f"the webhook {name} did not accept a test message: {result.error}", err=True)
    if not result.delivered:
        raise SystemExit(1)


@webhook.command(
    "secret", short_help="Print a new secret for signing.", epilog="\b\nExample:\n  pasto webhook secret\n"
)
def secret() -> None:
    """Print a new secret. Give it to the receiver and, in the variable PASTO_WEBHOOK_NAME_SECRET, to the service."""
    from pasto.service.webhook import make_secret

    echo(make_secret())


def require_service(api: StudyApi) -> HttpStudyApi:
    """Return the client of a running service; InputError if there is none."""
    from pasto.service.http_client import HttpStudyApi

    if not isinstance(api, HttpStudyApi):
        raise InputError(
            "webhooks belong to a running service, and none runs on this store; start one with `pasto serve`, or name "
            "one with --url or PASTO_URL"
        )
    return api
