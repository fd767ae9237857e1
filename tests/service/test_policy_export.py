"""Policy export: shares as weights, the same flags as over OFREP, and what cannot be exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pasto.errors import LifecycleError, OptionError
from pasto.service.policy_export import (
    FORMATS,
    GROWTHBOOK_BUCKETS,
    ExportedCandidate,
    PolicyExport,
    describe_policy,
    to_flagd,
    to_growthbook,
    to_json,
)
from pasto.service.service import Service
from pasto_sdk.enrolment import AudienceCondition, EnrolmentSlice
from pasto_sdk.policy import publish_policy


def export_of(shares: dict[str, float], *, values: dict[str, dict[str, Any]] | None = None) -> PolicyExport:
    values = values or {name: {"w": place} for place, name in enumerate(shares)}
    candidates = {name: ExportedCandidate(name, values[name], share) for name, share in shares.items()}
    return PolicyExport(
        study="feed",
        part="policy",
        state="learning",
        version=3,
        salt="feed/3",
        valid_from=0.0,
        baseline=next(iter(candidates.values())),
        candidates=tuple(candidate for candidate in candidates.values() if candidate.share),
    )


def test_shares_are_those_of_the_served_policy_with_all_arms(learning: Service) -> None:
    policy = learning.policy_cache.current("feed")
    exported = learning.export("feed", "json")
    shares = {candidate["name"]: candidate["share"] for candidate in exported["candidates"]}
    served = {share.name: share.share for share in learning.show("feed").policy.shares}  # type: ignore[union-attr]
    assert shares == pytest.approx(served)
    assert exported["seed"] == policy.salt
    assert exported["metadata"]["policy_version"] == policy.version
    assert exported["baseline"] == policy.baseline.name
    assert "unit can get another candidate" in exported["metadata"]["bucketing"]


def test_flagd_weights_are_parts_per_million_and_every_flag_divides_alike() -> None:
    document = to_flagd(export_of({"a": 1 / 3, "b": 2 / 3 - 1e-9, "c": 1e-9}))
    split = document["$evaluators"]["feed"]["if"][1]["fractional"]
    assert split[0] == {"cat": ["feed/3/", {"var": "targetingKey"}]}
    assert split[1:] == [["a", 333_333], ["b", 666_666], ["c", 1]]
    assert document["flags"].keys() == {"feed", "feed.w"}
    assert {flag["targeting"]["$ref"] for flag in document["flags"].values()} == {"feed"}
    assert document["flags"]["feed.w"]["variants"] == {"a": 0, "b": 1, "c": 2}
    assert "Rounding changes the share of 1 by more than 10%" in document["metadata"]["bucketing"]


def test_growthbook_ranges_are_whole_buckets_without_gaps() -> None:
    shares = {f"c{place}": share for place, share in enumerate([0.1, 0.2, 0.3, 1 / 7, 0.4 - 1 / 7])}
    (rule,) = to_growthbook(export_of(shares))["features"]["feed"]["rules"]
    ends = [end for _, end in rule["ranges"]]
    assert [start for start, _ in rule["ranges"]] == [0.0, *ends[:-1]]
    assert ends[-1] == 1.0
    assert all(end in {bucket / GROWTHBOOK_BUCKETS for bucket in range(GROWTHBOOK_BUCKETS + 1)} for end in ends)
    assert sum(rule["weights"]) == pytest.approx(1.0)
    assert [meta["key"] for meta in rule["meta"]] == list(shares)
    assert (rule["seed"], rule["phase"], rule["hashAttribute"]) == ("feed/3", "3", "id")


def test_one_candidate_is_no_experiment() -> None:
    feature = to_growthbook(export_of({"a": 0.0, "b": 1.0}))["features"]["feed.w"]
    assert feature == {"defaultValue": 0, "rules": [{"force": 1}]}


def test_a_parameter_of_several_types_has_no_flag_of_its_own() -> None:
    values: dict[str, dict[str, Any]] = {"a": {"w": 1, "x": 0}, "b": {"w": "auto", "x": 0.5}}
    document = to_flagd(export_of({"a": 0.5, "b": 0.5}, values=values))
    assert document["flags"].keys() == {"feed", "feed.x"}


def partial_export() -> PolicyExport:
    """Return an export for an audience, in a layer whose first half belongs to another study."""
    policy = publish_policy(
        study="feed",
        version=3,
        round=3,
        state="learning",
        mode="shuffled",
        salt="feed/3",
        candidates={0: ("a", {"w": 0}), 1: ("b", {"w": 1})},
        baseline=0,
        shares=[("control", 0, 0.5), ("learner", 1, 0.5)],
        valid_from=0,
        expires_after=60,
        enrolment=[EnrolmentSlice("layer", "layer/home", 2**52, 2**53), EnrolmentSlice("ramp", "feed", 0, 2**50)],
        audience=[AudienceCondition("country", "in", ("de", "at")), AudienceCondition("tenure", ">=", (7.0,))],
    )
    return describe_policy(policy)


def test_units_that_take_no_part_are_left_out_in_each_format() -> None:
    exported = partial_export()
    split = to_flagd(exported)["$evaluators"]["feed"]["if"][0]["and"]
    assert split[1:3] == [
        {"in": [{"var": "country"}, ["de", "at"]]},
        {"and": [{"!==": [{"var": "tenure"}, None]}, {">=": [{"var": "tenure"}, 7]}]},
    ]
    assert split[3]["==="][0]["fractional"][1:] == [["before", 500_000], ["in", 500_000]]
    assert split[4]["==="][0]["fractional"][1:] == [["in", 125_000], ["after", 875_000]]
    (rule,) = to_growthbook(exported)["features"]["feed"]["rules"]
    assert rule["condition"] == {"$and": [{"country": {"$in": ["de", "at"]}}, {"tenure": {"$gte": 7}}]}
    assert [(part["seed"], part["ranges"]) for part in rule["filters"]] == [
        ("layer/home", [[0.5, 1.0]]),
        ("feed", [[0.0, 0.125]]),
    ]
    plain = to_json(exported)
    assert plain["enrolment"][1] == {"kind": "ramp", "seed": "feed", "from": 0.0, "until": 0.125}
    assert plain["audience"][1] == {"attribute": "tenure", "operator": ">=", "values": [7]}


def test_an_export_with_a_holdout_names_the_different_units(learning: Service) -> None:
    for format in FORMATS:
        assert "holdout" not in learning.export("feed", format)["metadata"]["bucketing"]
    learning.set_holdout("5%", who="ann")
    learning.close_round("feed", who="ann")
    for format in FORMATS:
        sentence = learning.export("feed", format)["metadata"]["bucketing"]
        assert sentence.endswith("other units than PASTO's: `pasto holdout sql` does not find them.")


def test_attributes_are_those_that_were_asked_for() -> None:
    exported = export_of({"a": 0.5, "b": 0.5})
    assert to_flagd(exported, "user_id")["$evaluators"]["feed"]["if"][0] == {"!!": [{"var": "user_id"}]}
    assert to_growthbook(exported, "user_id")["features"]["feed"]["rules"][0]["hashAttribute"] == "user_id"


def test_the_blend_has_no_control_and_outlives_the_study(
    learning: Service, traffic: Callable[[Service, int], list[dict[str, Any]]]
) -> None:
    with pytest.raises(LifecycleError, match="has learned no round yet"):
        learning.export("feed", "json", part="blend")
    learning.ingest("feed", learning.decode(_lines(traffic(learning, 600)))).result()
    learning.close_round("feed", who="ann")
    so_far = learning.export("feed", "json", part="blend")
    assert sum(candidate["share"] for candidate in so_far["candidates"]) == pytest.approx(1.0)
    learning.change("feed", "deploy", who="ann", reason="enough", without_confirmation=True)
    frozen = learning.show("feed").frozen
    assert frozen is not None
    exported = learning.export("feed", "json", part="blend")
    assert {candidate["name"]: candidate["share"] for candidate in exported["candidates"]} == pytest.approx(
        frozen.probabilities
    )
    assert exported["metadata"]["certified"] is (frozen.certificate is not None and frozen.certificate.certified)
    learning.change("feed", "archive", who="ann", reason="handed over")
    assert learning.export("feed", "json", part="blend")["candidates"] == exported["candidates"]
    with pytest.raises(LifecycleError, match="is archived, so it serves no policy to export; export its blend"):
        learning.export("feed", "json")


def test_what_cannot_be_exported_is_refused(service: Service, learning: Service, document: dict[str, Any]) -> None:
    learning.create({**document, "name": "draft"}, who="ann")
    for part, message in (("policy", "is draft, so it serves no policy"), ("blend", "is draft and has not learned")):
        with pytest.raises(LifecycleError, match=message):
            learning.export("draft", "flagd", part=part)
    with pytest.raises(OptionError, match="format must be flagd, growthbook, json, got 'unleash'"):
        learning.export("feed", "unleash")
    with pytest.raises(OptionError, match="part must be policy or blend, got 'control'"):
        learning.export("feed", "json", part="control")
    for attribute in ("", "x" * 64, "a\nb"):
        with pytest.raises(OptionError, match="attribute must be a name of 1 to 63"):
            learning.export("feed", "json", attribute=attribute)


@pytest.mark.parametrize("form", FORMATS)
def test_equal_policies_give_equal_exports(learning: Service, form: str) -> None:
    policy = learning.policy_cache.current("feed")
    assert FORMATS[form](describe_policy(policy), None) == learning.export("feed", form)


def _lines(events: list[dict[str, Any]]) -> bytes:
    return json.dumps(events).encode()
