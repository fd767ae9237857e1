"""The signature of an exposure: the same text, key and digest in every language."""

from __future__ import annotations

import hmac


def sign_exposure(key: str, *, study: str, version: int, unit: str, candidate: str, segment: str | None = None) -> str:
    """Return the HMAC-SHA256 of study ‖ 0x00 ‖ version ‖ 0x00 ‖ unit ‖ 0x00 ‖ candidate, in hexadecimal.

    An exposure with a segment continues with ‖ 0x00 ‖ segment. Key and texts are UTF-8, the version is in decimal. None
    of the texts has a 0x00, so no two exposures share a text.

    >>> sign_exposure("secret", study="feed", version=3, unit="ann", candidate="a")[:16]
    '6c7418ecec390032'
    """
    text = "\0".join([study, str(version), unit, candidate, *([] if segment is None else [segment])])
    return hmac.digest(key.encode(), text.encode(), "sha256").hex()
