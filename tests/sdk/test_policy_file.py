"""Policy file: the last good policy on disk survives the death of the process, and is never incomplete."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pasto_sdk import Client, FakeService, Request, Response
from pasto_sdk.diagnostics import ErrorLog
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_file import SavedPolicy, delete_old_policies, load_policy, policy_path, save_policy
from pasto_sdk.policy_holder import PolicyHolder
from pasto_sdk.policy_poller import PolicyPoller

Make = Callable[..., PublishedPolicy]


def cold_start(folder: Path, **options: Any) -> Client:
    """Return a client whose service is away."""
    service = FakeService()
    service.fault = lambda request: Response(503)
    client = Client(
        "http://x", study="feed", cache=folder, background=False, transport=service, baseline={"weight": -1}, **options
    )
    client.wait_until_ready()
    return client


@pytest.fixture
def used_folder(tmp_path: Path, policy: Make) -> Path:
    """Return the folder of a client that stopped normally."""
    with Client("http://x", study="feed", cache=tmp_path, background=False, transport=FakeService(policy(3))) as client:
        assert client.wait_until_ready()
    return tmp_path


def only(folder: Path) -> Path:
    (file,) = (path for path in folder.iterdir() if path.is_file())
    return file


def test_a_start_without_the_service_continues_with_the_last_policy(used_folder: Path, policy: Make) -> None:
    with cold_start(used_folder) as client:
        assert (client.assign("ann").version, client.assign("ann").reason) == (3, "SPLIT")
        assert client.assign("ann").name == policy(3).draw("ann").name
        assert client.status()["age"] < 60


def test_the_file_is_the_users_own_and_outlives_the_client(used_folder: Path) -> None:
    file = only(used_folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with cold_start(used_folder):
        pass
    assert only(used_folder) == file


def test_each_address_and_study_has_its_own_file(tmp_path: Path) -> None:
    files = {policy_path(tmp_path, url, study) for url in ("http://x", "http://y") for study in ("feed", "ads")}
    assert len(files) == 4


def test_by_default_it_is_in_the_users_cache(tmp_path: Path, policy: Make) -> None:
    for cache in (True, None, False):
        with Client("http://x", study="feed", cache=cache, background=False, transport=FakeService(policy())) as client:
            assert client.wait_until_ready()
    only(tmp_path / "user-cache" / "pasto")


def test_without_a_home_it_goes_without(monkeypatch: pytest.MonkeyPatch, policy: Make) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")

    def raise_no_home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", raise_no_home)
    with Client("http://x", study="feed", background=False, transport=FakeService(policy())) as client:
        assert client.wait_until_ready()


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path, policy: Make) -> None:
    (tmp_path / "file").write_text("in the way")
    with Client(
        "http://x", study="feed", cache=tmp_path / "file", background=False, transport=FakeService(policy())
    ) as client:
        assert client.wait_until_ready()
        assert "cannot be saved on disk" in client.status()["last_error"]


def test_a_missing_file_means_the_baseline(tmp_path: Path) -> None:
    with cold_start(tmp_path) as client:
        decision = client.assign("ann")
        assert (dict(decision.values), decision.reason) == ({"weight": -1}, "DEFAULT")
        assert "disk" not in client.status()["last_error"]


def damaged(content: bytes, kind: str, place: int, noise: bytes) -> bytes:
    place %= len(content)
    return {
        "truncated": content[:place],
        "garbage": noise,
        "flipped": content[:place] + bytes([content[place] ^ (1 + len(noise) % 255)]) + content[place + 1 :],
        "inserted": content[:place] + b"0" + noise + content[place:],
        "zeros": content[:place] + bytes(len(content) - place),
        "twice": content + content,
    }[kind]


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.sampled_from(["truncated", "garbage", "flipped", "inserted", "zeros", "twice"]),
    st.integers(0, 10**6),
    st.binary(max_size=200),
)
def test_a_damaged_file_is_ignored(used_folder: Path, kind: str, place: int, noise: bytes) -> None:
    file = only(used_folder)
    content = file.read_bytes()
    try:
        file.write_bytes(damaged(content, kind, place, noise))
        with cold_start(used_folder) as client:
            decision = client.assign("ann")
            assert (dict(decision.values), decision.reason) == ({"weight": -1}, "DEFAULT")
            assert client.status()["errors"] >= 2
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize("contact", ["nan", "inf", "-inf", "soon", ""])
def test_a_file_of_no_known_age_is_ignored(used_folder: Path, contact: str) -> None:
    file = only(used_folder)
    save_policy(file, SavedPolicy(load_policy(file).text, contact))  # type: ignore[arg-type]
    with cold_start(used_folder) as client:
        assert client.assign("ann").reason == "DEFAULT"


@pytest.mark.parametrize(
    ("age", "reason"), [(86_000, "SPLIT"), (86_500, "STALE"), (-86_000, "SPLIT"), (-86_500, "STALE")]
)
def test_expiry_counts_from_the_last_contact_of_the_process_before(used_folder: Path, age: float, reason: str) -> None:
    file = only(used_folder)
    save_policy(file, SavedPolicy(load_policy(file).text, time.time() - age))
    with cold_start(used_folder) as client:
        assert client.assign("ann").reason == reason
        assert client.assign("ann").version == 3


def test_the_policy_of_another_study_is_not_taken(used_folder: Path, policy: Make) -> None:
    save_policy(only(used_folder), SavedPolicy(policy(study="ads").text, time.time()))
    with cold_start(used_folder) as client:
        assert client.assign("ann").reason == "DEFAULT"


def test_a_newer_policy_replaces_the_one_on_disk(used_folder: Path, policy: Make) -> None:
    service = FakeService(policy(4))
    with Client("http://x", study="feed", cache=used_folder, background=False, transport=service) as client:
        assert client.assign("ann").version == 3
        assert client.wait_until_ready()
        assert client.assign("ann").version == 4
    with cold_start(used_folder) as client:
        assert client.assign("ann").version == 4


def test_confirmations_are_written_now_and_then(tmp_path: Path, policy: Make) -> None:
    file, service = tmp_path / "policy", FakeService(policy())
    wall = [1e9]
    poller = PolicyPoller(
        PolicyHolder("feed", lambda: wall[0], 10),
        service,
        "http://x",
        {},
        ErrorLog(),
        poll_interval=20,
        file=file,
        clock=lambda: wall[0],
        wall=lambda: wall[0],
    )
    writes = set()
    for _ in range(1000):
        poller.step()
        writes.add(load_policy(file).contact)
        wall[0] += 20
    assert 4 <= len(writes) <= 6
    assert wall[0] - max(writes) <= 86400 / 20 + 20


def test_files_of_dead_processes_are_removed(used_folder: Path) -> None:
    file = only(used_folder)
    old, new = file.with_name(f"{file.name}.a.part"), file.with_name(f"{file.name}.b.part")
    for part in (old, new):
        part.write_text("half")
    os.utime(old, (time.time() - 3600,) * 2)
    delete_old_policies(file)
    assert sorted(used_folder.iterdir()) == sorted([file, new])


WRITER = """
import os, signal, sys, time
from pathlib import Path
from pasto_sdk.policy_file import SavedPolicy, load_policy, save_policy

