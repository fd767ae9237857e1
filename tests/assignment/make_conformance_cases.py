"""Generator of clients/conformance/cases.json: decisions that every client must repeat. Run it for a new format."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pasto_sdk.enrolment import AudienceCondition, EnrolmentSlice, SegmentAttribute, SegmentRule
from pasto_sdk.policy import PublishedPolicy, publish_policy
from pasto_sdk.policy_document import BUCKET_TOTAL, RENAMED_ARMS, Value, write_policy

WHERE = Path(__file__).parents[2] / "clients" / "conformance" / "cases.json"

ABOUT = (
    "policies: each has a document (text, with its checksum) and draws as [place in units, arm, candidate's index, "
    "width, place in attributes, segment]; the propensity is width / 2^53. Draws without a place in attributes have no "
    "attributes, and draws without a segment have none. "
    "refused_documents must not be read; refused_units must not be drawn for, by any policy. Draws have the arms' "
    "present names, also those of documents of format 1. Everything outside ASCII is escaped."
)

UNITS = [
    "a",
    " ",
    "0",
    "\0",
    "nul\0inside",
    "\0\0",
    "user-1",
    "user-1 ",
    "User-1",
    "müller",
    "mu\u0308ller",
    "用户一",
    "ユーザー",
    "사용자",
    "пользователь",
    "مستخدم",
    "משתמש",
    "\u202eright to left\u202c",
    "👍",
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈🇫🇷",
    "e\u0301\u0302\u0303",
    "\ufeffbom",
    "\uffff",
    "\U0010ffff",
    "line\nbreak\r\ttab",
    '"quoted\\"',
    "</script>",
    "550e8400-e29b-41d4-a716-446655440000",
    "x" * 256,
    "é" * 256,
    "用" * 256,
    "👍" * 256,
    *("p" * length for length in (40, 47, 48, 49, 55, 56, 57, 63, 64, 65, 112, 119, 120, 127, 128)),
    *(f"unit-{number}" for number in range(17)),
]

ATTRIBUTES: list[dict[str, Any]] = [
    {},
    {"country": "de", "tenure_days": 9, "employee": False},
    {"country": "at", "tenure_days": 7, "employee": False, "further": "x"},
    {"country": "at", "tenure_days": 6.999999999999999, "employee": False},
    {"country": "DE", "tenure_days": 9, "employee": False},
    {"country": "de ", "tenure_days": 9, "employee": False},
    {"country": "de", "tenure_days": "9", "employee": False},
    {"country": "de", "tenure_days": True, "employee": False},
    {"country": "de", "tenure_days": 9, "employee": 0},
    {"country": "de", "tenure_days": 9, "employee": None},
    {"country": "de", "tenure_days": 9, "employee": True},
    {"country": ["de"], "tenure_days": 9, "employee": False},
    {"country": {"code": "de"}, "tenure_days": 9, "employee": False},
    {"country": "de", "tenure_days": 29.9, "employee": False},
    {"country": "de", "tenure_days": 30, "employee": False},
    {"country": "de", "tenure_days": 1e15, "employee": False},
    {"country": "de", "tenure_days": 1.1e15, "employee": False},
    {"country": "de", "tenure_days": -1e15, "employee": False},
    {"country": "de", "employee": False},
    {"tenure_days": 9, "employee": False},
    {"country": "de", "tenure_days": 9},
    {"größe 👍": 1.0, "plan": "ü"},
    {"größe 👍": 1, "plan": "u\u0308"},
    {"größe 👍": "1", "plan": "ü"},
    {"größe 👍": True, "plan": "ü"},
    {"größe 👍": 2, "plan": ""},
    {"größe 👍": -0.0, "plan": "ü"},
    {"größe 👍": 7.5, "plan": ""},
    {"tenure_days": 30.000000000000004},
    {"tenure_days": 29.999999999999996, "plan": "u\u0308", "country": "de", "employee": False},
    {"tenure_days": -1e300, "plan": "ü", "country": "de"},
    {"tenure_days": "30", "plan": None},
]

GERMAN = [
    AudienceCondition("country", "in", ("de", "at")),
    AudienceCondition("tenure_days", ">=", (7.0,)),
    AudienceCondition("employee", "in", (False,)),
]

Shares = list[tuple[str, int, float]]


def policy(
    shares: Shares,
    *,
    salt: str = "feed/1",
    mode: Literal["shuffled", "sticky"] = "shuffled",
    state: str = "learning",
    version: int = 1,
    names: dict[int, str] | None = None,
    baseline: int = 0,
    enrolment: Sequence[EnrolmentSlice] = (),
    audience: Sequence[AudienceCondition] = (),
    segments: SegmentRule | None = None,
    segment_shares: Sequence[Shares] = (),
    cluster: str | None = None,
) -> PublishedPolicy:
    candidates: dict[int, tuple[str, dict[str, Value]]]
    drawn = {k for served in (shares, *segment_shares) for _, k, _ in served}
    candidates = {index: (f"c{index}", {"weight": index / 4}) for index in {baseline, *drawn}}
    named: dict[int, tuple[str, dict[str, Value]]]
    named = {index: (name, {"weight": index, "label": name, "on": True}) for index, name in (names or {}).items()}
    return publish_policy(
        study="feed",
        version=version,
        round=version,
        state=state,
        mode=mode,
        salt=salt,
        candidates={**candidates, **named},
        baseline=baseline,
        shares=shares,
        valid_from=1_700_000_000.5,
        expires_after=86_400,
        enrolment=enrolment,
        audience=audience,
        segments=segments,
        segment_shares={} if segments is None else dict(zip(segments.names, segment_shares, strict=True)),
        cluster=cluster,
    )


def policies() -> Iterator[tuple[str, PublishedPolicy, list[str]]]:
    """Yield a description, a policy, and units to draw in addition to the usual ones."""
    rng = random.Random(20)
    weights = [rng.random() ** 3 for _ in range(40)]
    uneven = [weight / sum(weights) for weight in weights]
    floors = [("learner", 0, 1 - 99e-6), *(("learner", k, 1e-6) for k in range(1, 100))]
    learning = [("control", 4, 0.1), *(("learner", k, 0.7 / 10) for k in range(10)), ("not_enrolled", 4, 0.2)]
    confirming = [("control", 4, 1 / 3), ("best_single", 7, 1 / 3), ("blend", 2, 0.2), ("blend", 7, 1 / 3 - 0.2)]
    deployed = [("control", 4, 0.05), ("blend", 2, 0.57), ("blend", 7, 0.3), ("blend", 8, 0.08)]
    names = {0: "weight=1, label='ä'", 1: "用户 👍", 2: "mu\u0308", 3: "מ", 4: "b"}

    yield "one candidate", policy([("learner", 0, 1.0)]), []
    yield "two halves", policy([("learner", 0, 0.5), ("learner", 1, 0.5)]), []
    yield "three thirds, which no binary fraction is", policy([("learner", k, 1 / 3) for k in range(3)]), []
    yield "control, learner and units that are not enrolled", policy(learning, baseline=4), []
    yield "the next version shuffles again", policy(learning, baseline=4, version=2, salt="feed/2"), []
    rare = policy(floors)
    found = [unit for unit in (f"rare-{n}" for n in range(60_000)) if rare.draw(unit).candidate]
    yield "floors of one in a million, and units that fall on them", rare, found
    yield "uneven shares", policy([("learner", k, share) for k, share in enumerate(uneven)]), []
    yield "a thousand candidates", policy([("learner", k, 1 / 1000) for k in range(1000)]), []
    yield "cells one part wide", policy([("learner", 0, 1e-300), ("learner", 1, 1.0), ("learner", 2, 1e-20)]), []
    yield "cuts on either side of a unit's place", *edges()
    yield "a salt beyond one block of the hash", policy(learning, baseline=4, salt="s" * 130), []
    yield "names and salt outside ASCII", policy([("learner", k, 0.2) for k in names], names=names, salt="ψ/1"), []
    yield "confirming: sticky arms", policy(confirming, state="confirming", mode="sticky", salt="feed", baseline=4), []
    blend = policy(deployed, state="deployed", mode="sticky", salt="feed", baseline=4)
    yield "deployed: a sticky blend, and units that were nearly another's", blend, close_calls(blend)
    moved = [("control", 4, 0.05), ("blend", 2, 0.5), ("blend", 7, 0.45)]
    yield "a later blend keeps most units", policy(moved, state="deployed", mode="sticky", salt="feed", version=2), []
    yield "deployed by request", policy(deployed, state="deployed", salt="feed/9", version=9), []
    yield "paused on the baseline", policy([("paused", 4, 1.0)], state="paused", salt="feed", baseline=4), []
    paused = [("paused", 2, 0.6), ("paused", 7, 0.4)]
    yield "paused on a blend", policy(paused, state="paused", mode="sticky", salt="feed"), []
    sticky = policy([("blend", k, 0.2) for k in names], names=names, mode="sticky", salt="ψ", state="deployed")
    yield "sticky, names and salt outside ASCII", sticky, []
    many = [("blend", k, share) for k, share in enumerate(uneven)]
    yield "a sticky blend of forty", policy(many, mode="sticky", salt="feed", state="deployed"), []
    lopsided = [("blend", 0, 1e-6), ("blend", 1, 1 - 2e-6), ("blend", 2, 1e-6)]
    yield "a sticky blend with floors", policy(lopsided, mode="sticky", salt="feed", state="deployed"), []
    yield "format 1, learning", in_format_1(policy(learning, baseline=4)), []
    first = policy(confirming, state="confirming", mode="sticky", salt="feed", baseline=4)
    yield "format 1, confirming", in_format_1(first), []
    yield "format 1, paused", in_format_1(policy(paused, state="paused", mode="sticky", salt="feed")), []
    absent = dict.fromkeys(("segments", "enrolment", "audience", "cluster"))
    yield "fields that are null", with_fields(policy(learning, baseline=4), absent), []
    yield from enrolled()
    yield from segmented()
    yield from clustered()


def enrolled() -> Iterator[tuple[str, PublishedPolicy, list[str]]]:
    """Yield policies in which only some units take part."""
    thirds = [("control", 4, 0.1), *(("learner", k, 0.3) for k in range(3))]
    crowd = [f"crowd-{number}" for number in range(60)]
    ramps = {percent: EnrolmentSlice("ramp", "ramp:feed", 0, BUCKET_TOTAL * percent // 100) for percent in (1, 5, 25)}
    queue = [(f"ramp-{number}", place("ramp:feed", f"ramp-{number}")) for number in range(2_000)]
    climbers = [unit for ramp in ramps.values() for unit in [unit for unit, own in queue if own < ramp.until][:15]]
    for percent, ramp in ramps.items():
        about = f"a ramp at {percent} %: a smaller share is a part of a larger one"
        yield about, policy(thirds, baseline=4, enrolment=[ramp]), [*crowd, *dict.fromkeys(climbers)]
    quarter = EnrolmentSlice("ramp", "ramp:feed", 0, BUCKET_TOTAL // 4)
    yield (
        "the next version, and the same units",
        policy(thirds, baseline=4, salt="feed/2", enrolment=[quarter]),
        [
            *crowd,
            *dict.fromkeys(climbers),
        ],
    )
    layer = [EnrolmentSlice("layer", "layer:home", 0, BUCKET_TOTAL // 2)]
    other = [EnrolmentSlice("layer", "layer:home", BUCKET_TOTAL // 2, BUCKET_TOTAL)]
    yield "the lower half of a layer", policy(thirds, baseline=4, enrolment=layer), crowd
    yield "its upper half", policy(thirds, baseline=4, enrolment=other), crowd
    holdout = EnrolmentSlice("holdout", "holdout:global", BUCKET_TOTAL // 20, BUCKET_TOTAL)
    all_three = policy(thirds, baseline=4, enrolment=[holdout, *layer, quarter])
    yield "a holdout, a layer and a ramp", all_three, crowd
    own = [place("layer:ψ", unit) for unit in crowd]
    for name, start, until in (("its own place on", min(own), BUCKET_TOTAL), ("below its own place", 0, max(own))):
        edge = EnrolmentSlice("layer", "layer:ψ", start, until)
        yield f"a slice from a unit to {name}", policy(thirds, baseline=4, enrolment=[edge]), crowd
    deployed = [("control", 4, 0.1), ("blend", 2, 0.5), ("blend", 7, 0.4)]
    sticky = policy(deployed, mode="sticky", salt="feed", state="deployed", baseline=4, enrolment=[holdout, *other])
    yield "a sticky blend in a layer", sticky, crowd
    yield "an audience", policy(thirds, baseline=4, audience=GERMAN), crowd
    between = [AudienceCondition("tenure_days", ">=", (7.0,)), AudienceCondition("tenure_days", "<", (30.0,))]
    yield "an audience between two numbers", policy(thirds, baseline=4, audience=between), crowd
    open_ends = [AudienceCondition("tenure_days", ">", (7.0,)), AudienceCondition("tenure_days", "<=", (30.0,))]
    yield "an audience with open ends", policy(thirds, baseline=4, audience=open_ends), crowd
    odd = [AudienceCondition("größe 👍", "in", (0.0, 1.0)), AudienceCondition("plan", "in", ("ü", ""))]
    yield "an audience outside ASCII, of numbers and texts", policy(thirds, baseline=4, audience=odd), crowd
    both = policy(thirds, baseline=4, enrolment=[quarter], audience=GERMAN[:2])
    yield "an audience within a ramp", both, crowd
    most = EnrolmentSlice("ramp", "ramp:feed", 0, BUCKET_TOTAL * 4 // 5)
    everything = policy(thirds, baseline=4, enrolment=[holdout, *layer, most], audience=GERMAN[:1])
    yield "a holdout, a layer, a ramp and an audience", everything, crowd
    shops = policy(
        deployed,
        mode="sticky",
        salt="feed",
        state="deployed",
        baseline=4,
        enrolment=[holdout, *other],
        audience=GERMAN[:1],
    )
    yield "a sticky blend in a layer, for an audience", shops, crowd


def segmented() -> Iterator[tuple[str, PublishedPolicy, list[str]]]:
    """Yield policies in which the attributes of a unit decide on its shares."""
    crowd = [f"crowd-{number}" for number in range(60)]
    country = SegmentAttribute("country", ("de", "at", "DE"))
    tenure = SegmentAttribute("tenure_days", cuts=(7.0, 29.9, 30.0))
    learning: list[Shares] = [
        [("control", 4, 0.1), *(("learner", k, 0.9 * (0.1 if k != favourite else 0.7)) for k in range(4))]
        for favourite in (0, 1, 2, 3, 0)
    ]
    rest = learning[4]
    by_country = SegmentRule((country,), ("de", "at", "DE"))
    made = policy(rest, baseline=4, segments=by_country, segment_shares=learning[:3])
    yield "a segment for each value", made, crowd
    by_tenure = SegmentRule((tenure,), ("tenure_days < 7", "7 to 29.9", "29.9 to 30", "tenure_days >= 30"))
    yield "segments between cuts", policy(rest, baseline=4, segments=by_tenure, segment_shares=learning[:4]), crowd
    one_cut = SegmentRule((SegmentAttribute("tenure_days", cuts=(-0.0,)),), ("below", "from zero"))
    single: list[Shares] = [[("learner", k, 1.0)] for k in range(12)]
    yield "one cut at zero", policy(single[2], segments=one_cut, segment_shares=single[:2]), crowd
    booleans = SegmentRule((SegmentAttribute("employee", (True, False)),), ("staff", "public"))
    yield "segments of a boolean", policy(single[2], segments=booleans, segment_shares=single[:2]), crowd
    numbers = SegmentRule((SegmentAttribute("größe 👍", (0.0, 1.0, 7.5)),), ("ü", "u\u0308", "מ 👍"))
    yield "segments of numbers, outside ASCII", policy(rest, segments=numbers, segment_shares=learning[:3]), crowd
    crossed = SegmentRule((country, tenure), tuple(f"{a} / {b}" for a in by_country.names for b in by_tenure.names))
    mixed = [learning[place % 4] if place % 3 else single[place] for place in range(12)]
    yield "two attributes crossed", policy(rest, baseline=4, segments=crossed, segment_shares=mixed), crowd
    three = SegmentRule(
        (
            SegmentAttribute("plan", ("ü", "", "u\u0308")),
            SegmentAttribute("größe 👍", cuts=(1.0,)),
            booleans.attributes[0],
        ),
        tuple(f"segment {place}" for place in range(12)),
    )
    yield "three attributes crossed", policy(rest, baseline=4, segments=three, segment_shares=single), crowd
    blends: list[Shares] = [
        [("control", 4, 0.05), ("blend", 2, 0.57), ("blend", 7, 0.3), ("blend", 8, 0.08)],
        [("control", 4, 0.05), ("blend", 7, 0.95)],
        [("control", 4, 0.05), ("blend", 2, 0.2), ("blend", 7, 0.75)],
        [("control", 4, 0.05), ("blend", 0, 1e-6), ("blend", 7, 0.95 - 1e-6)],
    ]
    made = policy(
        blends[0],
        mode="sticky",
        salt="feed",
        state="deployed",
        baseline=4,
        segments=by_country,
        segment_shares=blends[1:],
    )
    yield "sticky blends of segments", made, crowd
    paused: Shares = [("paused", 4, 1.0)]
    made = policy(paused, state="paused", salt="feed", baseline=4, segments=by_country, segment_shares=[paused] * 3)
    yield "segments, paused on the baseline", made, crowd
    quarter = EnrolmentSlice("ramp", "ramp:feed", 0, BUCKET_TOTAL // 4)
    yield (
        "segments with an audience and a ramp",
        policy(
            rest,
            baseline=4,
            enrolment=[quarter],
            audience=GERMAN[1:2],
            segments=crossed,
            segment_shares=mixed,
        ),
        crowd,
    )


def clustered() -> Iterator[tuple[str, PublishedPolicy, list[str]]]:
    """Yield policies in which an attribute is drawn instead of the unit."""
    crowd = [f"crowd-{number}" for number in range(60)]
    learning = [("control", 4, 0.1), *(("learner", k, 0.09) for k in range(10))]
    yield "clusters of texts", policy(learning, baseline=4, cluster="country"), crowd
    yield "clusters of integers", policy(learning, baseline=4, cluster="tenure_days"), crowd
    deployed = [("control", 4, 0.1), ("blend", 2, 0.3), ("blend", 7, 0.3), ("blend", 8, 0.3)]
    sticky = policy(deployed, mode="sticky", salt="feed", state="deployed", baseline=4, cluster="plan")
    yield "a sticky blend of clusters outside ASCII", sticky, crowd
    half = EnrolmentSlice("layer", "layer:home", 0, BUCKET_TOTAL // 2)
    partial = policy(learning, baseline=4, enrolment=[half], audience=GERMAN[1:2], cluster="country")
    yield "clusters in a layer, for an audience", partial, crowd


def with_fields(made: PublishedPolicy, changes: dict[str, Any]) -> PublishedPolicy:
    """Return the policy with some fields of its document replaced, and with a matching checksum."""
    fields = json.loads(made.text)
    del fields["sha256"]
    return PublishedPolicy.from_text(write_policy({**fields, **changes}))


def in_format_1(made: PublishedPolicy) -> PublishedPolicy:
    former = {arm: name for name, arm in RENAMED_ARMS.items()}
    cells = [{**cell, "arm": former.get(cell["arm"], cell["arm"])} for cell in json.loads(made.text)["cells"]]
    return with_fields(made, {"format": 1, "cells": cells})


def edges() -> tuple[PublishedPolicy, list[str]]:
    """Check that a cut at a unit's own position leaves it to the next cell, and that a cut one above includes it."""
    units = [f"edge-{number}" for number in range(20)]
    cuts = sorted(place("feed/1", unit) + number % 2 for number, unit in enumerate(units))
    shares = [(until - before) / BUCKET_TOTAL for before, until in zip([0, *cuts], [*cuts, BUCKET_TOTAL], strict=True)]
    made = policy([("learner", index, share) for index, share in enumerate(shares)])
    if [cell["until"] for cell in json.loads(made.text)["cells"]] != [*cuts, BUCKET_TOTAL]:
        raise AssertionError("shares of whole widths must come back as these widths")
    return made, units


