"""Every field of a study file, in one table: the parser refuses what is not in it, the reference lists what is."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """One field, as people are told about it."""

    path: str
    """NAME stands for a name that the file's author chooses."""
    kind: str
    default: str
    """As the file would write it; "required" where there is none, "—" where leaving it out means none."""
    meaning: str
    example: str
    old_name: str = ""
    """Name of the field in files of earlier versions; it is refused with a hint at today's name."""


_COLUMN = (
    ("event", "text", "required", "The event it reads", "watch"),
    ("value", "text", "—", "The event's field that holds its number; for `sum`, `mean`, `max` and `last`", "seconds"),
    (
        "aggregate",
        "`sum`, `count`, `mean`, `any`, `max` or `last`",
        "`sum` with a value, else `count`",
        "What is made of one unit's events; a unit without any counts 0",
        "sum",
        "per_unit",
    ),
    ("cap", "number", "—", "A unit's number is cut down to it: short for `range: [0, cap]`", "7200"),
    ("range", "two numbers", "—", "Between which a unit's number lies, 0 among them; beyond, it is cut", "[-50, 50]"),
    (
        "where",
        "mapping",
        "—",
        "Which events count, by field: a value, a list of values, or comparisons",
        '{surface: home, seconds: {">=": 3}}',
    ),
    ("by", "text", "—", "For `last`: the event's field, such as a timestamp, that says which is the latest", "at"),
    (
        "window",
        "time",
        "—",
        "Only events within it after the unit's first exposure of the round count; at most `rounds.maturity`",
        "2h",
    ),
)

