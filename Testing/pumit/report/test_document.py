"""A page is well-formed, loads nothing else, and holds only what it was given."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from pumit.report.comparison_plot import PointRow, TrainingCurve, curves_svg, point_rows_svg
from pumit.report.document import (
    Code,
    Drawing,
    Heading,
    Paragraph,
    Photograph,
    Points,
    Table,
    TableCell,
    page_html,
    write_page,
)

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Outline(HTMLParser):
    """Reads a page, and complains of tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("href", "src", "xlink:href"):
                self.links.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Outline:
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    return outline


def points() -> str:
    rows = [PointRow("A & B", [[0.5, 0.7], [0.6]], 0.6, 0.5, 0.7), PointRow("C", [[], []], None)]
    return point_rows_svg(rows, label="Dice", seeds=[0, 7])


def test_a_page_of_everything_is_well_formed_and_whole() -> None:
    svg = curves_svg(
        [TrainingCurve("A", [(0, 1), (1, 0.5)]), TrainingCurve("A", [])], x_label="x", y_label="y"
    )
    page = page_html(
        "Title & more",
        [
            Heading("One <two>"),
            Paragraph("Text"),
            Points(["first", "second"]),
            Table("What it shows", ["", "Dice"], [["A & B", TableCell("0.5", "0.4 to 0.6")]]),
            Drawing(points(), "alt & text", "caption"),
            Drawing(svg, "curves", "caption"),
            Photograph(b"\x89PNG", 'a "scan"', "caption"),
            Code("a: <b>"),
        ],
    )
    outline = read(page)
    assert len(outline.ids) == len(set(outline.ids))
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in outline.links)
    inner = {link[1:] for link in outline.links if link.startswith("#")}
    inner |= set(re.findall(r"url\(#([^)]*)\)", page))
    assert inner <= set(outline.ids)
    assert "<script" not in page
    # The only addresses are the names of the formats.
    assert set(re.findall(r"https?://[^\s\"')]*", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "One <two>" in outline.text


def test_figures_keep_their_text_and_take_the_colour_around_them() -> None:
    svg = points()
    assert "seed 7" in svg
    assert "A &amp; B" in svg
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert points() == svg  # nothing of it is drawn by lot, or dated


def test_a_page_is_written_whole(tmp_path: Path) -> None:
    write_page(tmp_path / "index.html", "Title", [Paragraph("größer als 1 mm")])
    assert "größer" in (tmp_path / "index.html").read_text(encoding="utf-8")
