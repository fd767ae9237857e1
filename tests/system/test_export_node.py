"""Exports of a study: shares, evaluated by flagd's own evaluator and by GrowthBook's own SDK."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import chisquare

from pasto.service.policy_export import describe_policy, to_flagd, to_growthbook
from pasto.service.service import Service
from pasto.service.study_file import EXAMPLE, read_document
from pasto.store import open_store
from pasto_sdk.enrolment import AudienceCondition, EnrolmentSlice
from pasto_sdk.policy import publish_policy

HERE = Path(__file__).parents[2] / "clients" / "handoff-test"
UNITS = 100_000
FALSE_ALARM_RATE = 1e-6
"""Of each comparison of counts with shares, if the platform follows them."""


def test_the_lock_names_exact_versions_and_no_host() -> None:
    package = json.loads((HERE / "package.json").read_text())
    lock = (HERE / "package-lock.json").read_text()
    assert "://" not in lock
    assert '"resolved"' not in lock
    packages = json.loads(lock)["packages"]
    for name, version in package["dependencies"].items():
        assert packages[f"node_modules/{name}"]["version"] == version
    assert all("integrity" in found for place, found in packages.items() if place)


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(open_store("memory:"))
    parameters = {"weight": [0, 0.5, 1, 1.5, 2], "ranker": ["fast", "deep"]}
    document = {
        **read_document(EXAMPLE, "yaml"),
        "parameters": parameters,
        "baseline": {"weight": 1, "ranker": "fast"},
        "traffic": {"control": "40%", "min_share": "1%"},
    }
    service.create(document, who="test", seed=3)
    service.change("feed", "start", who="test")
    yield service
    service.shutdown()


def program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"this needs {name}"
    return found


def evaluated(flagd: Any, growthbook: Any, attributes: dict[str, Any], units: int = UNITS) -> Any:
    question = {
        "flagd": flagd,
        "growthbook": growthbook,
        "flag": "feed",
        "parameter": "weight",
        "units": [f"user {number}" for number in range(units)],
        "attributes": attributes,
    }
    ended = subprocess.run(
        [program("node"), "evaluate.mjs"],
        cwd=HERE,
        input=json.dumps(question),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def p_value(counts: dict[str, int], shares: dict[str, float]) -> float:
    """Return the probability of counts at least this far from the shares."""
    assert counts.keys() <= shares.keys()
    expected = [share * UNITS for share in shares.values()]
    return float(chisquare([counts.get(name, 0) for name in shares], expected).pvalue)


def check_partial_exports() -> None:
    """Evaluate two studies that share a layer, for an audience."""
    exports = []
    for start, until in ((0, 2**52), (2**52, 2**53)):
        policy = publish_policy(
            study="feed",
            version=3,
            round=3,
            state="learning",
            mode="shuffled",
            salt=f"feed/{start}",
            candidates={0: ("a", {"weight": 0}), 1: ("b", {"weight": 1})},
            baseline=0,
            shares=[("control", 0, 0.25), ("learner", 1, 0.75)],
            valid_from=0,
            expires_after=60,
            enrolment=[EnrolmentSlice("layer", "layer/home", start, until)],
            audience=[AudienceCondition("country", "in", ("de",)), AudienceCondition("tenure", ">=", (7.0,))],
        )
        exports.append((to_flagd(describe_policy(policy)), to_growthbook(describe_policy(policy))))
    units = 20_000
    first, second = (evaluated(*export, {"country": "de", "tenure": 7}, units)["counts"] for export in exports)
    for platform in ("flagd", "growthbook"):
        half = units / 2
        for counts in (first[platform], second[platform]):
            observed = [counts["takes no part"], counts["a"], counts["b"]]
            assert chisquare(observed, [half, half / 4, 3 * half / 4]).pvalue > FALSE_ALARM_RATE
        # The layer divides the units: those that take no part in one study take part in the other.
        assert first[platform]["takes no part"] + second[platform]["takes no part"] == units
    for attributes in ({}, {"country": "fr", "tenure": 9}, {"country": "de", "tenure": 6.5}, {"country": "de"}):
        counts = evaluated(*exports[0], attributes, 100)["counts"]
        assert list(counts.values()) == [{"takes no part": 100}] * 2


@pytest.mark.services
def test_platforms_give_every_candidate_its_share(service: Service) -> None:
    subprocess.run([program("npm"), "ci", "--ignore-scripts"], cwd=HERE, check=True, timeout=600)
    shares = {candidate["name"]: candidate["share"] for candidate in service.export("feed", "json")["candidates"]}
    assert len(shares) == 10
    baseline = service.policy_cache.current("feed").baseline
    found = evaluated(service.export("feed", "flagd"), service.export("feed", "growthbook"), {})
    for platform in ("flagd", "growthbook"):
        assert sum(found["counts"][platform].values()) == UNITS
        assert p_value(found["counts"][platform], shares) > FALSE_ALARM_RATE
    assert found["differences"] == []
    assert found["missing"]["variant"] == baseline.name
    assert found["missing"]["value"] == dict(baseline.values)
    assert found["missing"]["metadata"]["policy_version"] == 1
    assert found["nobody"] == {"source": "defaultValue", "value": dict(baseline.values)}
    assert found["logged"][:2] == ["feed", "1"]
    assert found["logged"][2] in shares
    check_partial_exports()
    # A check that can fail: equal shares are not what the policy has.
    equal = dict.fromkeys(shares, 1 / len(shares))
    assert p_value(found["counts"]["flagd"], equal) < FALSE_ALARM_RATE


def test_the_next_policy_draws_units_again(service: Service) -> None:
    def seeds() -> tuple[str, str]:
        rule = service.export("feed", "growthbook")["features"]["feed"]["rules"][0]
        split = service.export("feed", "flagd")["$evaluators"]["feed"]["if"][1]["fractional"]
        return rule["seed"], split[0]["cat"][0]

    before = seeds()
    service.close_round("feed", who="test")
    assert all(first != second for first, second in zip(before, seeds(), strict=True))
