"""What goes back to a caller: an answer, or an error in the one form that all of them have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pasto.errors import (
    BadInput,
    BadSpec,
    BadText,
    MissingExtra,
    NothingLearned,
    OutOfDate,
    PastoError,
    SourceError,
    StoreBusy,
    StoreError,
    StudyExists,
    UnknownStudy,
    Unsupported,
    WrongState,
)
from pasto.store.failures import is_disk_full

Headers = tuple[tuple[bytes, bytes], ...]

JSON: Headers = ((b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff"))
CLOSE: Headers = ((b"connection", b"close"),)
encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """A response, whole."""

    status: int
    body: bytes = b""
    headers: Headers = JSON


def answer(value: Any, status: int = 200, headers: Headers = ()) -> Answer:
    """A JSON answer.

    >>> answer({"studies": []}).body
    b'{"studies":[]}'
    """
    return Answer(status, encode(value), JSON + headers)


class Refused(Exception):  # noqa: N818 -- reads as what happened
    """A request that is refused here, before the library sees it."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        headers: Headers = (),
        rest: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.headers = headers
        self.rest = rest
        """Whether some of the body was not read: the connection is then closed behind the answer."""


class AnsweredError(Exception):
    """An error that another process has made an answer of."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"answered with status {answer.status}")
        self.answer = answer


def problem(
    status: int,
    code: str,
    message: str,
    *,
    field: str | None = None,
    problems: Mapping[str, str] | None = None,
    headers: Headers = (),
) -> Answer:
    """An error in the form that all errors have.

    >>> problem(404, "unknown_study", "there is no study feed").body
    b'{"error":{"code":"unknown_study","message":"there is no study feed"}}'
    """
    told: dict[str, Any] = {"code": code, "message": message}
    if field:
        told["field"] = field
    if problems:
        told["problems"] = dict(problems)
    return answer({"error": told}, status, headers)


STATUSES: Mapping[type[PastoError], tuple[int, str]] = {
    UnknownStudy: (404, "unknown_study"),
    StudyExists: (409, "study_exists"),
    WrongState: (409, "wrong_state"),
    OutOfDate: (409, "out_of_date"),
    NothingLearned: (409, "nothing_learned"),
    BadSpec: (422, "bad_spec"),
    BadText: (422, "bad_text"),
    BadInput: (400, "bad_request"),
    Unsupported: (422, "unsupported"),
    StoreBusy: (503, "store_busy"),
    SourceError: (502, "source_failed"),
    StoreError: (503, "store_unavailable"),
    MissingExtra: (501, "missing_extra"),
}
"""The library's errors as answers; a class not named here answers as its nearest parent that is."""


def explained(error: Exception, retry_after: int) -> Answer | None:
    """The answer to an error that was raised on purpose; None for one that nobody foresaw."""
    if isinstance(error, AnsweredError):
        return error.answer
    if isinstance(error, Refused):
        return problem(error.status, error.code, error.message, field=error.field, headers=error.headers)
    if is_disk_full(error):
        return problem(
            507,
            "storage_full",
            "the disk that the store is on is full; nothing was kept, send it again later",
            headers=retry(retry_after),
        )
    for kind in type(error).__mro__:
        if kind in STATUSES:
            status, code = STATUSES[kind]
            return problem(
                status,
                code,
                str(error),
                problems=error.problems if isinstance(error, BadSpec) else None,
                headers=retry(retry_after) if status == 503 else (),
            )
    return None


def retry(seconds: int) -> Headers:
    """The header that asks a caller to come back."""
    return ((b"retry-after", str(seconds).encode()),)


def placed(error: msgspec.ValidationError) -> tuple[str, str | None]:
    """What msgspec says is wrong, and the field it says it of.

    >>> placed(msgspec.ValidationError("Expected `str`, got `int` - at `$.unit`"))
    ('expected `str`, got `int`', 'unit')
    """
    message, _, path = str(error).partition(" - at ")
    field = re.sub(r"^`?(key in )?`?\$\.?|`$", "", path)
    return message[:1].lower() + message[1:], field or None
