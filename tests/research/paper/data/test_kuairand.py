from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pasto.errors import InputError
from pasto_research.paper.data.kuairand import PRIOR, WEIGHT, History, find, impressions, load

Table = dict[str, NDArray[Any]]
HISTORY = {
    "watch_seq": {"user_id": np.array([1, 1, 1, 2]), "video": np.array([10, 11, 10, 10])},
    "like_seq": {"user_id": np.array([1]), "video": np.array([10])},
    "long_watch_seq": {"user_id": np.array([2]), "video": np.array([10])},
}
USERS = {
    "user_id": np.array([1, 2]),
    "user_active_degree": np.array(["full_active", "UNKNOWN"], dtype=object),
    "follow_user_num": np.array([5, 6]),
    "fans_user_num": np.array([0, 1]),
    "friend_user_num": np.array([0, 1]),
    "register_days": np.array([100, 200]),
    "is_video_author": np.array([0, 1]),
}


def log() -> Table:
    return {
        "user_id": np.array([2, 1, 1, 3]),
        "video_id": np.array([10, 10, 12, 10]),
        "time_ms": np.array([5, 9, 2, 1]),
        "hourmin": np.array([1930, 0, 815, 2359]),
        "tab": np.array([1, 1, 1, 0]),
        "duration_ms": np.array([1_000, 2_000, 0, 1]),
        "play_time_ms": np.array([400_000, 1_500, 0, 1]),
        "freshness_days": np.array([3, 4, 5, 6]),
        "tag": np.array(["39", "12,65", None, "1"], dtype=object),
        "long_view": np.array([1, 0, 0, 0]),
        "is_like": np.array([0, 1, 0, 0]),
        "is_forward": np.array([0, 0, 1, 0]),
    }


def test_impressions_of_the_main_feed_are_sorted_and_described() -> None:
    found = impressions(log(), USERS, History.of(HISTORY))
    assert found.users.tolist() == [1, 1, 2]
    assert found.feedback["watch"].tolist() == [0.0, 1.5, 300.0]
    assert found.feedback["like"].tolist() == [0.0, 1.0, 0.0]
    assert found.feedback["forward"].tolist() == [1.0, 0.0, 0.0]
    assert found.features[:, 2].tolist() == [8.0, 0.0, 19.0]
    np.testing.assert_array_equal(found.features[:, 3], [np.nan, 12.0, 39.0])
    liked = (1 + PRIOR["like_seq"] * WEIGHT) / (3 + WEIGHT)
    np.testing.assert_allclose(found.features[:, 5], [liked, liked, PRIOR["like_seq"] * WEIGHT / (1 + WEIGHT)])
    np.testing.assert_array_equal(np.isnan(found.features[:, 7]), [True, False, False])
    assert found.features[:, 10].tolist() == [3.0, 3.0, 0.0]


def test_a_directory_without_the_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no KuaiRand: val.parquet, test.parquet"):
        find(tmp_path)


@pytest.mark.realdata
def test_parquet_files_are_read(tmp_path: Path) -> None:
    import duckdb

    place = tmp_path / "kuairand"
    place.mkdir()
    rows = "(1, 10, 9, 0, 1, 2000, 1500, 4, '12', 0, 1, 0), (1, 11, 12, 100, 1, 900, 0, NULL, NULL, 0, 0, 0)"
    names = "user_id, video_id, time_ms, hourmin, tab, duration_ms, play_time_ms, freshness_days, tag, long_view"
    connection = duckdb.connect()
    for name in ("val", "test"):
        connection.execute(
            f"COPY (SELECT * FROM (VALUES {rows}) AS t({names}, is_like, is_forward)) TO '{place / name}.parquet'"  # noqa: S608
        )
    users = "SELECT 1 AS user_id, 'full_active' AS user_active_degree, 5 AS follow_user_num, 0 AS fans_user_num, 0 AS "
    users += "friend_user_num, 100 AS register_days, 0 AS is_video_author"
    connection.execute(f"COPY ({users}) TO '{place / 'user_features'}.parquet'")
    lists = "SELECT 1 AS user_id, [10, 11] AS watch_seq, [10] AS like_seq, [] :: BIGINT[] AS long_watch_seq"
    connection.execute(f"COPY ({lists}) TO '{place / 'user_sequences'}.parquet'")
    connection.close()
    earlier, later = load(tmp_path)
    assert earlier.users.tolist() == later.users.tolist() == [1, 1]
    assert later.feedback["like"].tolist() == [1.0, 0.0]
    np.testing.assert_array_equal(later.features[:, 1], [4.0, np.nan])
