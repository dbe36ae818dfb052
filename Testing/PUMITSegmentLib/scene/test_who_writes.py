"""Whatever changes a segment asks the guard first, today and in code that comes later."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[3] / "PUMITSegment" / "PUMITSegmentLib"
# Methods of a `SegmentBook`, and functions, that change segments.
METHODS = {"answer", "exclude", "edit", "empty", "reset", "addFound", "undo", "redo"}
METHODS |= {"removeSegment"}
FUNCTIONS = {"newSegment", "assignTerm", "segmentationFromLabelMap"}
GUARDS = {"guard", "mayWrite", "_ensureBook"}
# The writer itself is called where masks are kept, for structures that were found, and for a scan
# that another module gives to be checked: its segmentation is made with it, and not seen yet.
WRITERS = {"masks/book.py", "automatic.py", "reviewing.py"}
UNSEEN = {"reviewing.py: _add"}


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function of the library, with the file it is in."""
    for path in sorted(LIBRARY.rglob("*.py")):
        name = path.relative_to(LIBRARY).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield name, node


def names(function: ast.FunctionDef) -> set[str]:
    """Every name and attribute in a function."""
    found = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    return found | {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}


def changes(function: ast.FunctionDef) -> set[str]:
    """Return the calls of a function that change segments: of `book`, or a function by its name."""
    found = set()
    for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
        called = call.func
        if isinstance(called, ast.Attribute) and ast.unparse(called.value).endswith("book"):
            found |= {called.attr} & METHODS
        elif isinstance(called, ast.Name):
            found |= {called.id} & FUNCTIONS
    return found


def test_every_function_that_changes_segments_asks_the_guard() -> None:
    changing = [(file, each) for file, each in functions() if changes(each)]
    assert len(changing) >= 9
    unguarded = {f"{file}: {each.name}" for file, each in changing if not names(each) & GUARDS}
    assert unguarded == UNSEEN


def test_voxels_are_written_in_three_places() -> None:
    files = {
        file
        for file, function in functions()
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func).lower().endswith("writer.write")
    }
    assert files == WRITERS
