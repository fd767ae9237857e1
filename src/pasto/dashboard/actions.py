"""Actions of the dashboard: forms that create, edit, change and replay a study."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote

import yaml

from pasto.dashboard.pages import Pages
from pasto.dashboard.renderer import redirect, render_page
from pasto.dashboard.sessions import Session, Sessions
from pasto.errors import PastoError, StudyFileError
from pasto.report.records import read_record
from pasto.report.replay_report import ReplayReport, describe_difference, describe_exceptions, describe_rounding
from pasto.service.http.auth import hide_studies
from pasto.service.http.body import parse_content_type
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ApiError, HttpResponse, error_response
from pasto.service.http.studies import ask_replay, check_own_study
from pasto.service.lifecycle import check_editable
from pasto.service.rounds.data_quality_check import RESOLUTIONS
from pasto.service.study_file import EXAMPLE, read_document
from pasto.service.study_file.edit import FieldChange
from pasto.service.study_records import StudyOverview

MAX_FORM_FIELDS = 50


async def read_form(call: HttpRequest) -> dict[str, str]:
    """Return the fields of a form, with Unix line ends."""
    media_type = parse_content_type(call.headers)
    if media_type != "application/x-www-form-urlencoded":
        raise ApiError(
            415, "unsupported_type", f"the body must be a form of the dashboard, got {media_type[:60]!r}", rest=True
        )
    body = await call.body()
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=MAX_FORM_FIELDS,
            errors="strict",
            encoding="utf-8",
        )
    except ValueError:
        raise ApiError(400, "bad_request", "the form cannot be read; reload the page and repeat") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def detect_format(text: str) -> str:
    """Return the format of a pasted study file.

    >>> detect_format('{"name": "feed"}'), detect_format("name: feed"), detect_format('name = "feed"')
    ('json', 'yaml', 'toml')
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if lines and lines[0].startswith("{"):
        return "json"
    first = lines[0] if lines else ""
    equals, colon = first.find("="), first.find(":")
    return "toml" if first.startswith("[") or (equals > 0 and (colon < 0 or equals < colon)) else "yaml"


@dataclass(frozen=True, slots=True)
class StudyForm:
    """Form of a new study, or of the file of a study that is edited."""

    text: str
    problems: Mapping[str, str]
    """Sentences by field; the whole file has no name."""
    reason: str
    editing: str
    """Name of the edited study; empty for a new one."""
    running: bool
    generation: int | None
    changes: Sequence[FieldChange] | None
    """Changes of a running study to confirm; None before they are known."""
    place: str
    """Path of the edited study."""


@dataclass(frozen=True, slots=True)
class ReplayPart:
    """Result of a replay, or the note that other studies are being replayed."""

    busy: bool
    result: ReplayReport | None = None
    difference: str | None = None
    rounding: str = ""
    exceptions: tuple[str, ...] = ()


def describe_replay(result: ReplayReport) -> ReplayPart:
    """Return the result of a replay with its sentences."""
    return ReplayPart(
        busy=False,
        result=result,
        difference=describe_difference(result),
        rounding=describe_rounding(result),
        exceptions=tuple(describe_exceptions(result)),
    )


def _read_step(text: str) -> str | float:
    """Return the step of a ramp from a form, which writes shares as numbers."""
    try:
        return float(text)
    except ValueError:
        return text


