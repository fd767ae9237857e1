"""Sentence of advice, for every state of a study."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import pasto
from pasto.blend import Blend, Certificate, LearningForecast, Outlook
from pasto.report.records import BlendRecord, read_record, write_record
from pasto.report.summary import write_advice
from pasto.service.study_state import describe_blend

CERTIFICATE = Certificate(0.95, True, {}, {})
OUTLOOK = Outlook(
    decision="learn",
    deploy_rounds=180.0,
    round_cost=0.25,
    forecasts=(LearningForecast(1, 0.001, 0.25, -0.07), LearningForecast(10, 0.03, 2.5, 2.9)),
    gain=0.1,
    worth=0.004,
)


def make_blend(certificate: Certificate = CERTIFICATE, **outlook: Any) -> Blend:
    blend = pasto.solve({"x": [2, 0], "y": [-2, 2]}, pasto.maximize("x").keep("y", at_least=0))
    return replace(blend, certificate=certificate, outlook=replace(OUTLOOK, **outlook))


def test_learning_is_weighed_against_its_cost() -> None:
    assert write_advice(make_blend()) == (
        "keep learning: 10 more rounds are expected to improve x by 0.03 in each of the 180 rounds of deployment, "
        "and to cost 0.25 in each of the 10 rounds"
    )


def test_rounds_are_also_times_if_their_length_is_known() -> None:
    text = write_advice(make_blend(), round_seconds=3600.0)
    assert "10 more rounds (10h) are" in text
    assert "the 180 rounds (180h) of deployment" in text


def test_the_goals_own_unit_is_used() -> None:
    percent = replace(make_blend(), percent=True, goal="-load_time")
    assert "to improve load_time by 0.03% in each of" in write_advice(percent)
    assert "to cost 0.25% in each" in write_advice(percent)


def test_advice_to_stop_names_the_next_step() -> None:
    one = (LearningForecast(1, 0.0, 0.25, -0.25),)
    assert write_advice(make_blend(decision="stop", forecasts=one)) == (
        "stop learning and confirm the blend: 1 more round is expected to improve x by 0 in each of the 180 rounds of "
        "deployment, and to cost 0.25 in that round"
    )
    single = write_advice(make_blend(decision="stop", forecasts=one, equal_single=1))
    assert single.startswith("stop learning and ship 1, since mixing gains nothing: 1 more round")


def test_an_answer_without_certificate_is_not_to_be_confirmed() -> None:
    uncertified = replace(CERTIFICATE, certified=False)
    wanted = "that holds every guardrail with 95%"
    assert write_advice(make_blend(uncertified)) == f"keep learning: there is no blend yet {wanted}"
    stopped = write_advice(make_blend(uncertified, decision="stop"))
    assert stopped == f"stop learning: 10 more rounds are not expected to find a blend {wanted}"


def test_understated_errors_come_first() -> None:
    doubtful = replace(CERTIFICATE, certified=False, understated_errors={"x": 2.0})
    assert write_advice(make_blend(doubtful)).startswith("first find out why the standard errors of x are too small")


def test_an_early_study_is_marked_as_early() -> None:
    nothing = (LearningForecast(1, 0.0, 0.0, 0.0),)
    assert write_advice(make_blend(forecasts=nothing)) == "keep learning: most candidates have not been measured yet"


def test_without_an_outlook_there_is_no_advice() -> None:
    assert write_advice(replace(make_blend(), outlook=None)) == ""


def test_the_document_has_numbers_and_words() -> None:
    record = describe_blend(make_blend(equal_single=1), round_seconds=86_400.0)
    assert record.outlook is not None
    assert (record.outlook.decision, record.outlook.equal_single, record.outlook.round_cost) == ("learn", "1", 0.25)
    assert [each.net for each in record.outlook.forecasts] == [-0.07, 2.9]
    assert record.outlook.advice == write_advice(make_blend(), round_seconds=86_400.0)


def test_outlooks_of_earlier_releases_are_read_and_rendered() -> None:
    document = write_record(describe_blend(make_blend()))
    former = {
        "gain": 0.3,
        "probability": 0.5,
        "worth": 0.01,
        "advice": "keep learning: knowing the truth ...",
        "moves": [],
    }
    record = read_record({**document, "outlook": former}, BlendRecord)
    assert record.outlook is not None
    assert (record.outlook.gain, record.outlook.decision, record.outlook.forecasts) == (0.3, None, ())


def test_a_real_study_ends_with_advice() -> None:
    study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=1)
    rng = np.random.default_rng(1)
    for _ in range(4):
        assignments = study.ask(parallel=20)
        values = [[float(each.candidate) + 0.1 * rng.standard_normal()] for each in assignments]
        study.tell(assignments, values, standard_errors=[[0.1]] * 20)
    assert write_advice(study.blend()).startswith("stop learning and ship w=1, since mixing gains nothing: ")
