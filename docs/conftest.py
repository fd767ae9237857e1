"""Run each page's examples in the page's own folder, so that they open the files beside it."""

import pytest


@pytest.fixture(autouse=True)
def beside_the_page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change into the page's folder for the length of its examples."""
    monkeypatch.chdir(request.path.parent)