file, delays = Path(sys.argv[1]), [float(word) for word in sys.argv[2:]]
texts = {letter * 300_000 for letter in "ab"}
save_policy(file, SavedPolicy("a" * 300_000, 0.0))
for delay in delays:
    begun, begins = os.pipe()
    child = os.fork()
    if child == 0:
        save_policy(file, SavedPolicy("b" * 300_000, 1.0))
        os.write(begins, b"x")
        while True:
            for text in texts:
                save_policy(file, SavedPolicy(text, 1.0))
    os.read(begun, 1)  # it runs, and writes all the time from now on
    os.close(begun)
    os.close(begins)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert load_policy(file).text in texts
print(len(list(file.parent.glob("*.part"))))
"""


def test_a_kill_while_writing_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    rng = random.Random(7)
    delays = [f"{rng.uniform(0.001, 0.02):.4f}" for _ in range(50)]
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path / "policy"), *delays], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0  # Some processes died while they wrote.


def test_ready_means_the_services_own_word_and_not_only_what_is_on_disk(used_folder: Path, policy: Make) -> None:
    newer = FakeService(policy(4))

    def late(request: Request) -> Response:
        time.sleep(0.2)
        return newer(request)

    with Client("http://x", study="feed", cache=used_folder, transport=late) as client:
        assert client.wait_until_ready()
        assert client.assign("user 7").version == 4


def test_in_an_outage_ready_goes_by_what_is_on_disk(used_folder: Path) -> None:
    gone = FakeService()
    gone.fault = lambda request: Response(503)
    with Client("http://x", study="feed", cache=used_folder, transport=gone) as client:
        assert client.wait_until_ready(0.1)
        assert client.assign("user 7").version == 3
