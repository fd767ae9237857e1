"""Published policy: parsing, checksum and draws."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.errors import InputError, PolicyError
from pasto_sdk.policy import PublishedPolicy

Make = Callable[..., PublishedPolicy]

THREE = [("control", 0, 0.2), ("blend", 0, 0.3), ("blend", 1, 0.5)]

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
values = st.dictionaries(
    words,
    st.one_of(words, st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False)),
)
units = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256)


@given(st.data())
def test_a_policy_comes_back_from_its_text_as_it_was(made: Make, data: st.DataObject) -> None:
    names = data.draw(st.lists(words, min_size=1, max_size=6, unique=True))
    policy = made(
        [("learner", k, 1 / len(names)) for k in range(len(names))],
        candidates={k: (name, data.draw(values)) for k, name in enumerate(names)},
        mode=data.draw(st.sampled_from(["shuffled", "sticky"])),
        study=data.draw(words),
        salt=data.draw(words),
        version=data.draw(st.integers(0, 2**53)),
    )
    for text in (policy.text, policy.text.encode()):
        again = PublishedPolicy.from_text(text, policy.checksum)
        assert again == policy
        assert again.cells == policy.cells
        assert again.text == policy.text
        assert hash(again) == hash(policy)
        unit = data.draw(units)
        assert again.draw(unit) == policy.draw(unit)


def test_the_checksum_is_that_of_the_text_and_is_checked(made: Make) -> None:
    policy = made(THREE)
    assert policy.checksum == hashlib.sha256(policy.text.encode()).hexdigest()
    with pytest.raises(PolicyError, match="changed or cut on the way"):
        PublishedPolicy.from_text(policy.text + " ", policy.checksum)
    with pytest.raises(PolicyError, match="changed or cut on the way"):
        PublishedPolicy.from_text(policy.text, "")


def unchecked(policy: PublishedPolicy) -> dict[str, Any]:
    """Return the document's fields without its checksum, so that they can be changed."""
    fields: dict[str, Any] = json.loads(policy.text)
    del fields["sha256"]
    return fields


def test_a_document_carries_the_checksum_of_its_other_fields(made: Make) -> None:
    text = made(THREE).text
    digest = json.loads(text)["sha256"]
    assert text.endswith(f',"sha256":"{digest}"}}')
    assert digest == hashlib.sha256(text.replace(f',"sha256":"{digest}"', "").encode()).hexdigest()
    with pytest.raises(PolicyError, match="changed on its way"):
        PublishedPolicy.from_text(text.replace('"version":', '"version":9'))
    with pytest.raises(PolicyError, match="last field"):
        PublishedPolicy.from_text(json.dumps(json.loads(text)))


def test_fields_of_a_later_release_are_ignored(made: Make) -> None:
    document = unchecked(made(THREE))
    document["signature"] = "…"
    document["candidates"][0]["colour"] = None
    document["cells"][0]["since"] = 3
    policy = PublishedPolicy.from_text(json.dumps(document))
    assert policy.cells == made(THREE).cells
    assert json.loads(policy.text)["signature"] == "…"


@pytest.mark.parametrize("text", [None, 5, b"\xff\xfe", "\ud800", bytearray(b"{}"), "[" * 100_000, "9" * 5000])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(PolicyError):
        PublishedPolicy.from_text(text)


@pytest.mark.parametrize("field", ["version", "baseline", "round"])
def test_a_whole_number_is_not_written_as_a_fraction(made: Make, field: str) -> None:
    document = unchecked(made(THREE))
    document[field] = float(document[field])
    with pytest.raises(PolicyError, match=f"{field} must be a whole number"):
        PublishedPolicy.from_text(json.dumps(document))


def test_a_value_beyond_every_float_is_refused(made: Make) -> None:
    document = unchecked(made(THREE))
    document["candidates"][0]["values"]["weight"] = 10**400
    with pytest.raises(PolicyError, match="finite number"):
        PublishedPolicy.from_text(json.dumps(document))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


