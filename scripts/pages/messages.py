"""Every sentence with which the program refuses something, read from its sources.

A user-facing error is a class of `pumit/errors.py` or one that derives from it; what is made of it
with a text is a sentence that a user can meet. So is what a check finds wrong with a case or an
export, and what a panel says did not work. What varies in a sentence is written as an ellipsis.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("PUMITSegment", "PUMITTrain")
HOW_TO = ROOT / "docs" / "how-to"
VARIES = "…"
# Where a user meets them: first part of the path that fits.
AREAS = {
    "PUMITSegment/PUMITSlicerLib/installing": "Installing in Slicer",
    "PUMITSegment/PUMITSlicerLib/computing": "Worker and servers, in Slicer",
    "PUMITSegment/PUMITSlicerLib": "In Slicer",
    "PUMITSegment/PUMITSegmentLib": "In PUMIT Segment",
    "PUMITTrain": "In PUMIT Train",
    "PUMITSegment/pumit/cli/": "Command line",
    "PUMITSegment/pumit/client/": "Worker and servers",
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
# What checks find: the function or class that takes the sentence, and where among its arguments.
FINDINGS = {"CaseProblem": 1, "Problem": 1, "_stop": 0, "_warn": 0}
# A text of a panel with one of these says that something did not work.
TROUBLE = re.compile(
    r"\b(allows nothing|cannot|could not|does not (exist|offer)|failed|gone|has no|is empty:|"
    r"is (missing|needed)|Internal error|lacks|leaves the|lies outside|no longer|No coded term|"
    r"[Nn]ot (installed|named|valid)|nothing was found|unexpectedly|was deleted)\b"
)
# What has such a word and tells of no trouble.
NO_TROUBLE = {
    "Everything that is needed is installed.": "says that all is well",
    "Look at the table: what is red cannot be used, what is amber should be checked.": "help",
    "Delete the run … with its checkpoints, curves and pictures? This cannot be undone. A model of "
    "it that PUMIT Segment lists stays there.": "a question",
}
# Methods of a text after which it still is the sentence.
_PASSED_ON = ("format", "removesuffix")
_INTRODUCTION = """# Every message

All sentences with which PUMIT refuses something, read from its sources: {count} of them. An
ellipsis stands for what varies. Search this page (Ctrl+F) for a part of what you see; the arrow
leads to what it means and what to do.
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


@dataclass
class _Source:
    """One file: what its names stand for, as far as texts go."""

    # Each call with the innermost function that it stands in.
    calls: list[tuple[ast.FunctionDef | None, ast.Call]] = field(default_factory=list)
    # What constants are, and what functions answer, by name.
    named: dict[str, list[ast.expr]] = field(default_factory=dict)
    # What is assigned in a function, by name.
    assigned: dict[tuple[ast.FunctionDef, str], list[ast.expr]] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    bases: dict[str, set[str]] = field(default_factory=dict)


def _read(tree: ast.Module) -> _Source:
    """Everything in one pass, in the order of the source."""
    source = _Source()
    waiting: list[tuple[ast.AST, tuple[ast.FunctionDef, ...]]] = [(tree, ())]
    while waiting:
        node, functions = waiting.pop()
        if isinstance(node, ast.Call):
            source.calls.append((functions[-1] if functions else None, node))
        elif isinstance(node, ast.FunctionDef):
            functions = (*functions, node)
        elif isinstance(node, ast.Return) and node.value:
            for function in functions:
                source.named.setdefault(function.name, []).append(node.value)
        elif isinstance(node, ast.Assign):
            name = _name(node.targets[0])
            if name.isupper():
                source.named.setdefault(name, []).append(node.value)
            for function in functions:
                source.assigned.setdefault((function, name), []).append(node.value)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found = (node.module.replace(".", "/"), alias.name)
                source.imported[alias.asname or alias.name] = found
        elif isinstance(node, ast.ClassDef):
            source.bases[node.name] = {_name(base) for base in node.bases}
        waiting += [(child, functions) for child in reversed(list(ast.iter_child_nodes(node)))]
    return source


@cache
def messages() -> tuple[Message, ...]:
    """Every sentence once in each area, in the order of the sources."""
    reader = _Reader()
    found: dict[tuple[str, str], Message] = {}
    for file, kind, text in reader.sentences():
        message = Message(" ".join(text.split()), kind, file)
        if re.search(r"\w{2}", message.text.replace(VARIES, "")):
            found.setdefault((message.text, message.area), message)
    return tuple(found.values())


def guides() -> dict[str, str]:
    """The pages that explain sentences, by name."""
    files = [HOW_TO / "troubleshooting.md", *sorted((HOW_TO / "messages").glob("*.md"))]
    return {f.relative_to(HOW_TO).as_posix(): f.read_text(encoding="utf-8") for f in files}


def headings(page: str) -> list[str]:
    """The sentences that a page explains: its headings of the third rank."""
    found = re.findall(r"^### (.+)$", page, re.MULTILINE)
    return [re.sub(r"\\([|<*_\[\]~])", r"\1", heading) for heading in found]


