"""Segments in the service: a study file that has them is refused with one sentence, and nothing is written."""

from __future__ import annotations

from typing import Any

import pytest

from pasto.errors import StudyFileError, UnknownStudyError
from pasto.service.service import Service

Document = dict[str, Any]

SEGMENTS = {"attribute": "activity", "values": ["new", "heavy"]}
SENTENCE = "segments cannot be learned yet: a study has one blend for all units; leave segments out"


def test_no_study_is_created_with_segments(service: Service, document: Document) -> None:
    for call in (service.check, lambda file: service.create(file, who="ann")):
        with pytest.raises(StudyFileError, match=SENTENCE):
            call({**document, "segments": SEGMENTS})
    with pytest.raises(UnknownStudyError):
        service.show("feed")


def test_no_study_gets_segments_by_an_edit(service: Service, document: Document) -> None:
    service.create(document, who="ann", seed=7)
    for state in ("draft", "learning"):
        before = service.store.read_study("feed")
        with pytest.raises(StudyFileError, match=SENTENCE):
            service.edit("feed", fields={"segments": SEGMENTS}, who="ann")
        with pytest.raises(StudyFileError, match=SENTENCE):
            service.edit("feed", {**document, "segments": SEGMENTS}, who="ann")
        assert service.store.read_study("feed") == before
        if state == "draft":
            service.change("feed", "start", who="ann")
