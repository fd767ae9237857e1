"""Conformance cases that every client repeats, compared with a second implementation in exact arithmetic."""

from __future__ import annotations

import hashlib
import json
import runpy
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pasto.errors import InputError, PolicyError
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import ARMS, BUCKET_TOTAL, upgrade_policy

FILE = Path(__file__).parents[2] / "clients" / "conformance" / "cases.json"
CASES: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
POLICIES = CASES["policies"]


def place(*parts: str) -> int:
    """Return the top 53 of the 256 bits of SHA-256 over the parts, separated by a zero byte."""
    bits = bin(int(hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest(), 16))[2:].rjust(256, "0")
    return int(bits[:53], 2)


FORMAT_1_ARMS = {"outside": "not_enrolled", "single": "best_single", "held": "paused"}


COMPARED = {
    ">=": lambda given, wanted: given >= wanted,
    ">": lambda given, wanted: given > wanted,
    "<=": lambda given, wanted: given <= wanted,
    "<": lambda given, wanted: given < wanted,
}


def kind(value: object) -> str:
    """Return the type of a value of JSON, in which 1 and 1.0 are one number, and true is not a number."""
    return "number" if type(value) in (int, float) and abs(value) <= 10**15 else type(value).__name__  # type: ignore[arg-type]


def meets(condition: dict[str, Any], attributes: dict[str, Any]) -> bool:
    """Return whether attributes meet a condition as the documented rule defines it, with numbers as fractions."""
    given: Any = attributes.get(condition["attribute"])
    wanted = [value for value in condition["values"] if kind(value) == kind(given)]
    if kind(given) == "number":
        given, wanted = Fraction(given), [Fraction(value) for value in wanted]
    if condition["operator"] == "in":
        return given in wanted
    return bool(wanted) and COMPARED[condition["operator"]](given, wanted[0])


