"""Request bodies: read, decompressed and decoded within the limits of the settings."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeVar

import msgspec

from pasto.document_validation import nearest_name
from pasto.service.http.responses import CLOSE, ApiError, split_validation_error
from pasto.service.settings import Settings

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
RequestHeaders = Mapping[bytes, bytes]
"""Headers of a request by their names in lower case."""
Body = TypeVar("Body")

QUOTE, OPENING = ord('"'), frozenset(b"[{")
UNLIMITED_RATIO_BYTES = 1_000_000
"""Bytes up to which the compression ratio of a body is not limited."""
UNKNOWN_FIELD = re.compile(r"object contains unknown field `(.*)`", re.DOTALL)
MAX_GZIP_MEMBERS = 100
"""Gzip members of one body. Each costs a copy of all bytes after it."""
TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
"""Strings and brackets. An unterminated string ends with the text, so that no text is read twice."""


async def read_body(headers: RequestHeaders, receive: Receive, settings: Settings) -> tuple[bytes, bool]:
    """Return the body as it was sent, and whether it is compressed; raise as soon as it is too long.

    The connection limits the time that a body may take.
    """
    is_compressed = b"content-encoding" in headers and _is_gzip(headers[b"content-encoding"])
    announced = headers.get(b"content-length")
    if announced is not None and announced.isdigit() and int(announced) > settings.body_limit:
        raise _too_large(settings)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _incomplete()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        body = await _read_rest(body, receive, settings)
    elif len(body) > settings.body_limit:
        raise _too_large(settings)
    return body, is_compressed


async def _read_rest(first: bytes, receive: Receive, settings: Settings) -> bytes:
    parts, length, more = [first], len(first), True
    while more:
        if length > settings.body_limit:
            raise _too_large(settings)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _incomplete()
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        more = message.get("more_body", False)
    if length > settings.body_limit:
        raise _too_large(settings)
    return b"".join(parts)


def decompress(compressed: bytes, settings: Settings) -> bytes:
    """Return a gzip body decompressed, within the limits.

    >>> import gzip
    >>> decompress(gzip.compress(b"[]"), Settings())
    b'[]'
    """
    content, members = b"", 0
    allowed = min(settings.body_limit, max(UNLIMITED_RATIO_BYTES, len(compressed) * settings.inflate_ratio))
    try:
        while compressed:
            members += 1
            if members > MAX_GZIP_MEMBERS:
                raise ApiError(
                    400, "bad_request", f"a gzip body may have {MAX_GZIP_MEMBERS} members, got more; compress it as one"
                )
            decompressor = zlib.decompressobj(wbits=31)
            content += decompressor.decompress(compressed, allowed + 1 - len(content))
            if len(content) > allowed:
                raise ApiError(
                    413,
                    "body_too_large",
                    f"a gzip body may hold {settings.body_limit} bytes, and beyond {UNLIMITED_RATIO_BYTES} at most "
                    f"{settings.inflate_ratio} times its compressed length, got more; send several smaller ones",
                )
            if not decompressor.eof:
                raise ApiError(400, "bad_request", "the gzip body is cut off; send all of it")
            compressed = decompressor.unused_data
    except zlib.error as error:
        raise ApiError(400, "bad_request", f"the body must be gzip, as in its Content-Encoding: {error}") from None
    return content


async def drain_body(receive: Receive, settings: Settings) -> None:
    """Read and drop the rest of a rejected request for a moment, so that the caller can read the response."""
    length = 0
    try:
        async with asyncio.timeout(min(1.0, settings.request_timeout)):
            while length < settings.body_limit:
                message = await receive()
                length += len(message.get("body", b""))
                if not message.get("more_body"):
                    return
    except TimeoutError:
        return


def parse_content_type(headers: RequestHeaders) -> str:
    """Return the media type in lower case, without its parameters; JSON if there is no header.

    >>> parse_content_type({b"content-type": b"Application/JSON; charset=utf-8"})
    'application/json'
    """
    sent = headers.get(b"content-type", b"application/json")
    if sent == b"application/json":
        return "application/json"
    return sent.split(b";", 1)[0].strip().lower().decode("latin-1")


def check_depth(body: bytes, limit: int) -> None:
    """Raise `ApiError` for a JSON text that is nested too deep, before it is decoded.

    >>> check_depth(b'{"a": "[[[[[[[["}', 4)
    >>> check_depth(b"[" * 10_000, 32)
    Traceback (most recent call last):
    pasto.service.http.responses.ApiError: a document may be nested 32 levels deep, got more
    """
    if body.count(b"[") + body.count(b"{") <= limit:
        return
    depth = 0
    for token in TOKENS.finditer(body):
        first = body[token.start()]
        if first == QUOTE:
            continue
        depth += 1 if first in OPENING else -1
        if depth > limit:
            raise _too_deep(limit)


def decode_json(body: bytes, decoder: msgspec.json.Decoder[Body], limit: int) -> Body:
    """Decode a body into a record; raise `ApiError` with 400 and the field if it does not fit.

    >>> class Pause(msgspec.Struct, forbid_unknown_fields=True):
    ...     reason: str = ""
    >>> decode_json(b'{"reson": "lunch"}', msgspec.json.Decoder(Pause), 32)
    Traceback (most recent call last):
    pasto.service.http.responses.ApiError: the body: object contains unknown field `reson`; did you mean 'reason'?
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, field = split_validation_error(error)
        known = getattr(decoder.type, "__struct_encode_fields__", ())
        if field is None and known and (unknown := UNKNOWN_FIELD.fullmatch(message)):
            message += f"; {nearest_name(unknown[1], known)}"
        raise ApiError(400, "bad_request", f"{field or 'the body'}: {message}", field=field) from None
    except msgspec.DecodeError as error:
        raise ApiError(400, "invalid_json", f"the body must be JSON: {error}") from None
    except UnicodeDecodeError as error:  # msgspec validates the bytes of a string when it creates the string
        raise ApiError(400, "invalid_json", f"the body must be UTF-8: {error.reason}") from None
    except RecursionError:
        raise _too_deep(limit) from None


def read_json(body: bytes, decoder: msgspec.json.Decoder[Body], limit: int) -> Body:
    """Check the depth of a body and decode it into a record."""
    check_depth(body, limit)
    return decode_json(body, decoder, limit)


def _is_gzip(encoding: bytes) -> bool:
    encoding = encoding.strip().lower()
    if encoding not in (b"identity", b"gzip"):
        raise ApiError(
            415,
            "unsupported_encoding",
            "a body is sent without Content-Encoding or with gzip",
            headers=((b"accept-encoding", b"gzip"),),
            rest=True,
        )
    return encoding == b"gzip"


def _incomplete() -> ApiError:
    return ApiError(400, "bad_request", "the connection was closed before the request was complete", rest=True)


def _too_large(settings: Settings) -> ApiError:
    return ApiError(
        413,
        "body_too_large",
        f"a body may have {settings.body_limit} bytes, got more; send several smaller ones, or raise body_limit",
        headers=CLOSE,
        rest=True,
    )


def _too_deep(limit: int) -> ApiError:
    return ApiError(400, "nesting_too_deep", f"a document may be nested {limit} levels deep, got more")
