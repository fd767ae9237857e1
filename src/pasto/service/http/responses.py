"""What goes back to a caller: an answer, or an error in the one form that all of them have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pasto.errors import (
    ConflictError,
    InputError,
    LifecycleError,
    MissingExtraError,
    NotFittedError,
    PastoError,
    SourceError,
    StoreBusyError,
    StoreError,
    StudyExistsError,
    StudyFileError,
    TextError,
    UnknownStudyError,
    UnsupportedError,
)
from pasto.store.failures import is_disk_full

Headers = tuple[tuple[bytes, bytes], ...]

JSON: Headers = ((b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff"))
CLOSE: Headers = ((b"connection", b"close"),)
encode = msgspec.json.Encoder().encode


class HttpResponse(NamedTuple):
    """A response, whole."""

    status: int
    body: bytes = b""
    headers: Headers = JSON


def json_response(value: Any, status: int = 200, headers: Headers = ()) -> HttpResponse:
    """A JSON answer.

    >>> json_response({"studies": []}).body
    b'{"studies":[]}'
    """
    return HttpResponse(status, encode(value), JSON + headers)


class ApiError(Exception):
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
    """Error for which another process has already made the response."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(f"answered with status {response.status}")
        self.response = response


def problem_response(
    status: int,
    code: str,
    message: str,
    *,
    field: str | None = None,
    problems: Mapping[str, str] | None = None,
    headers: Headers = (),
) -> HttpResponse:
    """An error in the form that all errors have.

    >>> problem_response(404, "unknown_study", "there is no study feed").body
    b'{"error":{"code":"unknown_study","message":"there is no study feed"}}'
    """
    told: dict[str, Any] = {"code": code, "message": message}
    if field:
        told["field"] = field
    if problems:
        told["problems"] = dict(problems)
    return json_response({"error": told}, status, headers)


STATUSES: Mapping[type[PastoError], tuple[int, str]] = {
    UnknownStudyError: (404, "unknown_study"),
    StudyExistsError: (409, "study_exists"),
    LifecycleError: (409, "wrong_state"),
    ConflictError: (409, "conflict"),
    NotFittedError: (409, "nothing_learned"),
    StudyFileError: (422, "invalid_study_file"),
    TextError: (422, "invalid_text"),
    InputError: (400, "bad_request"),
    UnsupportedError: (422, "unsupported"),
    StoreBusyError: (503, "store_busy"),
    SourceError: (502, "source_failed"),
    StoreError: (503, "store_unavailable"),
    MissingExtraError: (501, "missing_dependency"),
}
"""The library's errors as answers; a class not named here answers as its nearest parent that is."""


def explained(error: Exception, retry_after: int) -> HttpResponse | None:
    """The answer to an error that was raised on purpose; None for one that nobody foresaw."""
    if isinstance(error, AnsweredError):
        return error.response
    if isinstance(error, ApiError):
        return problem_response(error.status, error.code, error.message, field=error.field, headers=error.headers)
    if is_disk_full(error):
        return problem_response(
            507,
            "storage_full",
            "the disk that the store is on is full; nothing was kept, send it again later",
            headers=retry(retry_after),
        )
    for kind in type(error).__mro__:
        if kind in STATUSES:
            status, code = STATUSES[kind]
            return problem_response(
                status,
                code,
                str(error),
                problems=error.problems if isinstance(error, StudyFileError) else None,
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
