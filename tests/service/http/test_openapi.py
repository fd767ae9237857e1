"""OpenAPI document and page of the API, compared with the table of routes."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pasto.service.http import responses
from pasto.service.http.openapi import build_document
from pasto.service.http.responses import STATUSES
from pasto.service.http.routes import ROUTES, Route

if TYPE_CHECKING:
    from tests.service.http.conftest import Site

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "http.md"
SOURCE = Path(responses.__file__).parent
PLAIN = {
    "not_found": 404,
    "method_not_allowed": 405,
    "timeout": 408,
    "url_too_long": 414,
    "head_too_large": 431,
    "internal_error": 500,
    "storage_full": 507,
}
"""Codes that are not raised as refusals."""


def scopes(route: Route) -> str:
    if not route.scopes:
        return "none"
    return " or ".join(f"`{scope}`" for scope in route.scopes)


def table() -> str:
    """Return the page's table of routes."""
    rows = [f"| `{each.method} {each.path}` | {scopes(each)} | {each.summary} |" for each in ROUTES]
    return "\n".join(["| route | scope | what it does |", "|---|---|---|", *rows])


def codes() -> dict[str, set[int]]:
    """Return every error code with its statuses, as the source raises them."""
    found: dict[str, set[int]] = {code: {status} for code, status in PLAIN.items()}
    for status, code in STATUSES.values():
        found.setdefault(code, set()).add(status)
    for file in SOURCE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ApiError":
                number, name = map(ast.literal_eval, node.args[:2])
                found.setdefault(name, set()).add(number)
    return found


def code_table() -> str:
    """Return the page's table of errors."""
    rows = [
        f"| `{code}` | {', '.join(map(str, sorted(statuses)))} |"
        for code, statuses in sorted(codes().items(), key=lambda each: (min(each[1]), each[0]))
    ]
    return "\n".join(["| code | status |", "|---|---|", *rows])


def test_the_page_has_every_route() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), f"run `python {Path(__file__).name}` here to update it"


def test_the_page_has_every_error() -> None:
    assert code_table() in PAGE.read_text(encoding="utf-8"), f"run `python {Path(__file__).name}` here to update it"


def test_the_page_has_every_metric(site: Site) -> None:
    site.client.post("/v1/studies/feed/events", json=[]).raise_for_status()
    site.client.post("/v1/studies/feed/assign", json={"unit": "ann"}).raise_for_status()
    served = set(re.findall(r"^# TYPE (\w+) ", site.client.get("/metrics").text, re.MULTILINE))
    documented = set(re.findall(r"^\| `(pasto_\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    served.add("pasto_store_free_bytes")  # reported only if the store is a directory
    assert {name.removesuffix("_total") for name in served} == {name.removesuffix("_total") for name in documented}


def test_the_document_has_every_route_and_no_other() -> None:
    document = build_document()
    assert document["openapi"] == "3.1.0"
    found = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert found == {(route.method, route.path) for route in ROUTES}
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere(site: Site) -> None:
    served = site.client.get("/openapi.json").json()
    assert served == build_document()

    def references(value: Any) -> Any:
        if isinstance(value, dict):
            for name, part in value.items():
                yield from [part] if name == "$ref" else references(part)
        elif isinstance(value, list):
            for part in value:
                yield from references(part)

    known = {f"#/components/schemas/{name}" for name in served["components"]["schemas"]}
    assert set(references(served)) <= known


def test_routes_with_scopes_say_so_in_the_build_document() -> None:
    for route in ROUTES:
        operation = build_document()["paths"][route.path][route.method.lower()]
        assert ("security" in operation) == bool(route.scopes)
        assert all(scope in operation.get("description", "") for scope in route.scopes)


def rewrite() -> None:
    """Write the current tables into the page."""
    page = PAGE.read_text(encoding="utf-8")
    page = re.sub(r"^(TABLE\n|\| route \|.*?\n(?!\|))", lambda _: table() + "\n", page, flags=re.S | re.M)
    page = re.sub(r"^(CODES\n|\| code \|.*?\n(?!\|))", lambda _: code_table() + "\n", page, flags=re.S | re.M)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
