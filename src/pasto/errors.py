"""Every error PASTO raises, as one tree.

PastoError
├── BadInput (ValueError)             what you gave does not fit; the message names it and the cure
│   ├── BadSpace                      parameters, candidates and their constraints
│   ├── BadObjective                  goals, guardrails, utilities
│   ├── BadTruth                      a table of means that does not fit its objective
│   ├── BadMeasurement                metrics told to a study
│   ├── BadState                      a saved state that cannot be read back
│   ├── BadSpec                       a study file; `problems` names every field that is wrong
│   ├── BadPolicy                     a published policy that cannot be read or does not add up
│   ├── BadText                       words for the audit log that cannot be kept or printed as they are
│   └── BadOption                     a name or setting that does not exist
├── Unsupported (TypeError)           the learner cannot take this objective; the message names one that can
├── UnknownAssignment (KeyError)      told or dropped, but never asked
├── AlreadyTold (ValueError)          told or dropped twice
├── NothingLearned (RuntimeError)     an answer was asked for before the first round was learned
├── UnknownStudy (KeyError)           no study has that name
├── StudyExists (ValueError)          two studies cannot share a name
├── WrongState (RuntimeError)         the study's life cycle does not allow this now; the message says what does
├── OutOfDate (RuntimeError)          someone else changed the study first; read it again
├── StoreError (RuntimeError)         where records rest
│   ├── StoreBusy                     it has more to write than it can; nothing was taken, try again
│   ├── StoreRefused                  it would not be safe to open, and why
│   ├── StoreDamagedError             its file is damaged
│   ├── StoreLostError                its file was removed, replaced or emptied while it was open
│   └── SourceError                   a team's own tables cannot be read or do not fit the study
├── SolverFailed (ArithmeticError)    the numerical solver gave up; the message carries its reason
└── MissingExtra (ImportError)        an optional dependency is not installed; the message names the install

PastoWarning (UserWarning)            the input is usable, but probably not what was meant
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from pasto_sdk.errors import BadInput as BadInput
from pasto_sdk.errors import BadOption as BadOption
from pasto_sdk.errors import BadPolicy as BadPolicy
from pasto_sdk.errors import PastoError as PastoError

MAX_PROBLEMS = 100
"""Problems of a study file that an error lists."""


class BadSpace(BadInput):
    """Parameters, candidates or constraints that make no usable space."""


class BadObjective(BadInput):
    """A goal, guardrail or utility that makes no usable objective."""


class BadTruth(BadInput):
    """A table of means that does not fit its objective."""


class BadMeasurement(BadInput):
    """Metrics told to a study that cannot be learned from; nothing was recorded."""


class BadState(BadInput):
    """A saved state that cannot be read back."""


class BadSpec(BadInput):
    """A study file that makes no usable study.

    >>> str(BadSpec({"goal.maximize": "names 'watch', which is no metric", "unit": "is missing"}))
    "goal.maximize names 'watch', which is no metric; unit is missing"
    """

    def __init__(self, problems: Mapping[str, str]) -> None:
        listed = dict(islice(problems.items(), MAX_PROBLEMS))
        if len(problems) > MAX_PROBLEMS:
            listed.setdefault("", f"{len(problems) - MAX_PROBLEMS:,} more problems are not listed; fix these first")
        super().__init__("; ".join(f"{field} {problem}" if field else problem for field, problem in listed.items()))
        self.problems = listed
        """What is wrong, by the field's path; under "" how many more there are, if there are too many to list."""


class BadText(BadInput):
    """Words for the audit log that cannot be kept, or printed, as they are."""


class Unsupported(PastoError, TypeError):  # noqa: N818
    """A learner or solver that cannot take this objective; the message names one that can."""


class UnknownAssignment(PastoError, KeyError):  # noqa: N818
    """An assignment that this study never asked for."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class AlreadyTold(PastoError, ValueError):  # noqa: N818
    """An assignment that was told or dropped before."""


class NothingLearned(PastoError, RuntimeError):  # noqa: N818
    """An answer was asked for before the first round was learned."""


class UnknownStudy(PastoError, KeyError):  # noqa: N818
    """No study has that name."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class StudyExists(PastoError, ValueError):  # noqa: N818
    """Two studies cannot share a name."""


class WrongState(PastoError, RuntimeError):  # noqa: N818
    """The study's life cycle does not allow this now."""


class OutOfDate(PastoError, RuntimeError):  # noqa: N818
    """Someone else changed the study first."""


class StoreError(PastoError, RuntimeError):
    """Where records rest could not do what was asked; nothing was half done."""


class StoreBusy(StoreError):  # noqa: N818
    """The store has more to write than it can; nothing was taken, and it can be sent again."""


class StoreRefused(StoreError):  # noqa: N818
    """A store that would not be safe to open; the message says why and what to do."""


class StoreDamagedError(StoreError):
    """A store whose file is damaged; a backup has to be restored."""


class StoreLostError(StoreError):
    """A store whose file was removed, replaced or emptied while it was open; nothing more is acknowledged."""


class SourceError(StoreError):
    """A team's own tables cannot be read, or do not fit the study; the message names the table, column and fix."""


class SolverFailed(PastoError, ArithmeticError):  # noqa: N818
    """The numerical solver gave up."""


class MissingExtra(PastoError, ImportError):  # noqa: N818
    """An optional dependency is not installed; the message names the install that brings it.

    >>> print(MissingExtra("figures need matplotlib", "plots"))
    figures need matplotlib; install it in a clone of PASTO with: pip install '.[plots]'
    """

    def __init__(self, need: str, extra: str) -> None:
        super().__init__(need, extra)

    def __str__(self) -> str:
        need, extra = self.args
        # PASTO is on no package index yet, so the message must not send anybody to one.
        return f"{need}; install it in a clone of PASTO with: pip install '.[{extra}]'"


class PastoWarning(UserWarning):
    """The input is usable, but probably not what was meant."""
