"""Service: the platform without its network. It creates studies, serves policies, ingests events and closes rounds."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from msgspec import structs

from pasto.control_characters import check_lines
from pasto.errors import (
    ConflictError,
    LifecycleError,
    OptionError,
    PastoError,
    SourceError,
    StudyExistsError,
    UnknownStudyError,
)
from pasto.report.lift_records import ConfirmationVerdict
from pasto.report.records import ClosedRoundRecord, Report, SourceProblem, WhatIfAnswer, write_record
from pasto.report.replay_report import ReplayReport
from pasto.service.api_keys import ApiKeyRecord, ApiKeys, NewApiKey
from pasto.service.archive import Archive, ArchiveResult
from pasto.service.close_record import CloseSummary, NextPhase, describe_closed_round, summarize_close
from pasto.service.event_decoder import Event, RejectedEvent, decode_events
from pasto.service.holdout import HOLDOUT, HoldoutRecord, HoldoutSetting, describe_holdout, read_holdout_share
from pasto.service.ingest import BatchResult, DrawnUnit, IngestPipeline
from pasto.service.layers import LayerRecord, allot_slice, describe_layers
from pasto.service.lifecycle import PHASES, allowed, check_confirmed, check_draft, check_editable, read_horizon, target
from pasto.service.notifications import (
    Notifier,
    describe_close,
    describe_confirmation,
    describe_failing_source,
    describe_sample_ratio,
    list_phases,
)
from pasto.service.policy_builder import HOLDS
from pasto.service.policy_cache import PolicyCache
from pasto.service.policy_export import export_policy
from pasto.service.ramp import RampTarget, read_target
from pasto.service.rejections import read_rejected_events
from pasto.service.reports.builder import ReportBuilder
from pasto.service.reports.confirmation_report import judge_missing_confirmation
from pasto.service.reports.verdict import SEVERITY
from pasto.service.reports.what_if import WhatIfQuestion
from pasto.service.retention import Retention, UnitErasure, delete_old_exposures
from pasto.service.rounds.close import (
    StudyTransition,
    commit_transition,
    prepare_close,
    summarize_transition,
)
from pasto.service.rounds.data_quality_check import resolve
from pasto.service.rounds.guardrail_state import read_judged_rounds
from pasto.service.rounds.replay import replay_study
from pasto.service.rounds.round_clock import RoundDueCheck, StudyClock, too_many_maturing_rounds
from pasto.service.study_check import SourceCheck, StudyFileCheck, check_file, check_source
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_file.edit import (
    EditPlan,
    EditRequest,
    FieldChange,
    RecordedEdit,
    compare_files,
    parse_request,
    plan_edit,
)
from pasto.service.study_file.spec import LAYER_PARTS
from pasto.service.study_records import DeletedStudy, StudyOverview, StudySummary, describe_study, summarize_study
from pasto.service.study_state import StudyState
from pasto.service.team_sources import SourceHealth
from pasto.service.work_sharing import WorkClaims
from pasto.store import INSTALLATION, NO_SLICE, AuditRow, LayerSliceRow, OutboxRow, Store, StudyRow
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import Bucket

log = logging.getLogger("pasto.service")
MAX_TRIES = 50
"""Tries of a change that conflicts with changes of other nodes."""
MAX_ROWS = 1000
"""Rows of a log that one call returns."""
PAGE_CLOSES = 20
"""Closes that are read from the store at a time."""
REFRESH_ROUNDS = 16
"""Rounds after which the event counts are refreshed, even without a report."""
_OPTIONS = {"deploy": ("without_confirmation",), "confirm": ("shares", "days", "until"), "pause": ("hold",)}


class Service:
    """The operations of the platform.

    Several services may run over one store, in one process or on many machines. Each change names the generation that
    it is based on, so exactly one of several concurrent changes is written, and the others are tried again.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> from pasto.store import open_store
    >>> service = Service(open_store("memory:"))
    >>> service.create(read_spec(EXAMPLE, "yaml").document, who="ann").state
    'draft'
    >>> service.change("feed", "start", who="ann").round
    1
    >>> cell = service.policy_cache.current("feed").draw("user 7")
    >>> cell.name in [share.name for share in service.show("feed").policy.shares]
    True
    >>> service.close_round("feed", who="ann").next_version
    2
    >>> service.replay("feed")
    ReplayReport(identical=True, rounds=1, first_difference=None, exceptions={}, rounding=None)
    >>> service.shutdown()
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        notifier: Notifier | None = None,
        archive: Archive | None = None,
    ) -> None:
        self.store = store
        self._archive = archive or Archive.of_store(store)
        self._notifier = notifier
        self.policy_cache = PolicyCache(store, monotonic)
        self._clock = clock
        self._study_clock = StudyClock(clock, monotonic)
        self._due = RoundDueCheck(store, self._study_clock, monotonic)
        self._pipeline = IngestPipeline(store, self.policy_cache)
        self._reports = ReportBuilder(store)
        self._source_health = SourceHealth(store, clock, self._describe_failing_source)
        self._reported: set[str] = set()
        """Studies whose report was read since their last close: the next report is computed in advance."""
        self._keys: ApiKeys | None = None
        self.claims = WorkClaims(store, clock)
        self.policy_cache.refresh()

    # Studies

    def create(
        self, document: Mapping[str, Any], *, who: str, reason: str = "", seed: int | None = None
    ) -> StudyOverview:
        """Create a draft from a study file; the team's own tables are checked first.

        An archived study of that name is renamed NAME@1, NAME@2 and so on, named in the reply as `archived_as`; all
        that is kept of it stays with it.
        """
        check_lines(who=who, reason=reason)
        spec = parse_spec(document)
        source = check_source(spec)
        now = self._clock()
        chosen = secrets.randbits(62) if seed is None else seed
        earlier, old_name = self.store.read_study(spec.name), self._old_name(spec.name)
        if earlier is not None and earlier.state != "archived":
            cure = "edit or delete the draft" if earlier.state == "draft" else "archive it first"
            raise StudyExistsError(
                f"there is a study {spec.name!r} already ({earlier.state}); choose another name, or {cure}"
            )
        details = "{}"
        if earlier is not None or old_name != f"{spec.name}@1":
            stem, _, place = old_name.rpartition("@")
            details = StudyState(identity=f"{stem}@{int(place) + (earlier is not None)}").to_text()
        line = AuditRow(now, who, "create", reason, {"warnings": list(spec.warnings)})
        for _ in range(MAX_TRIES):
            placed, layer_slice = self._allot_slice(spec)
            row = StudyRow(spec.name, 0, 1, "draft", _text(placed), chosen, 0, 0, now, now, details)
            with suppress(ConflictError):  # another node took the interval first
                self.store.create_study(row, line, rename_archived=old_name, layer_slice=layer_slice)
                break
        else:
            raise ConflictError(f"layer {spec.document['layer']['name']!r} changes too often; try again")
        return structs.replace(
            self.show(spec.name),
            warnings=_warnings(spec, source),
            archived_as=None if earlier is None else old_name,
        )

    def check(self, document: Mapping[str, Any]) -> StudyFileCheck:
        """Check a study file and the tables that it names; nothing is created. StudyFileError lists the problems."""
        checked = check_file(document)
        self._allot_slice(parse_spec(document), checked.name)
        row = self.store.read_study(checked.name)
        return replace(checked, existing=None if row is None or row.state == "archived" else row.state)

    def edit(
        self,
        name: str,
        document: Mapping[str, Any] | None = None,
        *,
        who: str,
        reason: str = "",
        fields: Mapping[str, Any] | None = None,
        add: Sequence[Mapping[str, Any]] = (),
        retire: Sequence[str] = (),
        restore: Sequence[str] = (),
        generation: int | None = None,
        dry_run: bool = False,
    ) -> StudyOverview:
        """Edit the study file of a draft or of a running study: give a whole `document`, or changes of the present one.

        `fields` holds values by path, such as {"traffic.explore": "25%"}; `add`, `retire` and `restore` change the
        candidates. An edit of a running study ends the open round, and takes effect with the next policy.
        StudyFileError lists the fields that a running study cannot change, with the reasons.

        `generation` is that of the study on which the edit is based; ConflictError if the file was edited since. With
        `dry_run` nothing is written: the reply lists the changes.
        """
        check_lines(who=who, reason=reason)
        request = EditRequest(document, fields or {}, tuple(add), tuple(retire), tuple(restore))
        for _ in range(MAX_TRIES):
            row = self._row(name)
            check_editable(name, row.state)
            _check_unedited(row, generation)
            if row.state == "draft":
                edited = self._edit_draft(row, request, who, reason, dry_run=dry_run)
            else:
                edited = self._edit_running(row, request, who, reason, dry_run=dry_run)
            if edited is not None:
                return edited
        raise ConflictError(f"study {name!r} changes too often for edit to be written; try again")

    def _edit_draft(
        self, row: StudyRow, request: EditRequest, who: str, reason: str, *, dry_run: bool
    ) -> StudyOverview | None:
        """Replace the file of a draft; None if another change came first."""
        before = self.policy_cache.spec(row)
        spec = parse_request(before, request) if request.document is None else parse_spec(request.document)
        if spec.name != row.name:
            raise OptionError(
                f"the file is of study {spec.name!r}, and a draft keeps its name {row.name!r}; write name: {row.name}, "
                "or create another study"
            )
        if spec.layer is not None and request.document is None and "layer.start" not in request.fields:
            spec = replace(spec, layer=replace(spec.layer, start=None))
        spec, layer_slice = self._allot_slice(spec, row.name, is_draft=True)
        source = check_source(spec)
        changed = list(dict.fromkeys(part for part in (*before.document, *spec.document)))
        changed = [part for part in changed if before.document.get(part) != spec.document.get(part)]
        changes = tuple(FieldChange(part, before.document.get(part), spec.document.get(part)) for part in changed)
        if not dry_run:
            line = AuditRow(self._clock(), who, "edit", reason, {"changed": changed, "warnings": list(spec.warnings)})
            after = replace(row, generation=row.generation + 1, study_file=_text(spec))
            layer_slice = NO_SLICE if layer_slice is None else layer_slice
            if not self.store.update_study(row, after, audit=[line], layer_slice=layer_slice):
                return None
        return structs.replace(self.show(row.name), warnings=_warnings(spec, source), changes=changes)

    def _edit_running(
        self, row: StudyRow, request: EditRequest, who: str, reason: str, *, dry_run: bool
    ) -> StudyOverview | None:
        """End the open round of a study, and go on under another file; None if another change came first."""
        before, state = self.policy_cache.spec(row), StudyState.from_text(row.details)
        plan, layer_slice = plan_edit(before, request, state.paused_from or row.state), None
        if plan.spec.layer != before.layer:
            spec, layer_slice = self._allot_slice(plan.spec, row.name)
            plan = EditPlan(spec, tuple(compare_files(before, spec)))
        if not dry_run and plan.changes:
            self._check_not_crowded(row)
            open_rounds = len(state.waiting) + len(state.correctable) + 1
            if open_rounds > plan.spec.remembered_policies:
                raise LifecycleError(
                    f"study {row.name!r} has {open_rounds} rounds whose events may still arrive, and with so many "
                    f"candidates it keeps {plan.spec.remembered_policies} policies; add fewer candidates, or wait"
                )
            edit = RecordedEdit(who, reason, plan.changes, before.document, plan.spec.document)
            transition = self._prepare_close(row, NextPhase(row.state, hold=self._find_hold(row)), edit)
            changes = [asdict(change) for change in plan.changes]
            detail = {"closed": row.round, **summarize_transition(transition), "changes": changes}
            if not self._commit(row, transition, who, "edit", reason, detail, layer_slice):
                return None
        return structs.replace(self.show(row.name), warnings=plan.spec.warnings, changes=plan.changes)

    def _allot_slice(
        self, spec: StudySpec, name: str | None = None, *, is_draft: bool = False
    ) -> tuple[StudySpec, LayerSliceRow | None]:
        """Return a study file with its interval in its layer, and the interval; None if it is in no layer.

        `name` is the study that the file is for, if it exists. Only a draft may move to another interval.
        """
        if spec.layer is None:
            return spec, None
        slices = self.store.list_layer_slices()
        present = [row for row in slices if row.study == name and row.layer == spec.layer.name and not is_draft]
        others = [row for row in slices if row.study != name]
        row = allot_slice(spec.layer, spec.assigned_unit, others, present[0] if present else None)
        layer = replace(spec.layer, start=row.start)
        return replace(spec, layer=layer, document={**spec.document, "layer": layer.document()}), row

    def _find_hold(self, row: StudyRow) -> str:
        """Return what a paused study goes on to serve: "baseline" if it serves nothing else."""
        if row.state != "paused":
            return "blend"
        baseline = self.policy_cache.spec(row).baseline
        served = self.policy_cache.current(row.name).cells
        return "baseline" if all(dict(cell.values) == dict(baseline) for cell in served) else "blend"

    def delete(self, name: str, *, who: str, reason: str = "") -> DeletedStudy:
        """Delete a draft, which frees its name; its audit log stays, under the name in the reply."""
        check_lines(who=who, reason=reason)
        for _ in range(MAX_TRIES):
            row = self._row(name)
            check_draft(name, row.state, "delete")
            old_name = self._old_name(name)
            line = AuditRow(self._clock(), who, "delete", reason, {"from": name, "to": old_name})
            if self.store.delete_draft(row, old_name, line):
                with suppress(UnknownStudyError):
                    self.policy_cache.reload(name)
                return DeletedStudy(name, "deleted", old_name)
        raise ConflictError(f"study {name!r} changes too often to be deleted; try again")

    def studies(self) -> list[StudySummary]:
        """Return a summary of every study."""
        self.policy_cache.refresh()
        return [summarize_study(snapshot) for snapshot in self.policy_cache.all()]

    def layers(self) -> list[LayerRecord]:
        """Return every layer with its studies and its free share."""
        return describe_layers(self.store.list_layer_slices())

    def holdout(self) -> HoldoutRecord:
        """Return the holdout, and since when each study leaves it out."""
        self.policy_cache.refresh()
        return describe_holdout(HoldoutSetting.from_text(self.store.read_setting(HOLDOUT)), self.policy_cache.all())

    def set_holdout(self, share: Any, *, who: str, reason: str = "", unit: str = "user") -> HoldoutRecord:
        """Hold a share of units out of all studies that assign this unit, each from its next policy on.

        A larger share keeps the units of a smaller one.
        """
        return self._write_holdout(read_holdout_share(share, unit, self._clock()), who, reason)

    def delete_holdout(self, *, who: str, reason: str = "") -> HoldoutRecord:
        """End the holdout: each study may use all units again, from its next policy on."""
        before = HoldoutSetting.from_text(self.store.read_setting(HOLDOUT))
        return self._write_holdout(HoldoutSetting(0, before.unit, self._clock()), who, reason)

    def _write_holdout(self, setting: HoldoutSetting, who: str, reason: str) -> HoldoutRecord:
        check_lines(who=who, reason=reason)
        before = HoldoutSetting.from_text(self.store.read_setting(HOLDOUT))
        detail = {"from": before.parts / LAYER_PARTS, "to": setting.parts / LAYER_PARTS, "unit": setting.unit}
        line = AuditRow(self._clock(), who, "holdout", reason, detail)
        self.store.write_setting(HOLDOUT, setting.to_text(), line)
        return self.holdout()

    def show(self, name: str) -> StudyOverview:
        """Return the present state of a study."""
        snapshot = self.policy_cache.reload(name)
        return describe_study(
            snapshot,
            self._study_clock.now(snapshot.row),
            self.source_problem(name),
            read_rejected_events(self.store, snapshot.row.number),
        )

    def source_problem(self, name: str) -> SourceProblem | None:
        """Return the problem at the last reading of a team's own tables; None without a problem or such tables."""
        snapshot = self.policy_cache.snapshot(name)
        if snapshot.spec.source is None or snapshot.policy is None:
            return None
        return self._source_health.problem(snapshot.row)

    def failing_sources(self) -> dict[str, SourceProblem]:
        """Return the problems of the teams' own tables by study; {} if all can be read."""
        result = {name: self.source_problem(name) for name in self.policy_cache.names()}
        return {name: problem for name, problem in result.items() if problem is not None}

    def change(self, name: str, action: str, *, who: str, reason: str = "", **options: Any) -> StudyOverview:
        """Start, pause, resume, confirm, deploy or archive a study; LifecycleError lists the possible actions.

        Deploying needs a confirmation in which the goal improved and every hard guardrail was clear of its stop level.
        The reply has the verdict under `confirmation`. Options:

        - `without_confirmation=True`, with a reason, deploys without that: from learning, or from an inconclusive or
          failed confirmation.
        - `shares={"control": ..., "best_single": ..., "blend": ...}` divides the traffic of a confirmation; the default
          is a third each.
        - `days=14`, or `until` a time (ISO 8601, or seconds since 1970), sets when a confirmation is judged.
        - `hold="baseline"` serves the baseline in a pause, even if there is a certified blend; also in a study that is
          paused already.

        A study that the guardrail monitor paused needs a reason to be resumed.
        """
        _check_options(action, options)
        check_lines(who=who, reason=reason)
        for _ in range(MAX_TRIES):
            row = self._row(name)
            details = StudyState.from_text(row.details)
            paused_from = details.paused_from
            skips_confirmation = bool(options.get("without_confirmation"))
            if action == "resume" and details.guardrail_monitor.tripped is not None and not reason.strip():
                tripped = details.guardrail_monitor.tripped
                raise OptionError(
                    f"study {name!r} was stopped by its guardrail monitor ({tripped.reason}); "
                    "to resume it needs a reason, which the audit log keeps; say why it may be served again"
                )
            state = target(
                name,
                row.state,
                action,
                reason=reason,
                paused_from=paused_from,
                without_confirmation=skips_confirmation,
                hold=str(options.get("hold", "")),
            )
            if action == "start":
                check_source(self.policy_cache.spec(row))
            requested = NextPhase(
                state,
                options.get("shares"),
                options.get("hold", "blend"),
                read_horizon(options, self._study_clock.now(row)),
            )
            transition = self._prepare_close(row, requested)
            detail = {"from": row.state, "to": transition.after.state, **summarize_transition(transition), **options}
            verdict = None
            if action == "deploy" and transition.trip is None:
                verdict = self._verdict(row, transition)
                detail["confirmation"] = write_record(verdict)
                if not skips_confirmation:
                    check_confirmed(name, _count_units(transition), verdict)
            if self._commit(row, transition, who, action, reason, detail):
                return structs.replace(self.show(name), confirmation=verdict)
        raise ConflictError(f"study {name!r} changes too often for {action} to be written; try again")

    def move_ramp(self, name: str, to: str | float, *, who: str, reason: str = "") -> StudyOverview:
        """Move the ramp of a learning study, or hold it: `to` is the share of a step, next, back, hold or resume.

        The open round ends, and the next policy enrols the units of the new step. While the ramp is held it takes no
        step forward; a warning still takes it one step back.
        """
        check_lines(who=who, reason=reason)
        for _ in range(MAX_TRIES):
            row = self._row(name)
            spec, state = self.policy_cache.spec(row), StudyState.from_text(row.details)
            target = read_target(name, state.paused_from or row.state, spec.traffic, state.ramp, to)
            if state.ramp is not None and target == RampTarget(state.ramp.step, state.ramp.is_held):
                return self.show(name)
            self._check_not_crowded(row)
            transition = self._prepare_close(row, NextPhase(row.state, hold=self._find_hold(row)), ramp_target=target)
            detail = {
                "closed": row.round,
                "to": to,
                "step": target.step,
                "share": spec.traffic.enrolled(target.step),
                **summarize_transition(transition),
            }
            if self._commit(row, transition, who, "ramp", reason, detail):
                return self.show(name)
        raise ConflictError(f"study {name!r} changes too often for its ramp to be moved; try again")

    # Rounds

    def close_round(self, name: str, *, who: str, reason: str = "", round: int | None = None) -> CloseSummary:
        """Close the open round: learn the matured rounds, and publish the next policy.

        If another node closed it first, that close is returned with `closed` False. `round` names the round to close,
        for a caller whose round may be closed already.
        """
        check_lines(who=who, reason=reason)
        for _ in range(MAX_TRIES):
            row = self._row(name)
            meant = row.round if round is None else round
            if row.round > meant and meant > 0:
                return self._closed(row, meant, False)
            if row.state not in ("learning", *PHASES):
                raise LifecycleError(
                    f"study {name!r} is {row.state}, and only a learning study has rounds to close; possible now: "
                    f"{', '.join(allowed(row.state)) or 'nothing, for this is final'}"
                )
            if row.round != meant:
                raise OptionError(f"round {meant} of study {name!r} has not begun; the open one is {row.round}")
            self._check_not_crowded(row)
            transition = self._prepare_close(row, NextPhase(row.state))
            action = "close" if row.state == "learning" else "look"
            if self._commit(
                row, transition, who, action, reason, {"closed": row.round, **summarize_transition(transition)}
            ):
                return self._closed(row, meant, True)
            round = meant
        raise ConflictError(f"study {name!r} changes too often for its round to be closed; try again")

    def resolve_round(self, name: str, round: int, resolution: str, *, who: str, reason: str) -> StudyOverview:
        """Decide about a held round: "learn" it despite missing events, or "discard" it.

        The next close applies the decision. The audit log stores the reason.
        """
        check_lines(who=who, reason=reason)
        for _ in range(MAX_TRIES):
            row = self._row(name)
            details, findings = resolve(name, row.state, StudyState.from_text(row.details), round, resolution, reason)
            detail = {"held_round": round, "resolution": resolution, "findings": list(map(write_record, findings))}
            line = AuditRow(self._study_clock.now(row), who, "resolve", reason, detail)
            after = replace(row, generation=row.generation + 1, details=details.to_text())
            if self.store.update_study(row, after, audit=[line]):
                self.policy_cache.reload(name)
                return self.show(name)
        raise ConflictError(f"study {name!r} changes too often for its round to be resolved; try again")

    def measure_overdue(self, name: str) -> float | None:
        """Return the seconds for which a study's open round should have been closed; None if it is not due."""
        return self._due.measure_overdue(self.policy_cache.snapshot(name))

    def close_if_due(self, name: str) -> int:
        """Close a study's round if it is due and no other node closes it; return the number of closed rounds."""
        snapshot = self.policy_cache.snapshot(name)
        if not self._due.over(snapshot):
            return 0
        with self.claims.hold(f"close/{snapshot.row.number}") as is_mine:
            if not is_mine:
                return 0
            done = self.close_round(name, who="scheduler", reason="due", round=snapshot.row.round)
        self.policy_cache.reload(name)
        with suppress(Exception):  # the next caller computes the report and gets the error
            if name in self._reported:
                self._reported.discard(name)
                self._report(name)
            elif snapshot.row.round % REFRESH_ROUNDS == 0:
                self._reports.update_counts(snapshot.row.number)
        return int(done.closed)

    def rounds(self, name: str, after: int = 0, limit: int = 100) -> list[ClosedRoundRecord]:
        """Return the closed rounds after round `after`, in order."""
        number, max_rows = self._row(name).number, _limit(limit)
        closed_rounds: list[ClosedRoundRecord] = []
        # A close holds all its measurements, of which the summary shows few: read few closes at a time.
        while len(closed_rounds) < max_rows:
            rows = self.store.list_closes(number, after=after, limit=min(PAGE_CLOSES, max_rows - len(closed_rounds)))
            if not rows:
                break
            closed_rounds += map(describe_closed_round, rows)
            after = rows[-1].round
        return closed_rounds

    def audit(self, name: str, after: int = 0, limit: int = 100) -> list[AuditRow]:
        """Return the audit log of a study, in order."""
        return self.store.read_audit_log(self._row(name).number, after=after, limit=_limit(limit))

    def replay(self, name: str) -> ReplayReport:
        """Compute every policy again from the study file and the log, and report whether each is identical."""
        snapshot = self.policy_cache.reload(name)
        return replay_study(self.store, snapshot.spec, snapshot.row, self._archive)

    def report(self, name: str) -> Report:
        """Report on a study: its blend with certificate and prices, its lifts, and the quality of its data."""
        report = self._report(name)
        self._reported.add(name)
        return report

    def what_if(
        self,
        name: str,
        *,
        maximize: Sequence[str] = (),
        minimize: Sequence[str] = (),
        keep: Sequence[str] = (),
        drop: Sequence[str] = (),
        only: Sequence[str] = (),
    ) -> WhatIfAnswer:
        """Answer another question from what was learned: the study's objective with these parts replaced."""
        question = WhatIfQuestion(tuple(maximize), tuple(minimize), tuple(keep), tuple(drop), tuple(only))
        return self._reports.answer_what_if(self.policy_cache.reload(name), question)

    def export(self, name: str, format: str, *, part: str = "policy", attribute: str | None = None) -> dict[str, Any]:
        """Return the served policy or the blend as a flag of flagd, a feature of GrowthBook, or plain JSON."""
        snapshot = self.policy_cache.reload(name)
        last = self.policy_cache.published(snapshot, snapshot.row.version) if snapshot.row.version else None
        return export_policy(snapshot, last, format, part, attribute)

    def guardrail_severities(self, row: StudyRow) -> dict[str, int]:
        """Return the state of each guardrail: 0 holds, 1 warning, 2 breach."""
        result = {rail.name: 0 for rail in self.policy_cache.spec(row).guardrails}
        for verdict in StudyState.from_text(row.details).guardrail_monitor.verdicts:
            result[verdict.name] = max(result.get(verdict.name, 0), SEVERITY[verdict.state])
        return result

    # Events

    def decode(self, body: bytes, *, lines: bool = False) -> list[Event | RejectedEvent]:
        """Decode a batch of events; an entry that is not an event becomes a rejection."""
        return decode_events(body, lines=lines)

    def ingest(
        self, name: str, events: Sequence[Event | RejectedEvent], *, key: str | None = None, hides_draw: bool = False
    ) -> Future[BatchResult]:
        """Ingest a batch; the result is there when the accepted events are durable.

        `key` is the prefix of the API key that it came with. With `hides_draw`, an event whose candidate is not what
        its policy draws is answered like any other; it is counted as rejected and never learned from.
        """
        return self._pipeline.ingest(name, events, key, hides_draw=hides_draw)

    def signing_key(self, name: str) -> str:
        """Return the key that a study's exposures are signed with; only callers with the scope evaluate may have it."""
        return self._pipeline.signing_key(self.policy_cache.snapshot(name))

    def expose(self, name: str, policy: PublishedPolicy, unit: str, cell: Bucket) -> None:
        """Log an exposure that the service itself decided, once for each policy and unit; never raises, never waits."""
        self._pipeline.expose(name, policy, [DrawnUnit(unit, cell)])

    def expose_all(
        self, name: str, policy: PublishedPolicy, drawn: Iterable[DrawnUnit], *, key: str | None = None
    ) -> None:
        """Log many exposures of one policy together, as `expose` does each."""
        self._pipeline.expose(name, policy, drawn, key)

    # What is kept

    @property
    def retention(self) -> Retention:
        """Retention of the store's events; OptionError if the store has no archive."""
        if self._archive is None:
            raise OptionError("this store has no directory; name its archive with --archive")
        return Retention(self.store, self._archive, clock=self._clock)

    def archive_events(self, name: str, *, who: str, delete_older: float | None = None) -> ArchiveResult:
        """Move the events of every round that was learned to the archive, and delete archived ones that are old."""
        row = self._row(name)
        archived = self.retention.archive(name)
        delete_old_exposures(self.store, row)
        if delete_older is None:
            return archived
        return replace(archived, deleted_rounds=tuple(self.retention.drop(name, older=delete_older)))

    def erase_unit(self, name: str, unit: str, *, who: str, reason: str = "") -> UnitErasure:
        """Delete all data of a unit, including the archive; the audit log stores the amount but not the unit."""
        self._row(name)
        check_lines(who=who, reason=reason)
        return self.retention.forget(name, unit, who=who, reason=reason)

    @property
    def unlogged(self) -> Mapping[str, int]:
        """Exposures of the service's own that could not be logged, by study."""
        return self._pipeline.failures

    # Keys

    def create_key(
        self, name: str, scopes: Sequence[str], *, expires_in: float | None = None, who: str = ""
    ) -> NewApiKey:
        """Create a key; only the result has its secret."""
        return self._key_ring().create(name, scopes, expires_in=expires_in, who=who)

    def keys(self) -> list[ApiKeyRecord]:
        """Return every key without its secret, the oldest first."""
        return self._key_ring().listed()

    def revoke_key(self, prefix: str, *, who: str = "") -> bool:
        """Revoke a key."""
        return self._key_ring().revoke(prefix, who=who)

    def rotate_key(self, prefix: str, *, grace: float, who: str = "") -> NewApiKey:
        """Create a successor of a key, which itself stays valid for `grace` seconds."""
        return self._key_ring().rotate(prefix, grace=grace, who=who)

    def key_audit(self, after: int = 0, limit: int = 100) -> list[AuditRow]:
        """Return who created, rotated and revoked keys, in order."""
        return self.store.read_audit_log(INSTALLATION, after=after, limit=_limit(limit))

    def shutdown(self) -> None:
        """Write pending events and close the store."""
        self.store.close()

    def _report(self, name: str) -> Report:
        self.policy_cache.refresh()
        snapshot = self.policy_cache.reload(name)
        return self._reports.build(
            snapshot,
            self.policy_cache.all(),
            age=max(0.0, self._study_clock.now(snapshot.row) - snapshot.row.opened_at),
            source_problem=self.source_problem(name),
        )

    def _key_ring(self) -> ApiKeys:
        if self._keys is None:
            self._keys = ApiKeys(self.store, clock=self._clock)
        return self._keys

    def _row(self, name: str) -> StudyRow:
        row = self.store.read_study(name)
        if row is None:
            raise UnknownStudyError.named(name)
        return row

    def _old_name(self, name: str) -> str:
        """Return the first free name for a study that gives up its own; @ occurs in no study file's name."""
        place = 1
        while self.store.read_study(f"{name}@{place}") is not None:
            place += 1
        return f"{name}@{place}"

    def _check_not_crowded(self, row: StudyRow) -> None:
        """Raise LifecycleError if ending the open round would lose the oldest round that waits for events."""
        if row.state == "learning" and too_many_maturing_rounds(
            self.policy_cache.spec(row), row, self._study_clock.now(row)
        ):
            raise LifecycleError(
                f"study {row.name!r} has as many rounds waiting for events as it can keep, and closing another would "
                "lose the oldest; wait until that matures, decide about held rounds with `pasto round resolve`, or "
                "pause the study"
            )

    def _prepare_close(
        self,
        row: StudyRow,
        requested: NextPhase,
        edit: RecordedEdit | None = None,
        ramp_target: RampTarget | None = None,
    ) -> StudyTransition:
        snapshot = self.policy_cache.snapshot_of(row)
        try:
            transition = prepare_close(
                self.store,
                snapshot,
                requested,
                now=self._study_clock.now(row),
                past=lambda: read_judged_rounds(self.store, row.number),
                edit=edit,
                ramp_target=ramp_target,
            )
        except SourceError as error:
            self._source_health.record_failure(row, error)
            raise
        measured = transition.learned_from or transition.corrected or transition.held or transition.look is not None
        if snapshot.spec.source is not None and measured:
            self._source_health.record_success(row)
        return transition

    def _verdict(self, row: StudyRow, transition: StudyTransition) -> ConfirmationVerdict:
        if row.state != "confirming" or transition.look is None:
            return judge_missing_confirmation(self.policy_cache.spec(row))
        return self._reports.judge_confirmation(
            self.policy_cache.reload(row.name), *transition.look, now=self._study_clock.now(row)
        )

    def _commit(
        self,
        row: StudyRow,
        transition: StudyTransition,
        who: str,
        action: str,
        reason: str,
        detail: Mapping[str, Any],
        layer_slice: LayerSliceRow | None = None,
    ) -> bool:
        at = transition.after.opened_at if transition.policy is not None else self._study_clock.now(row)
        line, messages = AuditRow(at, who, action, reason, detail), self._list_messages(row, transition, at)
        done = commit_transition(self.store, row, transition, line, messages, layer_slice)
        if done:
            self._study_clock.now(transition.after)  # the new round starts now, not at its next reading
            study = None if transition.learner is None else transition.learner.study
            self.policy_cache.take(transition.after, transition.published, study)
            if self._notifier is not None:
                self._notifier.wake()
                self._report_sample_ratio(row, self._notifier)
        return done

    def _list_messages(self, row: StudyRow, transition: StudyTransition, at: float) -> list[OutboxRow]:
        """Return the messages of a close to the webhooks; a failure in them does not prevent the close."""
        if self._notifier is None:
            return []
        notifications = [*describe_close(row, transition, at)]
        if row.state == "confirming" and transition.look and self._notifier.wants("confirmation_decided", row.name):
            try:
                snapshot = self.policy_cache.snapshot_of(row)
                reports = self._reports.compare_confirmations(snapshot, *transition.look, now=at)
                notifications += describe_confirmation(row, *reports, now=at)
            except (PastoError, ArithmeticError, ValueError) as error:
                log.error("the confirmation of study %r could not be judged for its webhooks: %s", row.name, error)
        return self._notifier.address(row, notifications)

    def _report_sample_ratio(self, row: StudyRow, notifier: Notifier) -> None:
        """Report a sample-ratio mismatch once in each phase, together with the mark that it was reported."""
        if row.state not in ("learning", "confirming") or not notifier.wants("sample_ratio_mismatch", row.name):
            return
        try:
            name, phase = f"sample_ratio/{row.number}", row.state
            reported = list_phases(self.store.read_cache(name))
            if phase in reported:
                return
            sample_ratio = self._reports.read_sample_ratio(self.policy_cache.reload(row.name))
            if sample_ratio is not None and sample_ratio.alarm:
                notification = describe_sample_ratio(row, sample_ratio, self._clock())
                messages = notifier.address(row, [notification])
                self.store.write_cache(name, json.dumps([*reported, phase]), messages)
                notifier.wake()
        except (PastoError, ArithmeticError, ValueError) as error:  # the close itself is written
            log.error("the sample ratio of study %r could not be checked for its webhooks: %s", row.name, error)

    def _describe_failing_source(self, row: StudyRow, problem: SourceProblem) -> list[OutboxRow]:
        if self._notifier is None:
            return []
        return self._notifier.address(row, [describe_failing_source(row, problem)])

    def _closed(self, row: StudyRow, number: int, own: bool) -> CloseSummary:
        result = self.store.list_closes(row.number, after=number - 1, limit=1)
        if not result or result[0].round != number:
            raise LifecycleError(f"round {number} of study {row.name!r} was never closed")
        return summarize_close(row.name, result[0], closed=own)


