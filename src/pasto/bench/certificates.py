"""Whether a certificate holds what it says, and what it costs: many studies with hard guardrails and a known truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import pasto
from pasto.bench.benchmark import Benchmark, Report
from pasto.bench.settings import uniform
from pasto.sim import Progress, World
from pasto.sim.draws import stream


@dataclass(frozen=True, slots=True)
class Calibration:
    """What many studies' answers turned out to be."""

    studies: int
    certified: int
    promises: int
    """Guardrails of certified answers."""
    kept: int
    """Of those, the ones that truly hold."""
    binding: int
    """Promises that are just kept, at the stated confidence and no more."""
    binding_kept: int
    gain: float
    """Mean true goal of certified answers over the best single candidate's."""
    bold_gain: float
    """The same for the answers that only hold guardrails on average (confidence 0.5), in the same studies."""


def calibrate(
    *,
    studies: int,
    rounds: int = 40,
    candidates: int = 20,
    sigma: float = 0.3,
    confidence: float = 0.95,
    seed: int = 1,
    progress: Progress | None = None,
) -> Calibration:
    """Run studies to a certified answer and hold it against the truth."""
    make = uniform(sigma, candidates=candidates, hard=True)
    certified = promises = kept = binding = binding_kept = 0
    gains, bold = [], []
    for number in range(studies):
        world = make(stream(seed, number, "truth"))
        exact = pasto.solve(world.truth, world.objective)
        study = _taught(world, rounds, confidence, seed, number)
        if exact.feasible and exact.single_value is not None:
            answer = study.blend()
            if answer.certificate is not None and answer.certificate.certified:
                certified += 1
                slack = world.objective.form().slack(world.truth @ answer.probabilities)
                promises += len(slack)
                held = slack >= -1e-9
                kept += int(held.sum())
                tight = np.array(list(answer.certificate.holds.values())) < confidence + 1e-3
                binding += int(tight.sum())
                binding_kept += int((held & tight).sum())
                loose = study.restated(confidence=0.5).blend()
                gains.append(float((world.truth @ answer.probabilities)[0]) - exact.single_value)
                bold.append(float((world.truth @ loose.probabilities)[0]) - exact.single_value)
        if progress is not None:
            progress("certificates", number + 1, studies)
    return Calibration(
        studies,
        certified,
        promises,
        kept,
        binding,
        binding_kept,
        float(np.mean(gains)) if gains else 0.0,
        float(np.mean(bold)) if bold else 0.0,
    )


def _taught(world: World, rounds: int, confidence: float, seed: int, number: int) -> pasto.Study:
    study = pasto.Study(world.candidates, world.objective, learner="thompson", seed=number, confidence=confidence)
    rng = np.random.default_rng([seed, number, 1])
    errors = np.broadcast_to(world.noise, world.truth.shape).T
    for _ in range(rounds):
        asked = study.ask(parallel=10)
        places = [assignment.candidate for assignment in asked]
        study.tell(asked, world.draw(places, rng), errors=errors[places])
    return study


def measure(*, studies: int = 500, progress: Progress | None = None) -> Report:
    """The calibration as one row."""
    found = calibrate(studies=studies, progress=progress)
    row = {
        "studies": found.studies,
        "certified": found.certified,
        "guardrails that hold": f"{found.kept / max(found.promises, 1):.1%}",
        "binding ones that hold": f"{found.binding_kept / max(found.binding, 1):.1%}",
        "stated": "95%",
        "gain over best single": round(found.gain, 4),
        "gain without caution": round(found.bold_gain, 4),
        "gain kept": f"{found.gain / found.bold_gain:.0%}" if found.bold_gain > 0 else "n/a",
    }
    return Report(
        "Certified answers against the truth",
        (row,),
        note="20 candidates, two hard guardrails, noise 0.3, 10 draws a round, 40 rounds.",
    )


BENCHMARK = Benchmark(
    name="certificates",
    summary="how often a certified guardrail truly holds, and what caution costs",
    run=lambda progress, quick: measure(studies=30 if quick else 500, progress=progress),
)