def place(*parts: str) -> int:
    return int(hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16], 16) >> 11


def close_calls(made: PublishedPolicy) -> list[str]:
    """Return units for which the blend's two best candidates score almost the same."""
    runners = [cell for cell in made.cells if cell.arm == "blend"]

    def margin(unit: str) -> float:
        places = [(place(made.salt, runner.name, unit) + 0.5) / BUCKET_TOTAL for runner in runners]
        first, second, *_ = sorted(-math.log(p) / runner.width for p, runner in zip(places, runners, strict=True))
        return second / first - 1

    drawn = [unit for unit in (f"close-{number}" for number in range(20_000)) if made.draw(unit).arm == "blend"]
    return sorted(drawn, key=margin)[:12]


def broken() -> Iterator[tuple[str, str]]:
    """Yield a description of one defect, and a document that has only this defect."""
    good = policy([("control", 0, 0.25), ("learner", 0, 0.25), ("learner", 1, 0.5)])
    own = f',"sha256":"{json.loads(good.text)["sha256"]}"'
    plain = good.text.replace(own, "")  # otherwise the checksum alone would detect the change

    def changed(*path: str | int, to: object) -> str:
        document = json.loads(plain)
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to
        return json.dumps(document)

    yield "nothing", ""
    yield "no JSON", "<html>502 Bad Gateway</html>"
    yield "cut short", good.text[:-20]
    yield "no object", "[]"
    yield "an empty object", "{}"
    yield "null", "null"
    yield "nested too deep", "[" * 100_000
    for field in json.loads(plain):
        yield f"{field} missing", json.dumps({k: v for k, v in json.loads(plain).items() if k != field})
        yield f"{field} null", changed(field, to=None)
        yield f"{field} an object", changed(field, to={})
    yield "another format", changed("format", to=3)
    yield "format zero", changed("format", to=0)
    yield "a format in words", changed("format", to="1")
    yield "format true", changed("format", to=True)
    yield "version true", changed("version", to=True)
    yield "version below zero", changed("version", to=-1)
    yield "version a fraction", changed("version", to=1.5)
    yield "version beyond 2^53", changed("version", to=2**53 + 2)
    yield "round in words", changed("round", to="1")
    yield "no name", changed("study", to="")
    yield "another mode", changed("mode", to="random")
    yield "a salt with NUL", changed("salt", to="feed\0")
    yield "a salt with half a surrogate pair", changed("salt", to="feed\ud800")
    yield "an unknown baseline", changed("baseline", to=7)
    yield "baseline true", changed("baseline", to=True)
    yield "expired at birth", changed("expires_after", to=0)
    yield "an expiry below zero", changed("expires_after", to=-1)
    yield "an expiry in words", changed("expires_after", to="86400")
    yield "an expiry that is no number", plain.replace("86400", "NaN")
    yield "an endless expiry", plain.replace("86400", "1e999")
    yield "valid from true", changed("valid_from", to=True)
    yield "no candidates", changed("candidates", to=[])
    yield "candidates by name", changed("candidates", to={"c0": {}})
    yield "a candidate without values", changed("candidates", 0, to={"index": 0, "name": "c0"})
    yield "a candidate without name", changed("candidates", 0, to={"index": 0, "values": {}})
    yield "a candidate twice", changed("candidates", 1, "index", to=0)
    yield "a name twice", changed("candidates", 1, "name", to="c0")
    yield "an empty name", changed("candidates", 0, "name", to="")
    yield "a name with NUL", changed("candidates", 0, "name", to="c\0")
    yield "a name that is a number", changed("candidates", 0, "name", to=7)
    yield "an index true", changed("candidates", 1, "index", to=True)
    yield "values in a list", changed("candidates", 0, "values", to=[1])
    yield "a value that is a list", changed("candidates", 0, "values", "weight", to=[1])
    yield "a value that is null", changed("candidates", 0, "values", "weight", to=None)
    yield "a value beyond every float", plain.replace('"weight":0.25', '"weight":1e999')
    yield "a value with half a surrogate pair", changed("candidates", 0, "values", "weight", to="\udc00")
    yield "a parameter with half a surrogate pair", changed("candidates", 0, "values", "\ud83d", to=1)
    yield "no cells", changed("cells", to=[])
    yield "a cell that is a list", changed("cells", 0, to=["control", 0, 1])
    yield "an unknown arm", changed("cells", 0, "arm", to="treatment")
    for name, arm in RENAMED_ARMS.items():
        yield f"arm {name} in format 2", changed("cells", 0, "arm", to=name)
        yield f"arm {arm} in format 1", changed("cells", 0, "arm", to=arm).replace('"format": 2', '"format": 1')
    part = {"kind": "ramp", "salt": "ramp:feed", "from": 0, "until": 2**50}
    slices: dict[str, dict[str, Any]] = {
        "of another kind": {"kind": "segment"},
        "without kind": {"kind": None},
        "without salt": {"salt": ""},
        "with NUL in its salt": {"salt": "ramp\0"},
        "from below zero": {"from": -1},
        "from a fraction": {"from": 0.5},
        "until true": {"until": True},
        "until beyond 2^53": {"until": 2**53 + 2},
        "that ends where it starts": {"from": 2**50},
        "that ends before it starts": {"from": 2**51},
    }
    for about, changes in slices.items():
        yield f"a slice {about}", changed("enrolment", to=[part, {**part, **changes}])
    condition = {"attribute": "country", "operator": "in", "values": ["de"]}
    conditions: dict[str, dict[str, Any]] = {
        "without attribute": {"attribute": ""},
        "of another operator": {"operator": "matches"},
        "without operator": {"operator": None},
        "without values": {"values": []},
        "of one value, no list": {"values": "de"},
        "of a null": {"values": [None]},
        "of a list in a list": {"values": [["de"]]},
        "of several types": {"values": ["de", 7]},
        "of a boolean and a number": {"values": [True, 1]},
        "of half a surrogate pair": {"values": ["\ud800"]},
        "of a number beyond 10^15": {"values": [1.1e15]},
        "that compares a text": {"operator": ">=", "values": ["7"]},
        "that compares a boolean": {"operator": "<", "values": [True]},
        "that compares with two numbers": {"operator": "<", "values": [1, 2]},
    }
    for about, changes in conditions.items():
        yield f"a condition {about}", changed("audience", to=[{**condition, **changes}])
    for field, entry in (("enrolment", part), ("audience", condition)):
        yield f"{field} empty", changed(field, to=[])
        yield f"{field} a mapping", changed(field, to=entry)
        yield f"{field} of a list", changed(field, to=[[entry]])
        unlisted = json.loads(policy([("learner", 0, 0.5), ("not_enrolled", 0, 0.5)]).text)
        del unlisted["sha256"]
        yield f"{field} with the arm not_enrolled", json.dumps({**unlisted, field: [entry]})
    yield from broken_segments(plain)
    for name, cluster in {"empty": "", "with NUL": "school\0", "that is a list": ["school"]}.items():
        yield f"a cluster {name}", json.dumps({**json.loads(plain), "cluster": cluster})
    yield "a cluster with the arm not_enrolled", json.dumps({**unlisted, "cluster": "school"})
    by_country = {
        "attributes": [{"attribute": "country", "values": ["de"]}],
        "distributions": [{"name": "de", "cells": json.loads(plain)["cells"]}],
    }
    yield "a cluster with segments", json.dumps({**json.loads(plain), "cluster": "school", "segments": by_country})
    yield "an unknown candidate", changed("cells", 0, "candidate", to=2)
    yield "a candidate twice in an arm", changed("cells", 2, "candidate", to=0)
    yield "an arm that returns", changed("cells", 2, "arm", to="control")
    yield "a cut at zero", changed("cells", 0, "until", to=0)
    yield "a cut below zero", changed("cells", 0, "until", to=-1)
    yield "a cut in words", changed("cells", 0, "until", to="1")
    yield "a cut between whole numbers", changed("cells", 0, "until", to=0.5)
    yield "a cut true", changed("cells", 0, "until", to=True)
    yield "cuts that stand still", changed("cells", 1, "until", to=2**51)
    yield "cuts that fall", changed("cells", 0, "until", to=2**53 - 1)
    yield "a line that ends early", changed("cells", 2, "until", to=2**53 - 1)
    yield "a line that ends late", changed("cells", 2, "until", to=2**53 + 2)
    yield "another version than its sha256 was made of", good.text.replace('"version":1', '"version":999')
    yield "the sha256 of another text", good.text.replace(own, f',"sha256":"{"0" * 64}"')
    yield "a sha256 in capitals", good.text.replace(own, own.replace(own[11:-1], own[11:-1].upper()))
    yield "a sha256 null", changed("sha256", to=None)
    yield "a sha256 that is not last", "{" + own[1:] + "," + plain[1:]
    yield "a sha256 behind a space", good.text.replace(own, f', "sha256":"{json.loads(good.text)["sha256"]}"')


