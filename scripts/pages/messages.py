"""Every sentence with which the program refuses something, read from its sources.

A user-facing error is a class of `pumit/errors.py` or one that derives from it; what is made of it
with a text is a sentence that a user can meet. What varies in a sentence is written as an ellipsis.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("PUMITSegment", "PUMITTrain")
VARIES = "…"
# Where a user meets them: first part of the path that fits.
AREAS = {
    "PUMITSegment/PUMITSlicerLib/installing": "Installing in Slicer",
    "PUMITSegment/PUMITSlicerLib/computing": "Worker and servers, in Slicer",
    "PUMITSegment/PUMITSlicerLib": "In Slicer",
    "PUMITSegment/PUMITSegmentLib": "In PUMIT Segment",
    "PUMITTrain": "In PUMIT Train",
    "PUMITSegment/pumit/cli": "Command line",
    "PUMITSegment/pumit/client": "Worker and servers",
    "PUMITSegment/pumit/nninteractive": "Worker and servers",
    "PUMITSegment/pumit/server": "What a server refuses",
    "PUMITSegment/pumit/wire": "What a server refuses",
    "PUMITSegment/pumit/io/labels": "Reading labels",
    "PUMITSegment/pumit/io": "Reading scans",
    "PUMITSegment/pumit/export": "Writing results",
    "PUMITSegment/pumit/models": "Models and checkpoints",
    "PUMITSegment/pumit/networks": "Networks",
    "PUMITSegment/pumit/training/data": "Labelled scans",
    "PUMITSegment/pumit/training/recipes": "Recipes",
    "PUMITSegment/pumit/training": "Training",
    "PUMITSegment/pumit/evaluation": "Evaluation",
    "PUMITSegment/pumit": "Segmenting",
}
_INTRODUCTION = """# Every message

All sentences with which PUMIT refuses something, read from its sources: {count} of them. An
ellipsis stands for what varies. Search this page (Ctrl+F) for a part of what you see. Nearly all
say themselves what to do; those that need more words, and the ones met most, are under
[troubleshooting](../how-to/troubleshooting.md), marked here by an arrow.
"""


@dataclass(frozen=True)
class Message:
    """A sentence: its text, the class of its error, and the file that says it."""

    text: str
    kind: str
    file: str

    @property
    def area(self) -> str:
        """Where a user meets it."""
        return next(area for start, area in AREAS.items() if self.file.startswith(start))


@cache
def messages() -> tuple[Message, ...]:
    """Every sentence once, in the order of the sources."""
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in _sources()}
    kinds = _error_classes(trees.values())
    texts = _named_texts(trees.values())
    found: dict[tuple[str, str], Message] = {}
    for file, tree in trees.items():
        name = file.relative_to(ROOT).as_posix()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and _name(node.func) in kinds:
                for text in _texts(node.args[0], texts):
                    message = Message(" ".join(text.split()), _name(node.func), name)
                    if re.search(r"\w{2}", message.text.replace(VARIES, "")):
                        found.setdefault((message.text, message.area), message)
    return tuple(found.values())


def headings(page: str) -> list[str]:
    """The sentences that a page explains: its headings of the third rank."""
    return re.findall(r"^### (.+)$", page, re.MULTILINE)


def matches(heading: str, message: str) -> bool:
    """Whether a heading, which may end early with an ellipsis, is this sentence."""
    return message.startswith(heading.rstrip(VARIES).rstrip()) if heading else False


def anchor(heading: str) -> str:
    """What a heading is called in an address."""
    return re.sub(
        r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower().replace(VARIES, "")).strip()
    )


def page() -> str:
    """Markdown of all of them, by where they are met."""
    guide = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
    explained = headings(guide)
    parts = [_INTRODUCTION.format(count=len(messages()))]
    for area in dict.fromkeys(AREAS.values()):
        rows = []
        for message in sorted(messages(), key=lambda m: m.text):
            if message.area != area:
                continue
            heading = next((h for h in explained if matches(h, message.text)), None)
            arrow = f" [→](../how-to/troubleshooting.md#{anchor(heading)})" if heading else ""
            rows.append(f"- {_plain(message.text)}{arrow}")
        if rows:
            parts.append(f"## {area}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _error_classes(trees: Iterable[ast.Module]) -> set[str]:
    """Names of `PumitError` and of everything that derives from it."""
    bases = {
        node.name: {_name(base) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    kinds = {"PumitError"}
    while more := {name for name, of in bases.items() if of & kinds} - kinds:
        kinds |= more
    return kinds


def _named_texts(trees: Iterable[ast.Module]) -> dict[str, list[ast.expr]]:
    """Constants and the answers of functions, by name: texts may be said there."""
    found: dict[str, list[ast.expr]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                answers = [n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value]
                found.setdefault(node.name, []).extend(answers)
            elif isinstance(node, ast.Assign) and _name(node.targets[0]).isupper():
                found.setdefault(_name(node.targets[0]), []).append(node.value)
    return found


def _texts(node: ast.expr, named: dict[str, list[ast.expr]], depth: int = 3) -> list[str]:
    """What an expression may say; nothing where a text is only passed on."""
    if isinstance(node, ast.Constant):
        return [re.sub(r"\{[^}]*\}", VARIES, node.value)] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = [p.value if isinstance(p, ast.Constant) else VARIES for p in node.values]
        return ["".join(map(str, parts))]
    if isinstance(node, ast.BinOp):
        left, right = _texts(node.left, named, depth), _texts(node.right, named, depth)
        return [a + b for a in left or [VARIES] for b in right or [VARIES]]
    if isinstance(node, ast.IfExp):
        return _texts(node.body, named, depth) + _texts(node.orelse, named, depth)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            return _texts(node.func.value, named, depth)
        if _name(node.func) in ("_", "tr") and node.args:
            return _texts(node.args[0], named, depth)
    name = _name(node.func if isinstance(node, ast.Call) else node)
    if depth and name in named and name not in ("str", "join"):
        return [text for each in named[name] for text in _texts(each, named, depth - 1)]
    return []


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _plain(text: str) -> str:
    """Text in which Markdown changes nothing but words in backticks."""
    return re.sub(r"([|<*_\[\]])", r"\\\1", text)
