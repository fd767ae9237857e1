"""Responses and errors of the API. All errors have the same JSON form."""

from __future__ import annotations

import http
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
from pasto.store.disk_errors import is_disk_full

Headers = tuple[tuple[bytes, bytes], ...]

JSON: Headers = ((b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff"))
CLOSE: Headers = ((b"connection", b"close"),)
encode = msgspec.json.Encoder().encode


class HttpResponse(NamedTuple):
    """Complete response."""

    status: int
    body: bytes = b""
    headers: Headers = JSON


def json_response(value: Any, status: int = 200, headers: Headers = ()) -> HttpResponse:
    """Return a JSON response.

    >>> json_response({"studies": []}).body
    b'{"studies":[]}'
    """
    return HttpResponse(status, encode(value), JSON + headers)


def encode_response(answer: HttpResponse) -> bytes:
    """Return an answer as the bytes of an HTTP/1.1 response after which the connection is closed."""
    phrase = http.HTTPStatus(answer.status).phrase.encode()
    headers = b"".join(b"%b: %b\r\n" % each for each in (*answer.headers, *CLOSE))
    return b"HTTP/1.1 %d %b\r\n%bcontent-length: %d\r\n\r\n%b" % (
        answer.status,
        phrase,
        headers,
        len(answer.body),
        answer.body,
    )


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Description of an error."""

    code: str
    message: str
    field: str | None = None
    problems: Mapping[str, str] | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """Body of every error response."""

    error: Problem


class ApiError(Exception):
    """Error of a request, with its HTTP status and code."""

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
        """Whether part of the body was not read; the connection is then closed after the response."""


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
    """Return an error response.

    >>> problem_response(404, "unknown_study", "there is no study feed").body
    b'{"error":{"code":"unknown_study","message":"there is no study feed"}}'
    """
    problem = Problem(code, message, field or None, problems or None)
    return json_response(ErrorBody(problem), status, headers)


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
"""Status and code of the library's errors; other classes use those of their nearest listed parent."""


def error_response(error: Exception, retry_after: int) -> HttpResponse | None:
    """Return the response to an expected error; None for an unexpected one."""
    if isinstance(error, AnsweredError):
        return error.response
    if isinstance(error, ApiError):
        return problem_response(error.status, error.code, error.message, field=error.field, headers=error.headers)
    if is_disk_full(error):
        return problem_response(
            507,
            "storage_full",
            "the disk of the store is full and nothing was stored; send the request again later",
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
    """Return the header Retry-After."""
    return ((b"retry-after", str(seconds).encode()),)


def split_validation_error(error: msgspec.ValidationError) -> tuple[str, str | None]:
    """Return the message of a validation error of msgspec, and its field.

    >>> split_validation_error(msgspec.ValidationError("Expected `str`, got `int` - at `$.unit`"))
    ('expected `str`, got `int`', 'unit')
    """
    message, _, path = str(error).partition(" - at ")
    field = re.sub(r"^`?(key in )?`?\$\.?|`$", "", path)
    return message[:1].lower() + message[1:], field or None