@given(st.data())
def test_a_broken_document_is_refused_or_adds_up(made: Make, data: st.DataObject) -> None:
    document = unchecked(made(THREE))
    for _ in range(data.draw(st.integers(1, 2))):
        place: Any = document
        while True:
            key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
                break
            place = place[key]
        place[key] = data.draw(json_values)
    try:
        policy = PublishedPolicy.from_text(json.dumps(document))
    except PolicyError:
        return
    assert sum(cell.width for cell in policy.cells) == 2**53
    assert policy.draw("a") in policy.cells


def test_nothing_about_a_policy_can_be_changed(made: Make) -> None:
    policy = made(THREE)
    with pytest.raises(FrozenInstanceError):
        policy.version = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        policy.cells[0].width = 0  # type: ignore[misc]
    with pytest.raises(TypeError):
        policy.draw("a").values["weight"] = 9  # type: ignore[index]
    with pytest.raises(TypeError):
        policy.named["c9"] = policy.baseline  # type: ignore[index]


def test_a_policy_travels_between_processes(made: Make) -> None:
    policy = made(THREE, mode="sticky")
    for again in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy)):  # noqa: S301 -- our own
        assert again == policy
        assert again.draw("a") == policy.draw("a")
    assert repr(policy) == "<PublishedPolicy 'feed' version 1: learning, sticky, 3 buckets>"
    assert policy != policy.text


@pytest.mark.parametrize("mode", ["shuffled", "sticky"])
@pytest.mark.parametrize("unit", [None, 7, b"a", "", "x" * 257, "\ud800", ["a"], object()])
def test_an_invalid_unit_is_refused_with_the_fix(made: Make, unit: Any, mode: str) -> None:
    with pytest.raises(InputError, match=r"unit .*; (use|leave|decode)"):
        made(THREE, mode=mode).draw(unit)
    with pytest.raises(InputError, match="unit"):
        made(THREE, mode=mode).draw_many(["a", unit])


@given(st.lists(units, max_size=20))
def test_many_are_drawn_as_one_by_one(made: Make, listed: list[str]) -> None:
    for mode in ("shuffled", "sticky"):
        policy = made(THREE, mode=mode)
        assert policy.draw_many(iter(listed)) == [policy.draw(unit) for unit in listed]


@given(st.permutations(range(6)), st.lists(units, min_size=1, max_size=20))
def test_neither_index_nor_order_decides_a_sticky_unit(made: Make, order: list[int], listed: list[str]) -> None:
    share = [0.05, 0.1, 0.15, 0.2, 0.22, 0.28]
    names: dict[int, tuple[str, dict[str, int]]] = {k: (f"name {k}", {}) for k in range(6)}
    plain = made([("blend", k, share[k]) for k in range(6)], candidates=names, mode="sticky")
    relabelled = made(
        [("blend", place, share[k]) for place, k in enumerate(order)],
        candidates={place: names[k] for place, k in enumerate(order)},
        mode="sticky",
    )
    assert [cell.name for cell in plain.draw_many(listed)] == [cell.name for cell in relabelled.draw_many(listed)]


@given(st.permutations(range(6)), st.lists(units, min_size=1, max_size=20))
def test_a_new_index_leaves_a_shuffled_unit_its_name(made: Make, order: list[int], listed: list[str]) -> None:
    shares = [0.05, 0.1, 0.15, 0.2, 0.22, 0.28]
    plain = made([("learner", k, share) for k, share in enumerate(shares)])
    relabelled = made(
        [("learner", order[k], share) for k, share in enumerate(shares)],
        candidates={order[k]: (f"c{k}", {}) for k in range(6)},
        baseline=order[0],
    )
    assert [cell.name for cell in plain.draw_many(listed)] == [cell.name for cell in relabelled.draw_many(listed)]


def test_a_sticky_unit_keeps_its_arm_if_shares_inside_the_arm_change(made: Make) -> None:
    listed = [f"unit-{number}" for number in range(2000)]
    before = made(THREE, mode="sticky").draw_many(listed)
    after = made([("control", 0, 0.2), ("blend", 1, 0.1), ("blend", 2, 0.7)], mode="sticky").draw_many(listed)
    assert [cell.arm for cell in before] == [cell.arm for cell in after]
