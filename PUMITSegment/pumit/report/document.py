"""Pages of headings, text, tables and figures; how each looks is in `templates/`."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pumit.system.atomic import write_text
from pumit.system.wording import count_of, duration, times


@dataclass(frozen=True)
class Heading:
    """The beginning of a section; level 1 is the title."""

    kind: ClassVar[str] = "heading"
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Some sentences, in small print if `is_note`."""

    kind: ClassVar[str] = "paragraph"
    text: str
    is_note: bool = False


@dataclass(frozen=True)
class Points:
    """A list with bullets."""

    kind: ClassVar[str] = "points"
    texts: Sequence[str]


@dataclass(frozen=True)
class TableCell:
    """A cell of a table: its text, and below it lines in small print."""

    text: str
    below: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """A table; the first cell of each row names the row.

    Attributes:
        caption: Caption; "" for none.
        head: Headings of the columns; all empty for none.
        rows: Cells, as many in each row as there are headings.
        is_words: Whether cells are words, aligned left and wrapped.
    """

    kind: ClassVar[str] = "table"
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[TableCell | str]]
    is_words: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure of lines and text, part of the page: SVG as matplotlib writes it."""

    kind: ClassVar[str] = "drawing"
    svg: str
    alt: str
    caption: str


@dataclass(frozen=True)
class Photograph:
    """A figure of pixels, part of the page: content of a PNG file."""

    kind: ClassVar[str] = "photograph"
    png: bytes
    alt: str
    caption: str


@dataclass(frozen=True)
class Code:
    """Preformatted text."""

    kind: ClassVar[str] = "code"
    text: str


Block = Heading | Paragraph | Points | Table | Drawing | Photograph | Code


def rendered(template: str, content: Mapping[str, Any]) -> str:
    """Render a file of `templates/`."""
    return _templates().get_template(template).render(content)


def page_html(title: str, blocks: Sequence[Block]) -> str:
    """Render a self-contained page."""
    return rendered("page.html.j2", {"title": title, "blocks": blocks})


def write_page(path: Path, title: str, blocks: Sequence[Block]) -> None:
    """Write a page.

    Raises:
        ExportError: If it cannot be written.
    """
    write_template(path, "page.html.j2", {"title": title, "blocks": blocks})


def write_template(path: Path, template: str, content: Mapping[str, Any]) -> None:
    """Write a document from its own template, such as the page of a comparison.

    Raises:
        ExportError: If it cannot be written.
    """
    text = rendered(template, content)
    write_text(path, text)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "base64": lambda content: base64.b64encode(content).decode("ascii"),
        "inline_svg": _inline_svg,
        "count_of": count_of,
        "duration": duration,
        "times": times,
        "mean_of": lambda rows, name: fmean(getattr(row, name) for row in rows),
        "one_line": lambda text: " ".join(str(text).split()).replace("|", "\\|"),
    }
    return environment


def _inline_svg(svg: str, number: int, alt: str) -> str:
    """Get an SVG file as part of a page: with IDs that nothing else there has, and its alt text."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="f{number}-', svg)
    svg = re.sub(r'((?:xlink:)?href=")#', rf"\1#f{number}-", svg)
    svg = svg.replace("url(#", f"url(#f{number}-")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1).strip()