def broken_segments(plain: str) -> Iterator[tuple[str, str]]:
    """Yield documents with one defect in their segments."""
    served = json.loads(plain)["cells"]
    wanted = {"attribute": "country", "values": ["de", "at"]}
    cuts = {"attribute": "days", "cuts": [7, 30]}
    both = [{"name": name, "cells": served} for name in ("de", "at")]
    three = [*both, {"name": "c", "cells": served}]
    good = {"attributes": [wanted], "distributions": both}
    rules: dict[str, object] = {
        "empty": {},
        "a list": [good],
        "true": True,
        "without attributes": {**good, "attributes": None},
        "of no attributes": {"attributes": [], "distributions": [both[0]]},
        "without distributions": {"attributes": [wanted]},
        "of fewer distributions than parts": {**good, "distributions": both[:1]},
        "of more distributions than parts": {**good, "distributions": three},
        "of fewer distributions than crossed parts": {"attributes": [wanted, cuts], "distributions": three},
        "of one attribute twice": {"attributes": [wanted, {**wanted, "values": ["x"]}], "distributions": both},
        "of an attribute that is a text": {**good, "attributes": ["country"]},
        "of a distribution that is a list": {**good, "distributions": [both[0], [both[1]]]},
        "of a distribution without cells": {**good, "distributions": [both[0], {"name": "at"}]},
        "of a distribution with no cells": {**good, "distributions": [both[0], {"name": "at", "cells": []}]},
        "of a distribution that ends early": {**good, "distributions": [both[0], {"name": "at", "cells": served[:2]}]},
        "of a distribution with an unknown candidate": {
            **good,
            "distributions": [both[0], {"name": "at", "cells": [{**served[0], "candidate": 9}, *served[1:]]}],
        },
    }
    names = {"twice": "de", "of the others": "other", "empty": "", "with NUL": "a\0", "a number": 7, "null": None}
    names |= {"too long": "x" * 201, "of half a surrogate pair": "\ud800"}
    for about, name in names.items():
        rules[f"with a name {about}"] = {**good, "distributions": [both[0], {**both[1], "name": name}]}
    attributes: dict[str, dict[str, Any]] = {
        "without attribute": {"attribute": None},
        "with NUL in an attribute": {"attribute": "a\0"},
        "of no values": {"values": []},
        "of neither values nor cuts": {"values": None},
        "of values and cuts": {"cuts": [7]},
        "of one value, no list": {"values": "de"},
        "of several types": {"values": ["de", 7]},
        "of a boolean and a number": {"values": [True, 1]},
        "of a value twice": {"values": ["de", "de"]},
        "of a number twice": {"values": [0, -0.0]},
        "of a null": {"values": ["de", None]},
        "of half a surrogate pair": {"values": ["de", "\ud800"]},
        "of a number beyond 10^15": {"values": [1, 1.1e15]},
    }
    for about, changes in attributes.items():
        rules[about] = {**good, "attributes": [{**wanted, **changes}]}
    cut_lists: dict[str, object] = {
        "of no cuts": [],
        "of cuts that stand still": [7, 7],
        "of cuts that fall": [30, 7],
        "of a cut in words": [7, "30"],
        "of a cut true": [False, True],
        "of a cut beyond 10^15": [7, 1.1e15],
        "of a cut null": [7, None],
        "of one cut, no list": 7,
    }
    for about, listed in cut_lists.items():
        rules[about] = {"attributes": [{**cuts, "cuts": listed}], "distributions": three}
    for about, rule in rules.items():
        yield f"segments {about}", json.dumps({**json.loads(plain), "segments": rule})
    outside = [{**cell, "arm": "not_enrolled"} for cell in served[:1]] + served[1:]
    divided = {**good, "distributions": [both[0], {"name": "at", "cells": outside}]}
    part = {"kind": "ramp", "salt": "ramp:feed", "from": 0, "until": 2**50}
    document = {**json.loads(plain), "segments": divided, "enrolment": [part]}
    yield "segments with enrolment and the arm not_enrolled", json.dumps(document)


