"""Errors and warnings that PASTO raises, as one tree.

PastoError
├── InputError (ValueError)             what you gave does not fit; the message names it and the cure
│   ├── SpaceError                      parameters, candidates and their constraints
│   ├── ObjectiveError                  goals, guardrails, utilities
│   ├── MeansError                      a table of means that does not fit its objective
│   ├── MeasurementError                metrics passed to a study
│   ├── HistoryError                    earlier results that a study cannot start from
│   ├── StateError                      a saved state that cannot be read back
│   ├── StudyFileError                  a study file; `problems` names every field that is wrong
│   │   └── LayerShareError             a share of a layer that other studies have
│   ├── PolicyError                     a published policy that cannot be read or does not add up
│   ├── TextError                       text for the audit log with control characters
│   └── OptionError                     a name or setting that does not exist
├── UnsupportedError (TypeError)        the learner cannot take this objective; the message names one that can
├── UnknownAssignmentError (KeyError)   answered or dropped, but never asked for
├── AlreadyAnsweredError (ValueError)   answered or dropped twice
├── NotFittedError (RuntimeError)       an answer was asked for before the first round was learned
├── UnknownStudyError (KeyError)        no study has that name
├── StudyExistsError (ValueError)       two studies cannot share a name
├── LifecycleError (RuntimeError)       the life cycle does not allow this now; the message names the allowed actions
├── ConflictError (RuntimeError)        someone else changed the study first; read it again
├── StoreError (RuntimeError)           the store could not do what was asked
│   ├── StoreBusyError                  it has more to write than it can; nothing was taken, try again
│   ├── UnsafeStoreError                it would not be safe to open, and why
│   ├── StoreDamagedError               its file is damaged
│   ├── StoreLostError                  its file was removed, replaced or emptied while it was open
│   └── SourceError                     a team's own tables cannot be read or do not fit the study
├── SolverError (ArithmeticError)       the numerical solver gave up; the message carries its reason
└── MissingExtraError (ImportError)     an optional dependency is not installed; the message names the install

PastoWarning (UserWarning)              the input is usable, but probably not what was meant
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from pasto_sdk.errors import InputError as InputError
from pasto_sdk.errors import OptionError as OptionError
from pasto_sdk.errors import PastoError as PastoError
from pasto_sdk.errors import PolicyError as PolicyError

MAX_PROBLEMS = 100
"""Problems of a study file that an error lists."""
RESEARCH_EXTRAS = frozenset({"peers", "vae"})
"""Extras of the distribution pasto-research."""


class SpaceError(InputError):
    """Parameters, candidates or constraints that make no usable space."""


class ObjectiveError(InputError):
    """A goal, guardrail or utility that makes no usable objective."""


class MeansError(InputError):
    """A table of means that does not fit its objective."""


class MeasurementError(InputError):
    """Metrics passed to a study that it cannot learn from; nothing was recorded."""


class HistoryError(InputError):
    """Earlier results that a study cannot start from."""


class StateError(InputError):
    """A saved state that cannot be read back."""


class StudyFileError(InputError):
    """A study file that makes no usable study.

    >>> str(StudyFileError({"goal.maximize": "names 'watch', which is not a metric", "unit": "is missing"}))
    "goal.maximize names 'watch', which is not a metric; unit is missing"
    """

    def __init__(self, problems: Mapping[str, str]) -> None:
        listed = dict(islice(problems.items(), MAX_PROBLEMS))
        if len(problems) > MAX_PROBLEMS:
            listed.setdefault("", f"{len(problems) - MAX_PROBLEMS:,} more problems are not listed; fix these first")
        super().__init__("; ".join(f"{field} {problem}" if field else problem for field, problem in listed.items()))
        self.problems = listed
        """What is wrong, by the field's path; under "" how many more there are, if there are too many to list."""


class LayerShareError(StudyFileError):
    """A share of a layer that is not free; the message names the studies that have it.

    >>> error = LayerShareError("is 70%; archive or shrink {}", "search (40%)")
    >>> str(error), str(error.anonymous)
    ('layer.share is 70%; archive or shrink search (40%)', 'layer.share is 70%; archive or shrink other studies')
    """

    def __init__(self, problem: str, studies: str) -> None:
        super().__init__({"layer.share": problem.format(studies)})
        self.anonymous = StudyFileError({"layer.share": problem.format("other studies")})
        """The same error without names, for callers who may not read those studies."""


class TextError(InputError):
    """Words for the audit log that cannot be kept, or printed, as they are."""


class UnsupportedError(PastoError, TypeError):
    """A learner or solver that cannot take this objective; the message names one that can."""


class UnknownAssignmentError(PastoError, KeyError):
    """An assignment that this study never asked for."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class AlreadyAnsweredError(PastoError, ValueError):
    """An assignment that was measured or dropped before."""


class NotFittedError(PastoError, RuntimeError):
    """An answer was asked for before the first round was learned."""


class UnknownStudyError(PastoError, KeyError):
    """No study has that name."""

    @classmethod
    def named(cls, name: str) -> UnknownStudyError:
        """Return the error for a name. A caller who may not see a study gets the same one."""
        return cls(f"there is no study {name!r}; create it first, or check the name")

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class StudyExistsError(PastoError, ValueError):
    """Two studies cannot share a name."""


class LifecycleError(PastoError, RuntimeError):
    """The study's life cycle does not allow this now."""


class ConflictError(PastoError, RuntimeError):
    """Someone else changed the study first."""


class StoreError(PastoError, RuntimeError):
    """A store that could not do a request; nothing was done in part."""


class StoreBusyError(StoreError):
    """The store has more to write than it can; nothing was taken, and it can be sent again."""


class UnsafeStoreError(StoreError):
    """A store that would not be safe to open; the message gives the reason and the fix."""


class StoreDamagedError(StoreError):
    """A store whose file is damaged; a backup has to be restored."""


class StoreLostError(StoreError):
    """A store whose file was removed, replaced or emptied while it was open; nothing more is acknowledged."""


class SourceError(StoreError):
    """A team's own tables cannot be read, or do not fit the study; the message names the table, column and fix."""


class SolverError(PastoError, ArithmeticError):
    """The numerical solver gave up."""


class MissingExtraError(PastoError, ImportError):
    """An optional dependency is not installed; the message names the install that brings it.

    >>> print(MissingExtraError("figures need matplotlib", "plots"))
    figures need matplotlib; install it in a clone of PASTO with: pip install '.[plots]'
    """

    def __init__(self, need: str, extra: str) -> None:
        super().__init__(need, extra)

    def __str__(self) -> str:
        need, extra = self.args
        # PASTO is on no package index yet, so the message does not name one.
        project = "./research" if extra in RESEARCH_EXTRAS else "."
        return f"{need}; install it in a clone of PASTO with: pip install '{project}[{extra}]'"


class PastoWarning(UserWarning):
    """The input is usable, but probably not what was meant."""


def refuse_renamed_options(function: str, given: Mapping[str, object], new_names: Mapping[str, str]) -> None:
    """Raise OptionError for an option that has another name now, and TypeError for one that never existed.

    >>> refuse_renamed_options("Study", {"cap": 0.3}, {"cap": "max_share"})
    Traceback (most recent call last):
    pasto_sdk.errors.OptionError: Study() has no option cap=; it is called max_share= now
    """
    for name in given:
        if name in new_names:
            raise OptionError(f"{function}() has no option {name}=; it is called {new_names[name]}= now")
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
