"""Write the dependency diagram and the table of packages in ARCHITECTURE.md.

    python3 scripts/draw_architecture.py

The diagram is made from imports, the table from the first line of each package's docstring; a test
compares both with the code. The diagram omits base modules that everything may use (volumes,
prompts, errors, the system) and arrows implied by others.
"""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "Resources" / "architecture.svg"
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- packages: begin -->\n", "<!-- packages: end -->\n"
PACKAGES = {
    "pumit": ROOT / "PUMITSegment" / "pumit",
    "PUMITSlicerLib": ROOT / "PUMITSegment" / "PUMITSlicerLib",
    "PUMITSegmentLib": ROOT / "PUMITSegment" / "PUMITSegmentLib",
    "PUMITTrainLib": ROOT / "PUMITTrain" / "PUMITTrainLib",
}
BASE = {"errors", "file_image", "geometry", "volume", "prompts", "segmentation", "system"}
BASE |= {"pumit", "__main__"}
# Parts split into their packages, which are above and below other parts.
SPLIT = {"nninteractive", "server"}
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 158, 34, 14, 44, 12

Arrows = dict[str, set[str]]


def part_of(module: str) -> str:
    """Return the part of a module: `io` for pumit.io.images.grid, `PUMITTrainLib` for all of it."""
    names = module.split(".")
    if names[0] != "pumit" or len(names) == 1:
        return names[0]
    if names[1] in SPLIT and PACKAGES["pumit"].joinpath(*names[1:3]).is_dir():
        return ".".join(names[1:3])
    return names[1]


def arrows_of_imports() -> Arrows:
    """Map each part to the parts that it imports anywhere."""
    arrows: Arrows = {}
    for package, folder in PACKAGES.items():
        for file in sorted(folder.rglob("*.py")):
            module = ".".join((package, *file.relative_to(folder).with_suffix("").parts))
            here = part_of(module.removesuffix(".__init__"))
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names = [node.module]
                for name in names:
                    if name.split(".")[0] in PACKAGES:
                        arrows.setdefault(here, set()).add(part_of(name))
    for part in BASE | {"nninteractive"}:
        arrows.pop(part, None)
    return {a: b - BASE - {a, "nninteractive"} for a, b in arrows.items()}


def reduced(arrows: Arrows) -> Arrows:
    """Return the transitive reduction: the arrows without those implied by a longer path."""

    def reach(start: str) -> set[str]:
        found: set[str] = set()
        todo = list(arrows.get(start, ()))
        while todo:
            here = todo.pop()
            if here not in found:
                found.add(here)
                todo += arrows.get(here, ())
        return found

    return {
        a: {b for b in uses if not any(b in reach(c) for c in uses - {b})}
        for a, uses in arrows.items()
    }


def layers_of(arrows: Arrows) -> list[list[str]]:
    """Return the parts in layers from the top down, by their longest path to the bottom."""
    depth: dict[str, int] = {}

    def rank(part: str) -> int:
        if part not in depth:
            depth[part] = 1 + max((rank(b) for b in arrows.get(part, ())), default=-1)
        return depth[part]

    parts = sorted(set(arrows) | {b for uses in arrows.values() for b in uses})
    TopologicalSorter(arrows).prepare()  # raises on a cycle
    for part in parts:
        rank(part)
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for part in parts:
        layers[max(depth.values()) - depth[part]].append(part)
    # Order each layer by the mean position of the users of each part: fewer arrows cross.
    place = {part: float(i) for i, part in enumerate(layers[0])}
    for layer in layers[1:]:
        above = {
            p: [place[a] for a in place if p in arrows.get(a, ())] or [len(layer) / 2]
            for p in layer
        }
        layer.sort(key=lambda p: (sum(above[p]) / len(above[p]), p))
        place |= {part: float(i) for i, part in enumerate(layer)}
    return layers


def drawn() -> str:
    """Return the picture as SVG."""
    arrows = reduced(arrows_of_imports())
    layers = layers_of(arrows)
    columns = max(map(len, layers))
    width = 2 * MARGIN + columns * (WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + len(layers) * (HEIGHT + GAP_Y) - GAP_Y
    corner: dict[str, tuple[float, float]] = {}
    for row, layer in enumerate(layers):
        left = (width - len(layer) * (WIDTH + GAP_X) + GAP_X) / 2
        for column, part in enumerate(layer):
            corner[part] = (left + column * (WIDTH + GAP_X), MARGIN + row * (HEIGHT + GAP_Y))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        "<title>Which part of PUMIT uses which</title>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#556"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for a in sorted(arrows):
        for b in sorted(arrows[a]):
            (x1, y1), (x2, y2) = corner[a], corner[b]
            begin, end = (x1 + WIDTH / 2, y1 + HEIGHT), (x2 + WIDTH / 2, y2 - 1)
            bend = (end[1] - begin[1]) / 2
            lines.append(
                f'<path d="M{begin[0]:.0f} {begin[1]:.0f}C{begin[0]:.0f} {begin[1] + bend:.0f} '
                f'{end[0]:.0f} {end[1] - bend:.0f} {end[0]:.0f} {end[1]:.0f}" fill="none" '
                'stroke="#556" stroke-width="1.2" marker-end="url(#a)"/>'
            )
    for part, (x, y) in sorted(corner.items()):
        color = "#dbe9f6" if part.startswith("PUMIT") else "#eef3e6"
        lines += [
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="5" '
            f'fill="{color}" stroke="#556"/>',
            f'<text x="{x + WIDTH / 2:.0f}" y="{y + HEIGHT / 2 + 5:.0f}" '
            f'text-anchor="middle">{part}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def table() -> str:
    """Return the table of packages with the first line of each docstring, as Markdown."""
    rows = ["| package | modules | what it holds |", "|---|---|---|"]
    for package, folder in PACKAGES.items():
        for init in sorted(folder.rglob("__init__.py"), key=lambda path: path.parent.parts):
            name = "/".join((package, *init.parent.relative_to(folder).parts))
            doc = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
            count = len([file for file in init.parent.glob("*.py") if file != init])
            rows.append(f"| `{name}` | {count} | {doc.splitlines()[0]} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """Return ARCHITECTURE.md with an updated table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    PICTURE.write_text(drawn(), encoding="utf-8")
    sys.exit(0)
