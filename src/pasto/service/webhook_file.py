"""Webhook file: the webhooks of a service, each with its events, studies and form.

Secrets come from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from pasto.errors import OptionError, StudyFileError
from pasto.service.settings import Settings
from pasto.service.study_file.loader import read_document
from pasto.service.webhook import DEFAULT_EVENTS, EventName, Webhook, WebhookSpec, decode_secret

DEFAULT_NAME = "default"
"""Name of the webhook that the setting `webhook` makes."""
MAX_WEBHOOKS = 100


class WebhookEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of the file."""

    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]{0,39}$")]
    url: str | None = None
    events: Annotated[tuple[EventName, ...], Meta(min_length=1)] = DEFAULT_EVENTS
    studies: Annotated[tuple[str, ...], Meta(min_length=1)] = ("*",)
    format: Literal["json", "slack"] = "json"
    signed: bool = True
    """Whether messages are signed; those of a Slack-compatible chat never are."""


class WebhookFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Whole file."""

    webhooks: Annotated[tuple[WebhookEntry, ...], Meta(max_length=MAX_WEBHOOKS)]


def read_webhooks(settings: Settings, environment: Mapping[str, str] | None = None) -> tuple[Webhook, ...]:
    """Return the webhooks of a service; OptionError names what is wrong.

    `webhook_file` names a file, and `webhook` one address for every event except closed rounds. The address and the
    secret of the webhook `chat` can be in the variables PASTO_WEBHOOK_CHAT_URL and PASTO_WEBHOOK_CHAT_SECRET.

    >>> hook = Settings(webhook="https://hooks.example.com/pasto")
    >>> [(webhook.spec.name, webhook.host, len(webhook.spec.events)) for webhook in read_webhooks(hook, {})]
    [('default', 'hooks.example.com', 7)]
    """
    environment = os.environ if environment is None else environment
    specs: list[WebhookSpec] = []
    if settings.webhook:
        secret = environment.get(_variable(DEFAULT_NAME, "secret"))
        specs.append(WebhookSpec(DEFAULT_NAME, settings.webhook, secret=secret))
    if settings.webhook_file:
        path = Path(settings.webhook_file)
        specs += [_read_entry(entry, path, environment) for entry in _read_file(path).webhooks]
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"two webhooks have the name {name!r}; give each a name of its own")
    for spec in specs:
        if spec.secret is not None:
            decode_secret(spec.secret)
    return tuple(Webhook(spec, settings.webhook_host_names) for spec in specs)


def _read_file(path: Path) -> WebhookFile:
    try:
        document = read_document(path.read_bytes(), "yaml")
        return msgspec.convert(document, WebhookFile, strict=False)
    except OSError as error:
        raise OptionError(f"the webhook file {path} cannot be read: {error.strerror or error}") from error
    except (StudyFileError, msgspec.ValidationError) as error:
        raise OptionError(
            f"the webhook file {path} cannot be used: {error}; a webhook has name, url, events (of "
            f"{', '.join(get_args(EventName))}), studies, format (json or slack) and signed"
        ) from error


def _read_entry(entry: WebhookEntry, path: Path, environment: Mapping[str, str]) -> WebhookSpec:
    url_variable, secret_variable = _variable(entry.name, "url"), _variable(entry.name, "secret")
    url = entry.url or environment.get(url_variable)
    if not url:
        raise OptionError(f"the webhook {entry.name!r} of {path} needs an address: write url, or set {url_variable}")
    secret = environment.get(secret_variable) if entry.format == "json" and entry.signed else None
    if entry.format == "json" and entry.signed and not secret:
        raise OptionError(
            f"the webhook {entry.name!r} of {path} needs a secret in {secret_variable}; make one with `pasto webhook "
            "secret`, or write signed: false"
        )
    return WebhookSpec(entry.name, url, entry.events, entry.studies, entry.format, secret)


def _variable(name: str, part: str) -> str:
    return f"PASTO_WEBHOOK_{name.upper()}_{part.upper()}"