FIELDS = (
    Field("name", "text", "required", "What the study is called everywhere: up to 63 of a-z, 0-9, `_`, `-`", "feed"),
    Field(
        "unit", "text", "user", "What is assigned, and averaged over: `user`, `session`, `request`, any word", "session"
    ),
    Field("description", "text", "—", "What it is for, in up to 2,000 characters", "Weights of the home feed"),
    Field(
        "baseline",
        "mapping or text",
        "required",
        "What is served today: a setting, or a candidate's name",
        "{weight: 1}",
    ),
    Field(
        "parameters",
        "mapping of lists",
        "one of three",
        "The levels of each parameter; every combination is a candidate",
        "{weight: [0, 1, 2]}",
    ),
    Field(
        "candidates",
        "list",
        "one of three",
        "Settings one by one: rows of values, or `{name: …, values: …}` to name one",
        "[{weight: 0}, {name: bold, values: {weight: 2}}]",
    ),
    Field(
        "ranges",
        "mapping",
        "one of three",
        "A continuous space: each parameter a range, or a list of options; new settings are found as it learns",
        "{weight: {low: 0, high: 2}}",
    ),
    Field("ranges.NAME.low", "number", "required", "Lowest value", "0", "from"),
    Field("ranges.NAME.high", "number", "required", "Highest value", "2", "to"),
    Field("ranges.NAME.integer", "bool", "false", "`true`: only integers are tried", "true", "whole"),
    Field(
        "constraints",
        "list of texts",
        "[]",
        "Linear constraints that every setting meets; with `parameters` or `ranges`",
        '["search + 2*social <= 100"]',
    ),
    Field("metrics", "mapping", "required", "What is measured, up to 64 definitions by name", "{likes: {event: like}}"),
    *(Field(f"metrics.NAME.{name}", *rest) for name, *rest in _COLUMN),
    Field(
        "metrics.NAME.ratio",
        "two definitions",
        "—",
        "Numerator and denominator, each with the fields above; their means are divided, not each unit's numbers",
        "[{event: like}, {event: view}]",
    ),
    Field("metrics.NAME.lower_is_better", "bool", "false", "Whether a fall is good news, as for a load time", "true"),
    Field(
        "metrics.NAME.covariate",
        "time or mapping",
        "—",
        "What units did before the round, to take noise out of its lift (CUPED): a look-back, or the fields below",
        "7d",
    ),
    Field("metrics.NAME.covariate.lookback", "time", "required", "How far back before the round to look", "7d"),
    Field("metrics.NAME.covariate.metric", "text", "the metric itself", "The metric to look at instead", "watch_time"),
    Field("metrics.NAME.covariate.cap", "number", "—", "What a unit's number of that time is cut down to", "50000"),
    Field("goal", "mapping", "required", "What the study is for: one of the two below", "{maximize: watch_time}"),
    Field(
        "goal.maximize",
        "text or mapping",
        "—",
        "A metric to raise, or weights by metric",
        "{watch_time: 1, comments: 0.3}",
    ),
    Field("goal.minimize", "text or mapping", "—", "A metric to lower, or weights by metric", "load_time"),
    Field("guardrails", "list", "[]", "What must hold meanwhile, up to 64", "[{metric: like_rate, at_least: -2%}]"),
    Field("guardrails.metric", "text", "required", "The metric", "like_rate", "keep"),
    Field(
        "guardrails.at_least",
        "number or percentage",
        "one of two",
        "Its lowest value: a number in its own units, or a signed percentage over the baseline",
        "-2%",
    ),
    Field("guardrails.at_most", "number or percentage", "one of two", "Its highest value, likewise", "+1%"),
    Field(
        "guardrails.penalty",
        "number",
        "—",
        "Makes it soft: what a breach costs, in goal units per squared unit of breach (percents where relative); "
        "without one it is hard, and the answer meets it with the stated confidence",
        "5",
    ),
    Field(
        "guardrails.loss_budget",
        "number or percentage",
        "—",
        "By how much the served policy may miss it while learning, in the guardrail's own terms",
        "1%",
        "budget",
    ),
    Field(
        "guardrails.stop_at",
        "number or percentage",
        "`at_least` less the tolerance (`at_most` plus it)",
        "Level at which the study stops: when the metric is surely beyond it, traffic is pulled; a number is judged "
        "against the control, or over whole days if there is no control",
        "-5%",
        "floor",
    ),
    Field(
        "guardrails.tolerance",
        "number or percentage",
        "hard: 0; soft: a tenth of the target, or as much again and at least 1% where relative",
        "How far beyond the threshold `stop_at` lies if it is left out",
        "3%",
    ),
    Field("traffic", "mapping", "{}", "Who may be served what, as shares", "{control: 10%, max_share: 30%}"),
    Field("traffic.control", "share", "10%", "Of all units: held on the baseline, to compare with", "5%"),
    Field(
        "traffic.explore", "share", "100%", "Of the others: steered by the learner; the rest gets the baseline", "20%"
    ),
    Field(
        "traffic.min_share", "share", "1%", "Of the learner's units: spread evenly over all candidates", "2%", "floor"
    ),
    Field(
        "traffic.max_share",
        "share",
        "—",
        "The most that any candidate except the baseline gets of the learner's units",
        "30%",
        "cap",
    ),
    Field(
        "traffic.new_candidate_share",
        "share",
        "—",
        "The most that a candidate without any measurement gets of them",
        "1%",
        "entry",
    ),
    Field("rounds", "mapping", "{every: 1h}", "When a round ends, and when it is learned from", "{every: 1h}"),
    Field("rounds.every", "time", "1h", "How long a round lasts", "30min"),
    Field("rounds.exposures", "whole number", "—", "Instead of `every`: end it after so many exposures", "50000"),
    Field("rounds.maturity", "time", "0s", "How long late events are waited for before a round is learned", "2h"),
    Field(
        "rounds.accept_late",
        "time",
        "0s",
        "How long after that a learned round is still corrected by late events",
        "2d",
        "late",
    ),
    Field("exposures", "mapping", "{}", "What is required of exposures that are sent", "{signed: true}"),
    Field(
        "exposures.signed",
        "bool",
        "false",
        "Whether only exposures signed by an SDK with the scope `evaluate` are accepted; not with `source`",
        "true",
    ),
    Field(
        "source",
        "mapping",
        "—",
        "Your own tables of exposures and events, instead of events sent to PASTO",
        "{from: lake, exposures: {table: seen}, events: [{table: plays, event: play, version: policy}]}",
    ),
    Field("source.from", "text", "required", "A place that the operator set: `PASTO_SOURCE_LAKE` for lake", "lake"),
    Field("source.exposures", "mapping", "required", "The table of exposures", "{table: seen, unit: user_id}"),
    Field(
        "source.exposures.table", "text", "required", "Its name; in a folder of files, a folder or file", "lake.seen"
    ),
    Field("source.exposures.unit", "text", "unit", "The column of units", "user_id"),
    Field("source.exposures.version", "text", "version", "The column of the policy's version", "policy"),
    Field("source.exposures.candidate", "text", "—", "The column of the candidate's name, to be checked", "shown"),
    Field(
        "source.exposures.time",
        "text",
        "—",
        "The column of the time (a timestamp, or seconds), where events say no version or a metric has a window or a "
        "covariate",
        "at",
    ),
    Field(
        "source.events", "list", "required", "The tables of events, up to 64", "[{table: plays, event: play, time: at}]"
    ),
    Field("source.events.table", "text", "required", "Its name", "lake.plays"),
    Field("source.events.unit", "text", "unit", "The column of units", "user_id"),
    Field("source.events.name", "text", "name", "The column of the event's name", "kind"),
    Field("source.events.event", "text", "—", "Instead of `name`: what all its events are called", "play"),
    Field("source.events.version", "text", "—", "The column of the policy's version", "policy"),
    Field(
        "source.events.time", "text", "—", "The column of the time: instead of `version`, or beside it as above", "at"
    ),
    Field("source.events.fields", "mapping", "{}", "Columns by field, where their names differ", "{seconds: secs}"),
    Field("learner", "text or mapping", "thompson", "Who learns: a name, or a name with settings", "thompson"),
    Field("learner.name", "`thompson`, `pasto` or `scgd`", "required", "Which learner, where settings follow", "pasto"),
    Field("learner.draws", "whole number", "32", "`thompson`: posterior draws behind each policy", "64"),
    Field(
        "learner.structure",
        "`auto`, `independent` or `process`",
        "auto; process with ranges",
        "`thompson`: whether neighbouring settings share strength",
        "independent",
    ),
    Field(
        "learner.contrast",
        "`auto`, `difference`, `percent` or null",
        "auto if there are a control and at most 500 candidates, else null",
        "`thompson`: learn each round against its own control, so that what moves all candidates alike cancels; auto "
        "takes percent for metrics of a goal or guardrail relative to the baseline, else differences",
        "null",
    ),
    Field("learner.half_life", "number", "—", "`thompson`: after how many rounds an observation counts half", "48"),
    Field("learner.step", "number", "0.1 / candidates", "`pasto` and `scgd`: the step of the mirror ascent", "0.001"),
    Field(
        "confidence",
        "share",
        "95%",
        "With which each hard guardrail and each loss budget holds, from 50% to below 100%",
        "99%",
    ),
    Field("expires_after", "time", "1d", "How long a caller that hears nothing new goes on before the baseline", "6h"),
)

_SETTINGS = {
    "thompson": ("draws", "structure", "contrast", "half_life"),
    "pasto": ("step",),
    "scgd": ("step",),
}


def inside(path: str) -> tuple[str, ...]:
    """The names of the fields directly inside a section; of the whole file for the empty path.

    >>> inside("rounds")
    ('every', 'exposures', 'maturity', 'accept_late')
    """
    prefix = f"{path}." if path else ""
    return tuple(
        field.path[len(prefix) :]
        for field in FIELDS
        if field.path.startswith(prefix) and "." not in field.path[len(prefix) :]
    )


def old_names(section: str) -> dict[str, str]:
    """Return today's names of the renamed fields of a section, by their former names.

    >>> old_names("rounds")
    {'late': 'accept_late'}
    """
    return {
        field.old_name: field.path.rpartition(".")[2]
        for field in FIELDS
        if field.old_name and field.path.rpartition(".")[0] == section
    }


def learner_settings(name: str) -> tuple[str, ...]:
    """The settings that a learner takes beside its name.

    >>> learner_settings("pasto")
    ('step',)
    """
    return _SETTINGS[name]
