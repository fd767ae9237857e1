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
from pasto_sdk.policy_document import ARMS, BUCKET_TOTAL, RESERVED_FIELDS, upgrade_policy

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


def decide(document: dict[str, Any], unit: str, attributes: dict[str, Any]) -> list[Any]:
    """Return arm, candidate and width as the documented rule defines them, with logarithms to fifty digits."""
    slices, audience = document.get("enrolment") or [], document.get("audience") or []
    is_enrolled = all(part["from"] <= place(part["salt"], unit) < part["until"] for part in slices)
    if not is_enrolled or not all(meets(condition, attributes) for condition in audience):
        return ["not_enrolled", document["baseline"], 0]
    names = {candidate["index"]: candidate["name"] for candidate in document["candidates"]}
    cells = []
    begin = 0
    for cell in document["cells"]:
        cells.append((FORMAT_1_ARMS.get(cell["arm"], cell["arm"]), cell["candidate"], begin, cell["until"]))
        begin = cell["until"]
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
    return [cell[0], cell[1], cell[3] - cell[2]]


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
    for number, arm, candidate, width, *which in policy["draws"]:
        unit, attributes = CASES["units"][number], CASES["attributes"][which[0]] if which else {}
        cell = published.draw(unit, attributes)
        assert [cell.arm, cell.candidate, cell.width] == [arm, candidate, width]
        assert cell.propensity == cell.width / 2**53
        assert decide(document, unit, attributes) == [arm, candidate, width]
        if arm != "not_enrolled":
            assert published.redraw(unit) == cell


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


@pytest.mark.parametrize("field", RESERVED_FIELDS)
def test_a_reserved_field_is_rejected_by_name(field: str) -> None:
    fields = json.loads(POLICIES[0]["text"])
    del fields["sha256"]
    with pytest.raises(PolicyError, match=f"has {field}, which this client cannot apply; upgrade pasto-sdk"):
        PublishedPolicy.from_text(json.dumps({**fields, field: ["x"]}))
    PublishedPolicy.from_text(json.dumps({**fields, field: None}))
    PublishedPolicy.from_text(json.dumps({**fields, field: ["x"], "format": 1}))  # unused in this case


@pytest.mark.parametrize("unit", CASES["refused_units"], ids=ascii)
def test_no_policy_draws_for_what_is_no_unit(unit: str) -> None:
    for policy in POLICIES:
        with pytest.raises(InputError, match="unit"):
            PublishedPolicy.from_text(policy["text"]).draw(unit)


@pytest.mark.parametrize("broken", CASES["refused_documents"], ids=lambda broken: broken["about"])
def test_a_broken_document_is_refused(broken: dict[str, str]) -> None:
    with pytest.raises(PolicyError):
        PublishedPolicy.from_text(broken["text"])
