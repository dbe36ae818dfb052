"""Figures of lines are part of a page."""

from __future__ import annotations

from pumit.report.line_chart import PointRow, point_rows_svg


def points() -> str:
    rows = [PointRow("A & B", [[0.5, 0.7], [0.6]], 0.6, 0.5, 0.7), PointRow("C", [[], []], None)]
    return point_rows_svg(rows, label="Dice", seeds=[0, 7])


def test_figures_keep_their_text_and_take_the_colour_around_them() -> None:
    svg = points()
    assert "seed 7" in svg
    assert "A &amp; B" in svg
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert points() == svg  # nothing of it is drawn by lot, or dated
