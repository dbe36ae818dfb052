"""Documents from the files of `templates/`, and their figures."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pumit.system.files import write_text
from pumit.system.wording import count_of, duration, times


@dataclass(frozen=True)
class Drawing:
    """Vector figure of a page: SVG as matplotlib writes it."""

    svg: str
    alt: str
    caption: str


@dataclass(frozen=True)
class Photograph:
    """Raster figure of a page: content of a PNG file."""

    png: bytes
    alt: str
    caption: str


def rendered(template: str, content: Mapping[str, Any]) -> str:
    """Render a file of `templates/`."""
    return _templates().get_template(template).render(content)


def write_template(path: Path, template: str, content: Mapping[str, Any]) -> None:
    """Write a document.

    Raises:
        ExportError: If the file cannot be written.
    """
    write_text(path, rendered(template, content))


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
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="f{number}-', svg)
    svg = re.sub(r'((?:xlink:)?href=")#', rf"\1#f{number}-", svg)
    svg = svg.replace("url(#", f"url(#f{number}-")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1).strip()
