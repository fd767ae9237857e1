"""Full disk: events are refused with 507, while a pause and the revocation of a key still succeed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from pasto_sdk.policy import PublishedPolicy
from tests.chaos.campaign import Scenario, Workshop
from tests.chaos.load import STUDY, Event, Ledger, create_studies
from tests.chaos.report import Outcome
from tests.chaos.service_process import ServiceProcess
from tests.chaos.verification import verify_service
from tests.system.killable_service import batch

DISK_MB = 40
MAX_UNMOUNT_TRIES = 100
BALLAST = "ballast"
"""A file that fills the disk, and is removed to free space."""
BATCHES_WHILE_FULL = 20
READINESS_SECONDS = 5.0
RECOVERY_SECONDS = 30.0
PAUSE = {"action": "pause", "reason": "the disk is full", "hold": "baseline"}


def fill_disk(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Fill the disk under a running service, use the service, free the disk, and check for losses."""
    if (reason := why_not_mountable()) is not None:
        outcome.left_out = reason
        return
    ledger = Ledger()
    with mounted_disk(workshop.folder(), DISK_MB) as disk, workshop.serving(str(disk / "store")) as node:
        node.make_key("campaign", "admin")
        create_studies(node)
        sender = _Sender(node, ledger)
        for turn in workshop.turns(repetitions):
            prefix, key = node.make_key(f"stolen {turn}", "read")
            sender.send(5)
            _write_ballast(disk)
            outcome.require(sender.send_until_refused(), "no batch was refused on a full disk")
            _use_full_service(outcome, node, sender, prefix)
            if turn % 2:
                node.kill()
                node.start()
            _verify_safety(outcome, node, key)
            (disk / BALLAST).unlink()
            node.wait_for(
                node.is_ready, "the service was not ready again after the disk had free space", RECOVERY_SECONDS
            )
            sender.send_until_taken()
            _verify_audit(outcome, node, turn + 1)
            outcome.repetitions += 1
        verify_service(outcome, node, ledger)


def _use_full_service(outcome: Outcome, node: ServiceProcess, sender: _Sender, prefix: str) -> None:
    """Decide, send, pause and revoke while nothing can be written."""
    for answer in sender.send(BATCHES_WHILE_FULL):
        is_refused = answer.status_code == 507 and "retry-after" in answer.headers
        outcome.require(is_refused, f"events on a full disk: {_describe(answer)}; needed 507 with Retry-After")
    with node.client() as client:
        decision = client.post(f"/v1/studies/{STUDY}/assign", json={"unit": "ann"})
        outcome.require(decision.status_code == 200, f"a decision on a full disk: {_describe(decision)}")
        ready = client.get("/readyz")
        ends = time.monotonic() + READINESS_SECONDS
        while ready.status_code != 503 and time.monotonic() < ends:  # an earlier answer is valid for one second
            time.sleep(0.1)
            ready = client.get("/readyz")
        outcome.require(ready.status_code == 503, f"/readyz on a full disk: {_describe(ready)}; needed 503")
        pause = client.patch(f"/v1/studies/{STUDY}", json=PAUSE)
        outcome.require(pause.status_code == 200, f"a pause on a full disk: {_describe(pause)}; needed 200")
        revocation = client.delete(f"/v1/keys/{prefix}")
        outcome.require(
            revocation.status_code == 200, f"a revocation on a full disk: {_describe(revocation)}; needed 200"
        )
    for answer in (decision, ready, pause, revocation):
        outcome.count_status(answer.status_code)


def _verify_safety(outcome: Outcome, node: ServiceProcess, revoked: str) -> None:
    """Check that the pause and the revocation hold while the disk is still full."""
    with node.client() as client:
        response = client.get(f"/v1/studies/{STUDY}")
        is_paused = response.status_code == 200 and response.json()["state"] == "paused"
        outcome.require(is_paused, "a study that was paused on a full disk is not paused")
        answer = client.get("/v1/studies", headers={"authorization": f"Bearer {revoked}"})
        outcome.require(answer.status_code == 401, f"a key revoked on a full disk is answered {answer.status_code}")
        outcome.let_in += answer.status_code == 200
        outcome.requests += 2


def _verify_audit(outcome: Outcome, node: ServiceProcess, pauses: int) -> None:
    """Check that the audit logs have one pause and one revocation per turn, and resume the study."""
    with node.client() as client:
        audit = client.get(f"/v1/studies/{STUDY}/audit").raise_for_status().json()["audit"]
        found = sum(line["action"] == "pause" and line["reason"] == PAUSE["reason"] for line in audit)
        outcome.require(found == pauses, f"the audit log has {found} of {pauses} pauses")
        lines = client.get("/v1/keys/audit?limit=1000").raise_for_status().json()["audit"]
        found = sum(line["action"] == "key revoked" for line in lines)
        outcome.require(found == pauses, f"the audit log of keys has {found} of {pauses} revocations")
        client.patch(f"/v1/studies/{STUDY}", json={"action": "resume", "reason": "the disk has free space"})


def _describe(answer: httpx.Response) -> str:
    is_incomplete = answer.status_code == 507 and "retry-after" not in answer.headers
    return f"{answer.status_code}{' without Retry-After' if is_incomplete else ''}"


class _Sender:
    """Sender that repeats each batch until it is accepted, like an SDK."""

    def __init__(self, node: ServiceProcess, ledger: Ledger) -> None:
        self._node, self._ledger = node, ledger
        self._number = 0
        self._policy: PublishedPolicy | None = None
        self._pending: list[Event] = []

    def send(self, count: int) -> list[httpx.Response]:
        """Send a number of requests, each once; the next request repeats a refused batch."""
        return [self._post() for _ in range(count)]

    def send_until_refused(self) -> bool:
        """Send until the disk accepts no more."""
        return any(self._post().status_code == 507 for _ in range(2_000))

    def send_until_taken(self) -> None:
        """Send the pending batch until it is accepted."""
        self._node.wait_for(lambda: self._post().status_code == 200, "no batch was taken after the disk had free space")

    def _post(self) -> httpx.Response:
        with self._node.client() as client:
            if self._policy is None:
                document = client.get(f"/v1/studies/{STUDY}/policy").raise_for_status().text
                self._policy = PublishedPolicy.from_text(document)
            if not self._pending:
                numbers = range(self._number, self._number + 10)
                self._pending = [event for number in numbers for event in batch(self._policy, None, number)]
                self._number += 10
            answer = client.post(f"/v1/studies/{STUDY}/events", json=self._pending)
        self._ledger.note_status(answer.status_code)
        if answer.status_code == 200:
            self._ledger.note_batch(self._pending, answer.json())
            self._pending = []
        return answer


def why_not_mountable() -> str | None:
    """Return the reason why this machine cannot mount a small disk, or None."""
    if os.getuid() != 0:
        return "a small disk can be mounted by root only"
    return None if shutil.which("mount") else "mount is not installed"


@contextmanager
def mounted_disk(folder: Path, size_mb: int) -> Iterator[Path]:
    """Mount a disk in memory for the duration of a block."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)], check=True)  # noqa: S607
    try:
        yield folder
    finally:
        # The question process of a killed service ends a moment after it, and holds the disk until then.
        for _ in range(MAX_UNMOUNT_TRIES - 1):
            if subprocess.run(["umount", str(folder)], check=False, capture_output=True).returncode == 0:  # noqa: S607
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def _write_ballast(disk: Path) -> None:
    """Fill the disk."""
    with (disk / BALLAST).open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 512):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


SCENARIOS = (Scenario("disk", "full disk", fill_disk, 6, 2),)
