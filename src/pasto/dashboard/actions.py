"""What can be done from a page: create a study, take it through its life, replay it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, quote

import yaml

from pasto.dashboard.pages import Pages
from pasto.dashboard.renderer import redirect, render_page
from pasto.dashboard.sessions import Session, Sessions
from pasto.errors import PastoError, StudyFileError
from pasto.report.replay_text import describe_exceptions
from pasto.service.http.body import content_type
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ApiError, HttpResponse, explained
from pasto.service.http.studies import replayed
from pasto.service.lifecycle import check_draft
from pasto.service.rounds.data_check import RESOLUTIONS
from pasto.service.study_file import EXAMPLE, read_document

FIELDS = 50
"""Fields that a form has at most."""


async def read_form(call: HttpRequest) -> dict[str, str]:
    """A form's fields; line ends are as on Unix."""
    sent = content_type(call.headers)
    if sent != "application/x-www-form-urlencoded":
        raise ApiError(415, "unsupported_type", f"a form of these pages was expected, got {sent[:60]!r}", rest=True)
    body = await call.body()
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS, errors="strict", encoding="utf-8"
        )
    except ValueError:
        raise ApiError(400, "bad_request", "the form cannot be read; load the page again and repeat") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def kind_of(text: str) -> str:
    """Which form a pasted study file has.

    >>> kind_of('{"name": "feed"}'), kind_of("name: feed"), kind_of('name = "feed"')
    ('json', 'yaml', 'toml')
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if lines and lines[0].startswith("{"):
        return "json"
    first = lines[0] if lines else ""
    equals, colon = first.find("="), first.find(":")
    return "toml" if first.startswith("[") or (equals > 0 and (colon < 0 or equals < colon)) else "yaml"


KINDS = ("yaml", "json", "toml")


class Actions:
    """Forms that change something; every one of them carries the visitor's token."""

    def __init__(self, visitors: Sessions, views: Pages) -> None:
        self._visitors = visitors
        self._views = views

    async def blank(self, call: HttpRequest, visitor: Session) -> HttpResponse:
        """The form for a new study, filled with an example."""
        self._check_may(visitor)
        return self._form(visitor, EXAMPLE, {})

    async def create(self, call: HttpRequest, visitor: Session) -> HttpResponse:
        """Create a study, or show what is wrong with its file by field."""

        def save(document: dict[str, Any], reason: str) -> dict[str, Any]:
            return call.service.create(document, who=visitor.name, reason=reason)

        return await self._save(call, visitor, save)

    async def draft(self, call: HttpRequest, visitor: Session) -> HttpResponse:
        """The form for a draft's file, filled with what it is now."""
        self._check_may(visitor)
        name = call.path("name")
        shown = await call.run(lambda: call.service.show(name))
        check_draft(name, shown["state"], "edit")
        text = yaml.safe_dump(
            shown["document"], sort_keys=False, default_flow_style=None, allow_unicode=True, width=100
        )
        return self._form(visitor, text, {}, editing=name)

    async def edit(self, call: HttpRequest, visitor: Session) -> HttpResponse:
        """Put a file in the place of a draft's, or show what is wrong with it by field."""
        name = call.path("name")

        def save(document: dict[str, Any], reason: str) -> dict[str, Any]:
            return call.service.edit(name, document, who=visitor.name, reason=reason)

        return await self._save(call, visitor, save, editing=name)

    async def _save(
        self,
        call: HttpRequest,
        visitor: Session,
        save: Callable[[dict[str, Any], str], dict[str, Any]],
        editing: str = "",
    ) -> HttpResponse:
        form = await self._form_of(call, visitor)
        text, reason = form.get("text", ""), form.get("reason", "")
        kind: Any = kind_of(text)
        try:
            saved = await call.run(lambda: save(read_document(text, kind), reason))
        except StudyFileError as error:
            return self._form(visitor, text, error.problems, reason, status=422, editing=editing)
        except PastoError as error:
            told = explained(error, call.settings.retry_after)
            status = 400 if told is None else told.status
            return self._form(visitor, text, {"": str(error)}, reason, status=status, editing=editing)
        return redirect(f"/studies/{quote(str(saved['name']), safe='')}")

    async def change(self, call: HttpRequest, visitor: Session) -> HttpResponse:
        """One step in a study's life, or why not."""
        name = call.path("name")
        form = await self._form_of(call, visitor)
        action, reason = form.get("action", ""), form.get("reason", "")
        options: dict[str, Any] = {}
        if action == "pause" and "hold" in form:
            options["hold"] = form["hold"]
        if action == "deploy" and form.get("without_confirmation") == "yes":
            options["without_confirmation"] = True

        def work() -> None:
            if action == "close":
                call.service.close_round(name, who=visitor.name, reason=reason)
            elif action == "delete":
                call.service.delete(name, who=visitor.name, reason=reason)
            elif action in RESOLUTIONS:
                number = int(form["round"]) if form.get("round", "").isdecimal() else 0
                call.service.resolve_round(name, number, action, who=visitor.name, reason=reason)
            else:
                call.service.change(name, action, who=visitor.name, reason=reason, **options)

        try:
            await call.run(work)
        except PastoError as error:
            told = explained(error, call.settings.retry_after)
            if told is None or told.status == 404:
                raise
            return await self._views.shown(call, visitor, name, str(error), told.status)
        return redirect("/" if action == "delete" else f"/studies/{quote(name, safe='')}")

    async def replay(self, call: HttpRequest, visitor: Session) -> HttpResponse:
        """Compute every policy again, and say whether each is the same; whoever may look may ask for it."""
        name = call.path("name")
        form = await read_form(call)
        self._visitors.check_form(call, visitor, form.get("token", ""))
        try:
            told = json.loads((await replayed(call, name)).body)
        except ApiError as refused:
            if refused.code != "too_busy":
                raise
            return render_page("parts/replay.html", {"busy": True, "told": None})
        return render_page(
            "parts/replay.html", {"busy": False, "told": told, "exceptions": list(describe_exceptions(told))}
        )

    async def _form_of(self, call: HttpRequest, visitor: Session) -> dict[str, str]:
        form = await read_form(call)
        self._visitors.check_form(call, visitor, form.get("token", ""))
        self._check_may(visitor)
        return form

    def _check_may(self, visitor: Session) -> None:
        if not visitor.may_act:
            raise ApiError(403, "forbidden", "this needs a key with the scope admin; log out, and in again with one")

    def _form(
        self,
        visitor: Session,
        text: str,
        problems: dict[str, str] | Any,
        reason: str = "",
        status: int = 200,
        editing: str = "",
    ) -> HttpResponse:
        values = {
            **self._views.frame(visitor),
            "text": text,
            "problems": dict(problems),
            "reason": reason,
            "editing": editing,
            "place": f"/studies/{quote(editing, safe='')}" if editing else "",
        }
        return render_page("new.html", values, status)
