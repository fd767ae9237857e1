"""Diagrams of the import graph for docs/architecture.md, as SVG files that need no renderer.

`python tools/import_diagram.py` writes docs/figures/packages.svg and docs/figures/service.svg. The test
tests/test_architecture.py fails if they differ from the code. A row imports only from rows below it. An arrow is left
out if a longer path shows the same dependency.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

import grimp

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"
DISTRIBUTIONS = {"pasto_research": "#fdf0d5", "pasto": "#e3ecf7", "pasto_sdk": "#e2f2e4"}
"""Root packages, with the fill of their boxes."""
MODULES_NODE = "modules of pasto"
"""Node that stands for all single-file modules directly in src/pasto."""

ROW_HEIGHT, BOX_HEIGHT, GAP, MARGIN = 74, 30, 26, 24
CHARACTER_WIDTH, LINE_HEIGHT = 7.4, 17
DUMMY_WIDTH = 6
SWEEPS = 24

Edges = Mapping[str, frozenset[str]]


def packages_graph(graph: grimp.ImportGraph) -> dict[str, frozenset[str]]:
    """Return which packages of the three distributions import which; single-file modules of pasto are one node."""

    def node(module: str) -> str | None:
        root, _, rest = module.partition(".")
        if root == "pasto_sdk":
            return "pasto_sdk"
        child = f"{root}.{rest.partition('.')[0]}"
        if not rest or child == "pasto.__main__":
            return None
        return MODULES_NODE if root == "pasto" and not graph.find_children(child) else child

    return _collapse(graph, node)


def service_graph(graph: grimp.ImportGraph) -> dict[str, frozenset[str]]:
    """Return which modules and sub-packages of pasto.service import which."""

    def node(module: str) -> str | None:
        parts = module.split(".")
        return parts[2] if parts[:2] == ["pasto", "service"] and len(parts) > 2 else None

    return _collapse(graph, node)


def _collapse(graph: grimp.ImportGraph, node: Callable[[str], str | None]) -> dict[str, frozenset[str]]:
    imports: dict[str, set[str]] = {}
    for module in sorted(graph.modules):
        importer = node(module)
        if importer is None:
            continue
        targets = imports.setdefault(importer, set())
        targets.update(filter(None, map(node, graph.find_modules_directly_imported_by(module))))
        targets.discard(importer)
    return merge_cycles({importer: frozenset(targets) for importer, targets in sorted(imports.items())})


def merge_cycles(edges: Edges) -> dict[str, frozenset[str]]:
    """Merge nodes that import each other into one node, named after all of them.

    >>> merge_cycles({"a": frozenset("b"), "b": frozenset("ac"), "c": frozenset()})
    {'a + b': frozenset({'c'}), 'c': frozenset()}
    """
    reachable = {node: set(targets) for node, targets in edges.items()}
    for via in edges:
        for reached in reachable.values():
            if via in reached:
                reached |= reachable[via]
    group = {
        node: " + ".join(sorted({node, *(other for other in reachable[node] if node in reachable[other])}))
        for node in edges
    }
    merged: dict[str, set[str]] = {group[node]: set() for node in edges}
    for node, targets in edges.items():
        merged[group[node]] |= {group[target] for target in targets} - {group[node]}
    return {node: frozenset(targets) for node, targets in merged.items()}


def find_levels(edges: Edges) -> dict[str, int]:
    """Return the row of each node, counted from the bottom: one above the highest node that it imports."""
    levels: dict[str, int] = {}

    def level(node: str) -> int:
        if node not in levels:
            levels[node] = 1 + max(map(level, edges[node]), default=-1)
        return levels[node]

    for node in edges:
        level(node)
    return levels


def reduce_edges(edges: Edges) -> dict[str, frozenset[str]]:
    """Leave out each edge whose target another target reaches too (the transitive reduction).

    >>> reduce_edges({"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset()})["a"]
    frozenset({'b'})
    """
    reachable: dict[str, frozenset[str]] = {}
    for node in sorted(edges, key=find_levels(edges).__getitem__):
        reachable[node] = edges[node].union(*(reachable[target] for target in edges[node]))
    return {
        node: frozenset(
            target for target in targets if not any(target in reachable[other] for other in targets if other != target)
        )
        for node, targets in edges.items()
    }


@dataclass(slots=True)
class Layout:
    """Rows of nodes from top to bottom, with dummy nodes where an arrow crosses a row."""

    rows: list[list[str]]
    below: dict[str, list[str]] = field(default_factory=dict)
    x: dict[str, float] = field(default_factory=dict)
    width: dict[str, float] = field(default_factory=dict)


def arrange(edges: Edges, labels: Mapping[str, list[str]]) -> Layout:
    """Place nodes in rows by level, and order each row so that arrows cross little."""
    levels = find_levels(edges)
    top = max(levels.values())
    layout = Layout([[] for _ in range(top + 1)])
    for node in edges:
        layout.rows[top - levels[node]].append(node)
        layout.width[node] = 20 + CHARACTER_WIDTH * max(map(len, labels[node]))
        layout.below[node] = []
    for node, targets in reduce_edges(edges).items():
        for target in sorted(targets):
            upper = node
            for level in range(levels[node] - 1, levels[target], -1):
                dummy = f"{node}>{target}@{level}"
                layout.rows[top - level].append(dummy)
                layout.width[dummy] = DUMMY_WIDTH
                layout.below[upper].append(dummy)
                layout.below[dummy] = []
                upper = dummy
            layout.below[upper].append(target)
    above: dict[str, list[str]] = {node: [] for node in layout.below}
    for node, lower in layout.below.items():
        for target in lower:
            above[target].append(node)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else layout.below
        for row in layout.rows if down else reversed(layout.rows):
            _spread(layout, row)
            row.sort(key={node: _center(layout, node, neighbours[node]) for node in row}.__getitem__)
            _spread(layout, row)
    return layout


def _center(layout: Layout, node: str, neighbours: list[str]) -> float:
    """Return the mean position of a node's neighbours that have one; without such neighbours, its own position."""
    positions = [layout.x[other] for other in neighbours if other in layout.x]
    return sum(positions) / len(positions) if positions else layout.x[node]


def _spread(layout: Layout, row: Iterable[str]) -> None:
    nodes = list(row)
    total = sum(layout.width[node] for node in nodes) + GAP * (len(nodes) - 1)
    left = -total / 2
    for node in nodes:
        layout.x[node] = left + layout.width[node] / 2
        left += layout.width[node] + GAP


def draw(edges: Edges, labels: Mapping[str, list[str]], fills: Mapping[str, str], title: str) -> str:
    """Return the diagram as SVG."""
    layout = arrange(edges, labels)
    leftmost = min(layout.x[node] - layout.width[node] / 2 for row in layout.rows for node in row)
    rightmost = max(layout.x[node] + layout.width[node] / 2 for row in layout.rows for node in row)
    heights = [
        max([BOX_HEIGHT, *(13 + LINE_HEIGHT * len(labels[node]) for node in row if node in labels)])
        for row in layout.rows
    ]
    tops = [MARGIN]
    for height in heights:
        tops.append(tops[-1] + height + ROW_HEIGHT - BOX_HEIGHT)
    width, height = rightmost - leftmost + 2 * MARGIN, tops[-1] - ROW_HEIGHT + BOX_HEIGHT + MARGIN
    place = {
        node: (layout.x[node] - leftmost + MARGIN, number) for number, row in enumerate(layout.rows) for node in row
    }
    lines, boxes = [], []
    for node, (x, number) in place.items():
        bottom = tops[number] + heights[number]
        if node not in labels:
            lines.append(f'<path d="M{x:.0f},{tops[number]} V{bottom}"/>')
        else:
            half = layout.width[node] / 2
            boxes.append(
                f'<rect x="{x - half:.0f}" y="{tops[number]}" width="{2 * half:.0f}" height="{heights[number]}" rx="5" '
                f'fill="{fills[node]}"/>'
            )
            first = tops[number] + heights[number] / 2 - LINE_HEIGHT * (len(labels[node]) - 1) / 2 + 4.5
            boxes += [
                f'<text x="{x:.0f}" y="{first + LINE_HEIGHT * line:.0f}">{escape(text)}</text>'
                for line, text in enumerate(labels[node])
            ]
        for target in layout.below[node]:
            to, row = place[target]
            middle = (bottom + tops[row]) / 2
            arrow = ' marker-end="url(#arrow)"' if target in labels else ""
            lines.append(
                f'<path d="M{x:.0f},{bottom} C{x:.0f},{middle:.0f} {to:.0f},{middle:.0f} {to:.0f},{tops[row]}"{arrow}/>'
            )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            'role="img">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0,0 L8,4 L0,8 Z" fill="#667"/></marker></defs>',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
            '<g fill="none" stroke="#99a" stroke-width="1.2">',
            *lines,
            "</g>",
            '<g stroke="#556" stroke-width="1" font-family="monospace" font-size="12" text-anchor="middle">',
            *(box.replace("<text ", '<text stroke="none" fill="#112" ') for box in boxes),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _wrap(names: list[str], columns: int) -> list[str]:
    lines = [""]
    for name in names:
        if lines[-1] and len(lines[-1]) + len(name) + 2 > columns:
            lines.append("")
        lines[-1] += f"{', ' if lines[-1] else ''}{name}"
    return lines


def render() -> dict[Path, str]:
    """Return the text of each diagram by its file."""
    graph = grimp.build_graph(*DISTRIBUTIONS, exclude_type_checking_imports=True, cache_dir=None)
    packages, service = packages_graph(graph), service_graph(graph)
    modules = sorted(
        name.removeprefix("pasto.")
        for name in graph.find_children("pasto")
        if not graph.find_children(name) and name != "pasto.__main__"
    )
    labels = {node: _wrap(modules, 60) if node == MODULES_NODE else [node] for node in packages}
    fills = {node: DISTRIBUTIONS[node.partition(".")[0] if node != MODULES_NODE else "pasto"] for node in packages}
    names = [name for node in service for name in node.split(" + ")]
    is_package = {name: bool(graph.find_children(f"pasto.service.{name}")) for name in names}
    service_labels = {
        node: _wrap([f"{name}/" if is_package[name] else name for name in node.split(" + ")], 60) for node in service
    }
    service_fills = {node: "#d3e0f2" if is_package.get(node, False) else "#eef3fa" for node in service}
    return {
        FIGURES / "packages.svg": draw(packages, labels, fills, "Packages of PASTO and the packages that they import"),
        FIGURES / "service.svg": draw(
            service, service_labels, service_fills, "Modules of pasto.service, their imports"
        ),
    }


if __name__ == "__main__":
    for path, text in render().items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