class Actions:
    """Forms that change something; each contains the token of the session."""

    def __init__(self, sessions: Sessions, pages: Pages) -> None:
        self._sessions = sessions
        self._pages = pages

    async def show_new_form(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Show the form for a new study, filled with an example."""
        self._require_admin(session, "")
        return self._render_form(session, EXAMPLE, {})

    async def create(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Create a study, or show the problems of its file by field."""

        def save(document: dict[str, Any], reason: str) -> StudyOverview:
            check_own_study(session.caller, document)
            return call.service.create(document, who=session.name, reason=reason)

        form = await self._read_form(call, session, "")
        response, _ = await self._save(call, session, save, form.get("text", ""), form.get("reason", ""))
        return response

    async def show_edit_form(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Show the form for a draft or a running study, filled with its file."""
        name = call.path("name")
        self._require_admin(session, name)
        study = await call.run(lambda: call.service.show(name))
        check_editable(name, study.state)
        text = yaml.safe_dump(
            dict(study.document), sort_keys=False, default_flow_style=None, allow_unicode=True, width=100
        )
        return self._render_form(session, text, {}, editing=study)

    async def edit(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Replace the file of a study, or show the problems of the new file by field.

        The changes of a running study are shown first, and saved by a second request.
        """
        name = call.path("name")
        form = await self._read_form(call, session, name)
        study = await call.run(lambda: call.service.show(name))
        text, reason, sent = form.get("text", ""), form.get("reason", ""), form.get("generation", "")
        generation = int(sent) if sent.isdecimal() and len(sent) < 16 else None
        preview = study.state != "draft" and form.get("step") != "apply"

        def save(document: dict[str, Any], reason: str) -> StudyOverview:
            return call.service.edit(
                name, document, who=session.name, reason=reason, generation=generation, dry_run=preview
            )

        response, planned = await self._save(call, session, save, text, reason, editing=study)
        if not preview or planned is None:
            return response
        return self._render_form(session, text, {}, reason, editing=study, changes=planned.changes or ())

    async def _save(
        self,
        call: HttpRequest,
        session: Session,
        save: Callable[[dict[str, Any], str], StudyOverview],
        text: str,
        reason: str,
        editing: StudyOverview | None = None,
    ) -> tuple[HttpResponse, StudyOverview | None]:
        """Save a study file; return the page that follows, and the study unless the file has problems."""
        file_format: Any = detect_format(text)
        try:
            saved = await call.run(lambda: save(read_document(text, file_format), reason))
        except (PastoError, ApiError) as raised:
            error = hide_studies(raised, session.caller)
            if isinstance(error, StudyFileError):
                return self._render_form(session, text, error.problems, reason, status=422, editing=editing), None
            response = error_response(error, call.settings.retry_after)
            status = 400 if response is None else response.status
            return self._render_form(session, text, {"": str(error)}, reason, status=status, editing=editing), None
        return redirect(f"/studies/{quote(saved.name, safe='')}"), saved

    async def change(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Change the state of a study, or show why that is not possible."""
        name = call.path("name")
        form = await self._read_form(call, session, name)
        action, reason = form.get("action", ""), form.get("reason", "")
        is_final = action == "archive" or (action == "deploy" and form.get("without_confirmation") == "yes")
        if is_final and form.get("typed_name", "").strip() != name:
            problem = f"{action} needs the name of the study, typed as {name!r}; nothing was changed"
            return await self._pages.render_study(call, session, name, problem, 400)
        options: dict[str, str | bool] = {}
        if action == "pause" and "hold" in form:
            options["hold"] = form["hold"]
        if action == "deploy" and form.get("without_confirmation") == "yes":
            options["without_confirmation"] = True

        def work() -> None:
            if action == "close":
                call.service.close_round(name, who=session.name, reason=reason)
            elif action == "delete":
                call.service.delete(name, who=session.name, reason=reason)
            elif action == "ramp":
                call.service.move_ramp(name, _read_step(form.get("to", "")), who=session.name, reason=reason)
            elif action in RESOLUTIONS:
                number = int(form["round"]) if form.get("round", "").isdecimal() else 0
                call.service.resolve_round(name, number, action, who=session.name, reason=reason)
            else:
                call.service.change(name, action, who=session.name, reason=reason, **options)

        try:
            await call.run(work)
        except PastoError as error:
            response = error_response(error, call.settings.retry_after)
            if response is None or response.status == 404:
                raise
            return await self._pages.render_study(call, session, name, str(error), response.status)
        return redirect("/" if action == "delete" else f"/studies/{quote(name, safe='')}")

    async def replay(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Replay a study and show the result; everyone who may read studies may do this."""
        name = call.path("name")
        form = await read_form(call)
        self._sessions.check_form(call, session, form.get("token", ""))
        try:
            result = read_record(json.loads((await ask_replay(call, name)).body), ReplayReport)
        except ApiError as error:
            if error.code != "overloaded":
                raise
            return render_page("parts/replay.html", ReplayPart(busy=True))
        return render_page("parts/replay.html", describe_replay(result))

    async def _read_form(self, call: HttpRequest, session: Session, study: str) -> dict[str, str]:
        form = await read_form(call)
        self._sessions.check_form(call, session, form.get("token", ""))
        self._require_admin(session, study)
        return form

    def _require_admin(self, session: Session, study: str) -> None:
        """Raise `ApiError` unless the visitor may change a study, or create one if no study is given."""
        if session.may_change_study(study) if study else session.may_create:
            return
        scope = f"the scope admin, or admin:{study}," if study else "the scope admin"
        if session.person is not None:
            raise ApiError(403, "forbidden", f"a role with {scope} is needed; none of your groups has one")
        raise ApiError(403, "forbidden", f"a key with {scope} is needed; log out, and log in with one")

    def _render_form(
        self,
        session: Session,
        text: str,
        problems: Mapping[str, str],
        reason: str = "",
        status: int = 200,
        editing: StudyOverview | None = None,
        changes: Sequence[FieldChange] | None = None,
    ) -> HttpResponse:
        form = StudyForm(
            text,
            problems,
            reason,
            editing="" if editing is None else editing.name,
            running=editing is not None and editing.state != "draft",
            generation=None if editing is None else editing.generation,
            changes=changes,
            place="" if editing is None else f"/studies/{quote(editing.name, safe='')}",
        )
        return render_page("new.html", self._pages.frame(session), form, status=status)
