"""Holdout: a slice of the hash line that no study may use, so that the sum of all launches can be measured.

It is a setting of the installation. Each study leaves it out from its next policy on, in every state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from msgspec import Struct

from pasto.document_validation import ProblemList
from pasto.errors import OptionError
from pasto.service.lifecycle import SERVING
from pasto.service.policy_cache import StudySnapshot
from pasto.service.study_file.amounts import read_share
from pasto.service.study_file.spec import LAYER_PARTS, StudySpec

HOLDOUT = "holdout"
"""Name of the setting in the store."""
MAX_HOLDOUT_SHARE = 0.5
HoldoutUse = Literal["left out", "from the next policy on", "no policy", "other unit", "assigned elsewhere"]


@dataclass(frozen=True, slots=True)
class HoldoutSetting:
    """Share of units that no study may use."""

    parts: int = 0
    """Length of the slice, which starts at 0, in millionths of the hash line; 0 without a holdout."""
    unit: str = "user"
    """Unit of the studies that it applies to: hashes of users and of requests are not comparable."""
    at: float | None = None
    """Time at which it was set."""

    def parts_for(self, spec: StudySpec) -> int:
        """Return the slice that policies of a study leave out; 0 if they cannot."""
        return self.parts if spec.assigned_unit == self.unit and not spec.is_external else 0

    def to_text(self) -> str:
        """Encode the setting as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str | None) -> HoldoutSetting:
        """Decode a stored setting; None is no holdout."""
        return cls() if text is None else cls(**json.loads(text))


class HoldoutStudy(Struct, frozen=True):
    """Study, and the holdout that its served policy leaves out."""

    study: str
    state: str
    unit: str
    share: float
    """Share that the served policy leaves out."""
    since: float | None
    """Time since which its policies leave out this share."""
    use: HoldoutUse
    """"left out" if the served policy leaves out the holdout as it is set now."""


class HoldoutRecord(Struct, frozen=True):
    """Holdout with the studies that serve a policy or are drafts."""

    share: float
    """Share of units that no study may use; 0 without a holdout."""
    unit: str
    since: float | None
    """Time at which it was set."""
    studies: tuple[HoldoutStudy, ...]


def read_holdout_share(given: Any, unit: str, at: float) -> HoldoutSetting:
    """Return the setting of a share such as "5%" or 0.05; OptionError if it is not valid.

    >>> read_holdout_share("5%", "user", 0.0).parts
    50000
    >>> read_holdout_share("60%", "user", 0.0)
    Traceback (most recent call last):
    ...
    pasto_sdk.errors.OptionError: share must be a share above 0 to 0.5, such as '10%' or 0.1, got '60%'
    """
    problems = ProblemList()
    share = read_share(problems, "share", given, high=MAX_HOLDOUT_SHARE, open_ends="low")
    if share is None:
        raise OptionError(f"share {problems.found['share']}")
    parts = round(share * LAYER_PARTS)
    if not parts or abs(share * LAYER_PARTS - parts) > 1e-6:
        raise OptionError(f"share must be a multiple of 0.0001%, got {share:.12g}; write {max(1, parts) / 1e4:g}%")
    return HoldoutSetting(parts, unit, at)


def describe_holdout(setting: HoldoutSetting, snapshots: Iterable[StudySnapshot]) -> HoldoutRecord:
    """Return the holdout with what each study does with it; archived studies are left out."""
    return HoldoutRecord(
        setting.parts / LAYER_PARTS,
        setting.unit,
        setting.at,
        tuple(_describe_use(setting, snapshot) for snapshot in snapshots if snapshot.row.state != "archived"),
    )


def _describe_use(setting: HoldoutSetting, snapshot: StudySnapshot) -> HoldoutStudy:
    row, spec, state = snapshot.row, snapshot.spec, snapshot.state
    use: HoldoutUse = "left out"
    if spec.is_external:
        use = "assigned elsewhere"
    elif spec.assigned_unit != setting.unit:
        use = "other unit"
    elif row.state not in SERVING:
        use = "no policy"
    elif state.holdout != setting.parts:
        use = "from the next policy on"
    since = state.holdout_since if state.holdout else None
    return HoldoutStudy(row.name, row.state, spec.assigned_unit, state.holdout / LAYER_PARTS, since, use)