def matches(heading: str, message: str) -> bool:
    """Whether a heading is this sentence, or its beginning where it ends with an ellipsis."""
    start = heading.rstrip(VARIES).rstrip()
    return heading == message or (heading.endswith(VARIES) and message.startswith(start or message))


def anchor(heading: str) -> str:
    """What a heading is called in an address."""
    return re.sub(
        r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower().replace(VARIES, "")).strip()
    )


def explained() -> dict[str, tuple[str, str]]:
    """Sentence: the page that explains it, and the heading there; the whole sentence first."""
    heads = [(name, head) for name, page in guides().items() for head in headings(page)]
    heads.sort(key=lambda pair: -len(pair[1]))
    found = {}
    for message in messages():
        for name, head in heads:
            if matches(head, message.text):
                found[message.text] = name, head
                break
    return found


def page() -> str:
    """Markdown of all of them, by where they are met."""
    found = explained()
    parts = [_INTRODUCTION.format(count=len(messages()))]
    for area in dict.fromkeys(AREAS.values()):
        rows = []
        for message in sorted(messages(), key=lambda m: m.text):
            if message.area == area:
                name, head = found.get(message.text, ("", ""))
                arrow = f" [→](../how-to/{name}#{anchor(head)})" if name else ""
                rows.append(f"- {_plain(message.text)}{arrow}")
        if rows:
            parts.append(f"## {area}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


class _Reader:
    """Reads the sentences out of the sources: what is said, and what its names stand for there."""

    def __init__(self) -> None:
        self._sources = {
            file.relative_to(ROOT).as_posix(): _read(ast.parse(file.read_text(encoding="utf-8")))
            for folder in FOLDERS
            for file in sorted((ROOT / folder).rglob("*.py"))
        }
        self._kinds = self._error_classes()

    def sentences(self) -> Iterator[tuple[str, str, str]]:
        """File, kind of error and text, in the order of the sources."""
        for file, source in self._sources.items():
            for function, node in source.calls:
                name = _name(node.func)
                place = 0 if name in self._kinds else FINDINGS.get(name, -1)
                if 0 <= place < len(node.args):
                    kind = name
                    texts = self._texts(node.args[place], file, function)
                elif name in ("_", "tr") and "/pumit/" not in file:
                    kind = "panel"
                    texts = [t for t in self._texts(node, file, function) if _is_trouble(t)]
                else:
                    continue
                for text in texts:
                    yield file, kind, text

    def _error_classes(self) -> set[str]:
        """Names of `PumitError` and of everything that derives from it."""
        bases = {name: of for source in self._sources.values() for name, of in source.bases.items()}
        kinds = {"PumitError"}
        while more := {name for name, of in bases.items() if of & kinds} - kinds:
            kinds |= more
        return kinds

    def _texts(
        self, node: ast.expr, file: str, function: ast.FunctionDef | None, depth: int = 4
    ) -> list[str]:
        """What an expression may say; nothing where a text is only passed on."""

        def of(part: ast.expr) -> list[str]:
            return self._texts(part, file, function, depth)

        if isinstance(node, ast.Constant):
            return [re.sub(r"\{[^}]*\}", VARIES, node.value)] if isinstance(node.value, str) else []
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else VARIES for p in node.values]
            return ["".join(map(str, parts))]
        if isinstance(node, ast.BinOp):
            return [a + b for a in of(node.left) or [VARIES] for b in of(node.right) or [VARIES]]
        if isinstance(node, ast.IfExp):
            return of(node.body) + of(node.orelse)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _PASSED_ON:
                return of(node.func.value)
            if _name(node.func) in ("_", "tr") and node.args:
                return of(node.args[0])
        if not depth:
            return []
        return [
            text
            for where, named, inside in self._meanings(node, file, function)
            for text in self._texts(named, where, inside, depth - 1)
        ]

    def _meanings(
        self, node: ast.expr, file: str, function: ast.FunctionDef | None
    ) -> Iterator[tuple[str, ast.expr, ast.FunctionDef | None]]:
        """What a name stands for: a variable of the function, a name of the file, an import."""
        named = node.func if isinstance(node, ast.Call) else node
        name = _name(named)
        is_own = isinstance(named, ast.Name) or _name(getattr(named, "value", node)) == "self"
        if isinstance(node, ast.Name) and function is not None:
            for each in self._sources[file].assigned.get((function, name), ()):
                yield file, each, function
        source = self._sources[file]
        if is_own and name in source.named:
            yield from ((file, value, None) for value in source.named[name])
        elif isinstance(named, ast.Name) and name in source.imported:
            module, original = source.imported[name]
            for where in (f"PUMITSegment/{module}.py", f"PUMITTrain/{module}.py"):
                for value in self._sources.get(where, _NONE).named.get(original, []):
                    yield where, value, None


_NONE = _Source()


def _is_trouble(text: str) -> bool:
    is_sentence = text.endswith(".") and text not in NO_TROUBLE
    return is_sentence and TROUBLE.search(text) is not None


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _plain(text: str) -> str:
    """Text in which Markdown changes nothing but words in backticks."""
    return re.sub(r"([|<*_\[\]~])", r"\\\1", text)
