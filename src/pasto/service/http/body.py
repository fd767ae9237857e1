"""Reading what a caller sends, never more of it than is allowed."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeVar

import msgspec

from pasto.service.http.responses import CLOSE, ApiError, placed
from pasto.service.settings import Settings

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Sent = Mapping[bytes, bytes]
"""A request's headers by their names in lower case."""
Wanted = TypeVar("Wanted")

QUOTE, OPENING = ord('"'), frozenset(b"[{")
HARMLESS = 1_000_000
"""Bytes up to which nobody asks how well a body was packed."""
MEMBERS = 100
"""Gzip members that one body may be chained of: each costs a look at all that follow."""
TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
"""Strings, which end with the text where they never end, so that no text is read twice; and brackets."""


async def read_body(headers: Sent, receive: Receive, settings: Settings) -> tuple[bytes, bool]:
    """Return the whole body as it was sent, and whether it is packed; refused as soon as it is too long.

    How long it may take to arrive is the business of the connection, which closes itself.
    """
    packed = b"content-encoding" in headers and _packed(headers[b"content-encoding"])
    announced = headers.get(b"content-length")
    if announced is not None and announced.isdigit() and int(announced) > settings.body_limit:
        raise _too_long(settings)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _cut()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        body = await _rest(body, receive, settings)
    elif len(body) > settings.body_limit:
        raise _too_long(settings)
    return body, packed


async def _rest(first: bytes, receive: Receive, settings: Settings) -> bytes:
    parts, length, more = [first], len(first), True
    while more:
        if length > settings.body_limit:
            raise _too_long(settings)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _cut()
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        more = message.get("more_body", False)
    if length > settings.body_limit:
        raise _too_long(settings)
    return b"".join(parts)


def inflated(packed: bytes, settings: Settings) -> bytes:
    """A gzip body unpacked, as long as that stays within the limits.

    >>> import gzip
    >>> inflated(gzip.compress(b"[]"), Settings())
    b'[]'
    """
    whole, members = b"", 0
    allowed = min(settings.body_limit, max(HARMLESS, len(packed) * settings.inflate_ratio))
    try:
        while packed:
            members += 1
            if members > MEMBERS:
                raise ApiError(
                    400, "bad_request", f"the gzip body is a chain of more than {MEMBERS} members; pack it in one"
                )
            unpacker = zlib.decompressobj(wbits=31)
            whole += unpacker.decompress(packed, allowed + 1 - len(whole))
            if len(whole) > allowed:
                raise ApiError(
                    413,
                    "body_too_large",
                    f"a gzip body may hold {settings.body_limit} bytes and, beyond {HARMLESS} of them, be at most "
                    f"{settings.inflate_ratio} times as long as its packed form",
                )
            if not unpacker.eof:
                raise ApiError(400, "bad_request", "the gzip body ends before it is whole")
            packed = unpacker.unused_data
    except zlib.error as error:
        raise ApiError(400, "bad_request", f"the body is no gzip: {error}") from None
    return whole


async def drained(receive: Receive, settings: Settings) -> None:
    """Take a little of what a refused caller still sends, so that it reads the answer instead of a broken pipe."""
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


def content_type(headers: Sent) -> str:
    """The media type alone, in lower case; JSON where none is sent.

    >>> content_type({b"content-type": b"Application/JSON; charset=utf-8"})
    'application/json'
    """
    sent = headers.get(b"content-type", b"application/json")
    if sent == b"application/json":
        return "application/json"
    return sent.split(b";", 1)[0].strip().lower().decode("latin-1")


def check_depth(body: bytes, limit: int) -> None:
    """Refuse a JSON text that nests deeper than allowed, before anything tries to build it.

    >>> check_depth(b'{"a": "[[[[[[[["}', 4)
    >>> check_depth(b"[" * 10_000, 32)
    Traceback (most recent call last):
    pasto.service.http.responses.ApiError: a document may nest 32 deep, and this one goes deeper
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


def decoded(body: bytes, decoder: msgspec.json.Decoder[Wanted], limit: int) -> Wanted:
    """The body as the record that the route takes; what does not fit is a 400 that names the field."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, field = placed(error)
        raise ApiError(400, "bad_request", f"{field or 'the body'}: {message}", field=field) from None
    except msgspec.DecodeError as error:
        raise ApiError(400, "invalid_json", f"the body is no JSON: {error}") from None
    except UnicodeDecodeError as error:  # msgspec checks the bytes of a text only when it builds the text
        raise ApiError(400, "invalid_json", f"the body is not UTF-8: {error.reason}; send JSON in UTF-8") from None
    except RecursionError:
        raise _too_deep(limit) from None


def read_json(body: bytes, decoder: msgspec.json.Decoder[Wanted], limit: int) -> Wanted:
    """The body as the record that the route takes, within the depth allowed."""
    check_depth(body, limit)
    return decoded(body, decoder, limit)


def _packed(encoding: bytes) -> bool:
    encoding = encoding.strip().lower()
    if encoding not in (b"identity", b"gzip"):
        raise ApiError(
            415,
            "unsupported_encoding",
            "a body is sent as it is or with Content-Encoding: gzip",
            headers=((b"accept-encoding", b"gzip"),),
            rest=True,
        )
    return encoding == b"gzip"


def _cut() -> ApiError:
    return ApiError(400, "bad_request", "the connection was closed before the request was whole", rest=True)


def _too_long(settings: Settings) -> ApiError:
    return ApiError(
        413,
        "body_too_large",
        f"a body may have {settings.body_limit} bytes; send it in parts, or ask for a higher body_limit",
        headers=CLOSE,
        rest=True,
    )


def _too_deep(limit: int) -> ApiError:
    return ApiError(400, "nesting_too_deep", f"a document may nest {limit} deep, and this one goes deeper")
