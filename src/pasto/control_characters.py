"""Control characters: a terminal obeys them instead of printing them, or they reverse the direction of a line.

`check_lines` refuses them in text that is stored and printed, and `escape_control` makes other text safe to print.
"""

from __future__ import annotations

import re

from pasto.errors import TextError

MAX_LINE_CHARACTERS = 10_000
"""Most characters of a reason, or of a caller's name."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""C0 with DEL, C1, the separators of lines and paragraphs, and the embeddings, overrides and isolates of bidi text."""


def find_control(text: str) -> str | None:
    r"""Return the first control character of a text, escaped; None if there is none.

    >>> find_control("calm"), find_control("red \x1b[31m"), find_control("two\nlines")
    (None, '\\x1b', '\\n')
    """
    found = _CONTROL.search(text)
    return None if found is None else _escaped(found)


def check_lines(**texts: str) -> None:
    r"""Raise TextError, with the name, for text that cannot be stored, or that is not one line that is safe to print.

    >>> check_lines(who="ann", reason="too\nlong")
    Traceback (most recent call last):
    pasto.errors.TextError: reason must be one line without control characters, got \n in 'too\nlong'; leave it out
    """
    for name, text in texts.items():
        if len(text) > MAX_LINE_CHARACTERS or text.encode("utf-8", "replace").decode() != text:
            raise TextError(f"{name} must be text of up to {MAX_LINE_CHARACTERS} characters, got {text[:40]!r}")
        if (found := find_control(text)) is not None:
            raise TextError(
                f"{name} must be one line without control characters, got {found} in {text[:40]!r}; leave it out"
            )


def escape_control(text: str, *, keep: str = "") -> str:
    r"""Return a text that is safe to print: control characters, except those in `keep`, are escaped as in Python.

    >>> escape_control("clear \x1b[2J, \u202eturned"), escape_control("two\nlines", keep="\n")
    ('clear \\x1b[2J, \\u202eturned', 'two\nlines')
    """
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else _escaped(found), text)


def escape_json(text: str) -> str:
    r"""Return a JSON text that is safe to print and means the same: control characters in it are escaped as in JSON.

    >>> escape_json('{"name": "\u009b2J"}')
    '{"name": "\\u009b2J"}'
    """
    return _CONTROL.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
