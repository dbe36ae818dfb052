"""A page of text, tables and figures in one HTML file that asks for nothing else."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Protocol

from pumit.system.atomic import atomic_path

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --faint: #57606a;
  --line: #d0d7de; --shade: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --faint: #9aa4af;
  --line: #3a424c; --shade: #161b22; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
p, li { max-width: 46rem; }
figure { margin: 1rem 0; } figcaption, .note { color: var(--faint); font-size: .9rem; }
figure svg { width: 100%; min-width: 26rem; max-width: 48rem; height: auto; display: block; }
figure img { max-width: 100%; height: auto; display: block; background: #fff; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
table.words td { text-align: left; white-space: normal; }
caption { text-align: left; color: var(--faint); font-size: .9rem; padding-bottom: .3rem; }
th, td { padding: .35rem .55rem; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; white-space: nowrap; }
th:first-child, .words th { text-align: left; }
td small { display: block; color: var(--faint); }
pre { background: var(--shade); border: 1px solid var(--line); padding: .8rem; overflow-x: auto;
  font-size: .82rem; line-height: 1.4; }
@media print { :root { --ink: #000; --paper: #fff; --faint: #444; --line: #999; --shade: #fff; }
  body { max-width: none; padding: 0; font-size: 10pt; } .wide { overflow: visible; }
  pre { white-space: pre-wrap; } figure, tr { break-inside: avoid; } }
"""


class Block(Protocol):
    """Something that a page shows."""

    def html(self, number: int) -> str:
        """As HTML.

        Args:
            number: Of the block on its page, for what needs a name of its own.
        """


@dataclass(frozen=True)
class Heading:
    """The beginning of a section."""

    text: str

    def html(self, number: int) -> str:
        """As HTML."""
        return f"<h2>{escape(self.text)}</h2>"


@dataclass(frozen=True)
class Paragraph:
    """Some sentences.

    Attributes:
        text: What they say.
        is_note: Whether they are small print.
    """

    text: str
    is_note: bool = False

    def html(self, number: int) -> str:
        """As HTML."""
        kind = ' class="note"' if self.is_note else ""
        return f"<p{kind}>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Points:
    """A list."""

    texts: Sequence[str]

    def html(self, number: int) -> str:
        """As HTML."""
        items = "".join(f"<li>{escape(text)}</li>" for text in self.texts)
        return f"<ul>{items}</ul>"


@dataclass(frozen=True)
class Cell:
    """A place of a table.

    Attributes:
        text: What counts.
        below: In small print what it is worth, line by line.
    """

    text: str
    below: Sequence[str] = ()

    def html(self) -> str:
        """As HTML, without the place around it."""
        return escape(self.text) + "".join(f"<small>{escape(line)}</small>" for line in self.below)


@dataclass(frozen=True)
class Table:
    """A table; the first place of each row says what the row is.

    Attributes:
        caption: What it shows.
        head: Of each column; all empty for none.
        rows: As many places each.
        is_words: Whether it holds words, which are read from the left and may take several lines.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    is_words: bool = False

    def html(self, number: int) -> str:
        """As HTML."""
        head = "".join(
            f'<th scope="col">{escape(text)}</th>' for text in self.head if any(self.head)
        )
        head = f"<thead><tr>{head}</tr></thead>" if head else ""
        kind = ' class="words"' if self.is_words else ""
        body = []
        for first, *rest in self.rows:
            places = "".join(f"<td>{_cell(place)}</td>" for place in rest)
            body.append(f'<tr><th scope="row">{_cell(first)}</th>{places}</tr>')
        return (
            f'<div class="wide"><table{kind}><caption>{escape(self.caption)}</caption>'
            f"{head}<tbody>{''.join(body)}</tbody></table></div>"
        )


@dataclass(frozen=True)
class Drawing:
    """A figure of lines and text.

    Attributes:
        svg: As matplotlib writes it.
        alt: What it shows, for who does not see it.
        caption: What is to be known below it.
    """

    svg: str
    alt: str
    caption: str

    def html(self, number: int) -> str:
        """As HTML."""
        drawing = _within_page(self.svg, f"f{number}-", self.alt)
        drawing = f'<div class="wide">{drawing}</div>'
        return f"<figure>{drawing}<figcaption>{escape(self.caption)}</figcaption></figure>"


@dataclass(frozen=True)
class Photograph:
    """A figure of pixels.

    Attributes:
        png: Content of the file.
        alt: What it shows.
        caption: What is to be known below it.
    """

    png: bytes
    alt: str
    caption: str

    def html(self, number: int) -> str:
        """As HTML."""
        data = base64.b64encode(self.png).decode("ascii")
        return (
            f'<figure><img src="data:image/png;base64,{data}" alt="{escape(self.alt)}">'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )


@dataclass(frozen=True)
class Code:
    """Text as it is."""

    text: str

    def html(self, number: int) -> str:
        """As HTML."""
        return f"<pre><code>{escape(self.text)}</code></pre>"


def page_html(title: str, blocks: Sequence[Block]) -> str:
    """A page as one text.

    Args:
        title: Its heading.
        blocks: What follows.
    """
    body = "\n".join(block.html(number) for number, block in enumerate(blocks, start=1))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def write_page(path: Path, title: str, blocks: Sequence[Block]) -> None:
    """Write a page.

    Raises:
        ExportError: If it cannot be written.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(page_html(title, blocks), encoding="utf-8")


def _cell(place: Cell | str) -> str:
    return place.html() if isinstance(place, Cell) else escape(place)


def _within_page(svg: str, prefix: str, alt: str) -> str:
    """An SVG file as part of a page: names that nothing else has, and what it shows in words."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'((?:xlink:)?href=")#', rf"\1#{prefix}", svg)
    svg = svg.replace("url(#", f"url(#{prefix}")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1).strip()
