"""Contrast of text and background in light and dark mode: at least 4.5, the ratio of WCAG."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = files("pasto.dashboard").joinpath("static", "app.css").read_text()
PAIRS = [
    *((text, background) for text in ("text", "muted", "accent", "bad") for background in ("card", "background")),
    *((kind, f"{kind}-background") for kind in ("good", "warning", "bad")),
    ("on-accent", "accent"),
    ("text", "note-background"),
]


def colours(dark: bool) -> dict[str, str]:
    light, _, rest = CSS.partition("@media (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", light))
    return {**found, **dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", rest))} if dark else found


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("text", "background"), PAIRS)
def test_contrast(text: str, background: str, dark: bool) -> None:
    palette = colours(dark)
    darker, lighter = sorted((luminance(palette[text]), luminance(palette[background])))
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5