def _warnings(spec: StudySpec, source: SourceCheck | None) -> tuple[str, ...]:
    """Return the warnings of a study file and of the tables that it names."""
    return (*spec.warnings, *(source.warnings if source else ()))


def _text(spec: StudySpec) -> str:
    return json.dumps(spec.document, separators=(",", ":"), allow_nan=False)


def _check_unedited(row: StudyRow, generation: int | None) -> None:
    """Raise ConflictError if the study file was edited after a generation."""
    if generation is None or generation >= row.generation:
        return
    edits = StudyState.from_text(row.details).edits
    if row.state == "draft" or (edits and edits[-1].generation > generation):
        by = f" by {edits[-1].who}" if edits else ""
        raise ConflictError(
            f"the file of study {row.name!r} was edited{by} after generation {generation}; read it again, and repeat "
            "the edit"
        )


def _count_units(transition: StudyTransition) -> dict[str, int]:
    """Return the units of a phase by arm."""
    units: dict[str, int] = {}
    for cell in () if transition.look is None else transition.look.moments:
        units[cell.arm] = units.get(cell.arm, 0) + cell.units
    return units


def _check_options(action: str, options: Mapping[str, Any]) -> None:
    known = _OPTIONS.get(action, ())
    for name, value in options.items():
        if name not in known:
            raise OptionError(f"{action} takes no {name!r}; it takes {', '.join(known) or 'nothing but a reason'}")
        if name == "hold" and value not in HOLDS:
            raise OptionError(f"hold is {value!r}; a paused study stands still on its {' or its '.join(HOLDS)}")
        if name == "without_confirmation" and not isinstance(value, bool):
            raise OptionError(f"without_confirmation is {value!r}; it is true or false")


def _limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise OptionError(f"limit is {limit!r}; it is a whole number from 1 to {MAX_ROWS}")
    return min(limit, MAX_ROWS)
