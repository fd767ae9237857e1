"""KuaiRand-Pure, the standard policy's log: impressions of short videos with several kinds of feedback.

The part at hand is two Parquet files of impressions, of the last days of April 2022 and the first of May, with tables
of users and of their history before. A model is trained on the first file and judged on the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import InputError
from pasto_research.paper.data.readers import Columns, columns

FEED = 1
"""The tab that holds four fifths of the impressions: one page, one list."""
LONGEST = 300.0
"""Seconds at which watch time is cut."""
FEEDBACK = ("watch", "long_view", "like", "forward")
FILES = ("val.parquet", "test.parquet", "user_features.parquet", "user_sequences.parquet")
LOGGED = ("user_id", "video_id", "time_ms", "hourmin", "tab", "duration_ms", "play_time_ms", "freshness_days", "tag")
USERS = ("follow_user_num", "fans_user_num", "friend_user_num", "register_days", "is_video_author")
ACTIVE = {"full_active": 3.0, "high_active": 2.0, "middle_active": 1.0}
PRIOR = {"like_seq": 0.03, "long_watch_seq": 0.4}
"""About the share of watched videos that are liked, and watched for long."""
WEIGHT = 20.0
"""Videos watched that the prior counts for."""


@dataclass(frozen=True, slots=True, eq=False)
class Impressions:
    """Impressions of one file, sorted by user and time."""

    users: NDArray[np.int64]
    features: FloatArray
    """(impressions, features)."""
    feedback: dict[str, FloatArray]
    """(impressions,) each: seconds watched, and zeros and ones."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Return features from before the impressions: shares among the watched videos, by user and by video."""

    by_user: dict[str, dict[int, float]]
    by_video: dict[str, dict[int, float]]

    @classmethod
    def of(cls, sequences: dict[str, Columns]) -> History:
        """Return the features from pairs of a user and a video for each kind of sequence."""
        found: dict[str, dict[str, dict[int, float]]] = {}
        for key in ("user_id", "video"):
            counts = {kind: _counted(pairs[key]) for kind, pairs in sequences.items()}
            watched = counts["watch_seq"]
            found[key] = {"watch_seq": {item: float(count) for item, count in watched.items()}}
            for kind, prior in PRIOR.items():
                found[key][kind] = {
                    item: (counts[kind].get(item, 0) + prior * WEIGHT) / (count + WEIGHT)
                    for item, count in watched.items()
                }
        return cls(found["user_id"], found["video"])


def find(directory: str | Path) -> Path:
    """Return the directory with the files: this one, or a direct subdirectory."""
    place = Path(directory)
    for each in (place, *sorted(path for path in place.glob("*") if path.is_dir())):
        if all((each / name).exists() for name in FILES):
            return each
    raise InputError(f"{str(directory)!r} holds no KuaiRand: {', '.join(FILES)} are needed")


def load(directory: str | Path) -> tuple[Impressions, Impressions]:
    """Return the impressions of the main feed for training, and those for testing."""
    place = find(directory)
    kinds = ("watch_seq", *PRIOR)
    sequences = {}
    for kind in kinds:
        pairs = columns(place / FILES[3], "user_id", unnest=kind)
        sequences[kind] = {"user_id": pairs["user_id"], "video": pairs[kind]}
    history = History.of(sequences)
    users = columns(place / FILES[2], "user_id", "user_active_degree", *USERS)
    wanted = (*LOGGED, "long_view", "is_like", "is_forward")
    first, second = (impressions(columns(place / name, *wanted), users, history) for name in FILES[:2])
    return first, second


def impressions(log: Columns, users: Columns, history: History) -> Impressions:
    """Return rows of the main feed with their features; none is known only after the impression."""
    order = np.lexsort((log["video_id"], log["time_ms"], log["user_id"]))
    order = order[log["tab"][order] == FEED]
    row = {name: values[order] for name, values in log.items()}
    places = {int(user): place for place, user in enumerate(users["user_id"].tolist())}
    user_places = np.array([places.get(user, -1) for user in row["user_id"].tolist()])
    active = np.array([ACTIVE.get(str(degree), 0.0) for degree in users["user_active_degree"]])
    parts = [
        np.log(np.maximum(row["duration_ms"].astype(float), 1.0)),
        row["freshness_days"].astype(float),
        row["hourmin"].astype(float) // 100,
        np.array([_tag(tag) for tag in row["tag"]]),
        *(_looked(history.by_user[kind], row["user_id"]) for kind in ("watch_seq", *PRIOR)),
        *(_looked(history.by_video[kind], row["video_id"]) for kind in ("watch_seq", *PRIOR)),
        *(
            np.where(user_places < 0, np.nan, values.astype(float)[user_places])
            for values in (active, *(users[n] for n in USERS))
        ),
    ]
    return Impressions(
        row["user_id"].astype(np.int64),
        np.column_stack(parts),
        {
            "watch": np.clip(row["play_time_ms"].astype(float) / 1000.0, 0.0, LONGEST),
            "long_view": row["long_view"].astype(float),
            "like": row["is_like"].astype(float),
            "forward": row["is_forward"].astype(float),
        },
    )


def _counted(values: NDArray[np.int64]) -> dict[int, int]:
    found, counts = np.unique(values, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _looked(value_by_identity: dict[int, float], identities: NDArray[np.int64]) -> FloatArray:
    return np.array([value_by_identity.get(identity, np.nan) for identity in identities.tolist()])


def _tag(tags: object) -> float:
    """Return the first of a video's tags, as a number."""
    first = str(tags).split(",")[0]
    return float(first) if first.replace(".", "", 1).isdigit() else np.nan