def divide(document: dict[str, Any], attributes: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the cells and the name of a unit's segment as the documented rule defines them; no name without one."""
    rule = document.get("segments")
    if document["format"] == 1 or rule is None:
        return document["cells"], []
    distributions = rule["distributions"]
    for part in rule["attributes"]:
        given: Any = attributes.get(part["attribute"])
        if "cuts" in part:
            inside = [kind(given) == "number" and Fraction(given) >= Fraction(cut) for cut in part["cuts"]]
            which = [sum(inside)] if kind(given) == "number" else []
            count = len(inside) + 1
        else:
            condition = {"attribute": part["attribute"], "operator": "in"}
            met = [meets({**condition, "values": [value]}, attributes) for value in part["values"]]
            which = [place for place, holds in enumerate(met) if holds]
            count = len(met)
        if not which:
            return document["cells"], ["other"]
        size = len(distributions) // count
        distributions = distributions[which[0] * size : (which[0] + 1) * size]
    [distribution] = distributions
    return distribution["cells"], [distribution["name"]]


def cluster_of(value: Any) -> str | None:
    """Return a cluster as text; None for a value that names none."""
    if kind(value) == "number":
        number = Fraction(value)
        return str(number.numerator) if number.denominator == 1 else None
    return value if isinstance(value, str) and 0 < len(value) <= 256 else None


def decide(document: dict[str, Any], unit: str, attributes: dict[str, Any]) -> list[Any]:
    """Return arm, candidate, width and segment as the documented rules define them, with logarithms to fifty digits."""
    if document.get("cluster") is not None:
        cluster = cluster_of(attributes.get(document["cluster"]))
        if cluster is None:
            return ["not_enrolled", document["baseline"], 0]
        unit = cluster
    slices, audience = document.get("enrolment") or [], document.get("audience") or []
    is_enrolled = all(part["from"] <= place(part["salt"], unit) < part["until"] for part in slices)
    if not is_enrolled or not all(meets(condition, attributes) for condition in audience):
        return ["not_enrolled", document["baseline"], 0]
    names = {candidate["index"]: candidate["name"] for candidate in document["candidates"]}
    cells = []
    begin = 0
    listed, segment = divide(document, attributes)
    for written in listed:
        cells.append((FORMAT_1_ARMS.get(written["arm"], written["arm"]), written["candidate"], begin, written["until"]))
        begin = written["until"]
    mine = place(document["salt"], unit)
    [cell] = [cell for cell in cells if cell[2] <= mine < cell[3]]
    if document["mode"] == "sticky":
        rivals = [rival for rival in cells if rival[0] == cell[0]]
        with localcontext() as context:
            context.prec = 50
            scores = {
                rival: -((Decimal(place(document["salt"], names[rival[1]], unit)) + Decimal("0.5")) / 2**53).ln()
                / (rival[3] - rival[2])
                for rival in rivals
            }
        cell = min(rivals, key=lambda rival: scores[rival])
    return [cell[0], cell[1], cell[3] - cell[2], *segment]


def test_the_file_is_what_its_generator_writes() -> None:
    made = runpy.run_path(str(Path(__file__).with_name("make_conformance_cases.py")))
    assert made["text"]() == FILE.read_text(encoding="utf-8")


def test_there_are_enough_of_every_kind() -> None:
    documents = [json.loads(policy["text"]) for policy in POLICIES]
    drawn = Counter(arm for policy in POLICIES for _, arm, *_ in policy["draws"])
    assert sum(drawn.values()) >= 1000
    assert set(drawn) == set(ARMS)
    assert {document["state"] for document in documents} == {"learning", "confirming", "deployed", "paused"}
    assert {document["mode"] for document in documents} == {"shuffled", "sticky"}
    assert {1, 1000} <= {len(document["cells"]) for document in documents}
    assert max(map(len, CASES["units"])) == 256
    rare = [draw for policy in POLICIES for draw in policy["draws"] if draw[3] < 2e-6 * BUCKET_TOTAL]
    assert len(rare) >= 5
    kinds = {(part["kind"], document["mode"]) for document in documents for part in document.get("enrolment") or []}
    assert kinds >= {("holdout", "sticky"), ("layer", "sticky"), ("ramp", "shuffled")}
    operators = {part["operator"] for document in documents for part in document.get("audience") or []}
    assert operators == {"in", "<", "<=", ">", ">="}
    joined = [document for document in documents if document.get("audience") and document.get("enrolment")]
    assert max(len(document["enrolment"]) for document in joined) == 3


@pytest.mark.parametrize("policy", POLICIES, ids=[policy["about"] for policy in POLICIES])
def test_the_client_and_the_rule_decide_as_in_the_file(policy: dict[str, Any]) -> None:
    published = PublishedPolicy.from_text(policy["text"], policy["checksum"])
    document = json.loads(policy["text"])
    for number, arm, candidate, width, *further in policy["draws"]:
        unit, attributes = CASES["units"][number], CASES["attributes"][further[0]] if further else {}
        segment = further[1:]
        cell = published.draw(unit, attributes)
        assert [cell.arm, cell.candidate, cell.width] == [arm, candidate, width]
        assert cell.segment == (segment[0] if segment else None)
        assert cell.propensity == cell.width / 2**53
        assert decide(document, unit, attributes) == [arm, candidate, width, *segment]
        if arm != "not_enrolled":
            assert published.redraw(published.find_cluster(attributes) or unit, cell.segment) == cell


def test_every_segment_of_the_cases_is_drawn() -> None:
    divided = 0
    for policy in POLICIES:
        published = PublishedPolicy.from_text(policy["text"])
        drawn = {segment for *_, segment in policy["draws"] if isinstance(segment, str)}
        divided += published.segments is not None
        assert drawn <= set(published.cells_by_segment)
        if published.segments is not None and len(published.segments.attributes) == 1:
            assert drawn == set(published.cells_by_segment)
    assert divided >= 10


def test_a_cluster_stays_together() -> None:
    for policy in POLICIES:
        document = json.loads(policy["text"])
        if document.get("cluster") is None or document.get("audience"):
            continue
        cells: dict[str | None, set[tuple[str, int]]] = {}
        for _, arm, candidate, _, *which in policy["draws"]:
            given = CASES["attributes"][which[0]] if which else {}
            cells.setdefault(cluster_of(given.get(document["cluster"])), set()).add((arm, candidate))
        assert len(cells) > 2
        assert {len(drawn) for drawn in cells.values()} == {1}
        assert cells[None] == {("not_enrolled", document["baseline"])}


def test_the_segment_of_an_exposure_is_one_of_the_policy() -> None:
    texts = {policy["about"]: policy["text"] for policy in POLICIES}
    divided, plain = map(PublishedPolicy.from_text, (texts["a segment for each value"], texts["two halves"]))
    for given in (None, "", "AT", "country"):
        with pytest.raises(InputError, match=r"segment is .*, and version 1 has de, at, DE, other; send the segment"):
            divided.redraw("a", given)
    with pytest.raises(InputError, match="segment is 'de', and version 1 has no segments; leave it out"):
        plain.redraw("a", "de")


def test_enrolment_is_nested_and_disjoint_in_the_cases() -> None:
    def inside(about: str) -> set[str]:
        [policy] = [policy for policy in POLICIES if policy["about"].startswith(about)]
        return {CASES["units"][number] for number, arm, *_ in policy["draws"] if arm != "not_enrolled"}

    one, five, quarter = (inside(f"a ramp at {percent} %") for percent in (1, 5, 25))
    assert one < five < quarter
    assert inside("the next version, and the same units") == quarter
    assert inside("the lower half of a layer").isdisjoint(inside("its upper half"))


def test_a_policy_of_format_1_is_upgraded_to_the_bytes_that_are_written_today() -> None:
    texts = {policy["about"]: policy["text"] for policy in POLICIES}
    today = [text for text in texts.values() if json.loads(text)["format"] == 2]
    pairs = {
        "format 1, learning": "control, learner and units that are not enrolled",
        "format 1, confirming": "confirming: sticky arms",
        "format 1, paused": "paused on a blend",
    }
    for old, new in pairs.items():
        assert upgrade_policy(texts[old]) == texts[new] != texts[old]
    assert list(map(upgrade_policy, today)) == today


def test_format_1_has_no_segments() -> None:
    fields = json.loads(POLICIES[0]["text"])
    del fields["sha256"]
    with pytest.raises(PolicyError, match="segments must be a JSON object"):
        PublishedPolicy.from_text(json.dumps({**fields, "segments": ["x"]}))
    former = PublishedPolicy.from_text(json.dumps({**fields, "segments": ["x"], "format": 1}))
    assert former.segments is None


@pytest.mark.parametrize("unit", CASES["refused_units"], ids=ascii)
def test_no_policy_draws_for_what_is_no_unit(unit: str) -> None:
    for policy in POLICIES:
        with pytest.raises(InputError, match="unit"):
            PublishedPolicy.from_text(policy["text"]).draw(unit)


@pytest.mark.parametrize("broken", CASES["refused_documents"], ids=lambda broken: broken["about"])
def test_a_broken_document_is_refused(broken: dict[str, str]) -> None:
    with pytest.raises(PolicyError):
        PublishedPolicy.from_text(broken["text"])