def draws(made: PublishedPolicy, units: Sequence[str], drawn: Sequence[int]) -> Iterator[list[Any]]:
    """Yield decisions for units; if the policy reads attributes, each has the next ones of the list."""
    for number, unit in enumerate(drawn):
        which = number % len(ATTRIBUTES)
        cell = made.draw(units[unit], ATTRIBUTES[which] if made.reads_attributes else {})
        further = [which] if made.reads_attributes else []
        yield [unit, cell.arm, cell.candidate, cell.width, *further, *([cell.segment] if cell.segment else [])]


def text() -> str:
    """Return the file's text, with one decision per line."""
    blocks = []
    units = list(UNITS)
    for about, made, further in policies():
        units += [unit for unit in further if unit not in units]
        drawn = [*range(len(UNITS)), *map(units.index, further)]
        lines = ",\n".join(json.dumps(line) for line in draws(made, units, drawn))
        head = json.dumps({"about": about, "checksum": made.checksum, "text": made.text})
        blocks.append(f'{head[:-1]}, "draws": [\n{lines}\n]}}')
    documents = ",\n".join(json.dumps({"about": about, "text": bad}) for about, bad in broken() if len(bad) < 10_000)
    refused = json.dumps(
        ["", "x" * 257, "👍" * 257, "\ud800", "\udc00", "a\ud83d", "\udc4d\ud83d", "\ud83d\ud83d\udc4d"]
    )
    return (
        f'{{"about": {json.dumps(ABOUT)},\n"units": [\n'
        + ",\n".join(map(json.dumps, units))
        + '\n],\n"attributes": [\n'
        + ",\n".join(map(json.dumps, ATTRIBUTES))
        + '\n],\n"policies": [\n'
        + ",\n".join(blocks)
        + f'\n],\n"refused_units": {refused},\n"refused_documents": [\n{documents}\n]}}\n'
    )


if __name__ == "__main__":
    WHERE.write_text(text(), encoding="utf-8", newline="\n")
