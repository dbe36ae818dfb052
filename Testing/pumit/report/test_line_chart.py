"""Charts show every line in its colour, whatever the numbers are."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from pumit.errors import ExportError
from pumit.report.line_chart import (
    LIGHTEST,
    Line,
    LineChart,
    PointRow,
    point_rows_svg,
    readable,
    write_line_charts,
)
from pumit.report.views import COLORS, plot_style

RED, BLUE = (0.9, 0.1, 0.1), (0.1, 0.2, 0.9)


def pixels_like(path: Path, color: tuple[float, float, float]) -> int:
    """How many pixels of a picture have about one colour, parts 0 to 1."""
    picture = np.asarray(Image.open(path).convert("RGB")) / 255
    return int((np.abs(picture - np.array(color)).max(axis=-1) < 0.12).sum())


def test_every_line_of_every_chart_is_drawn(tmp_path):
    steps = [(float(s), 1 / s) for s in range(1, 40)]
    charts = [
        LineChart("loss", [Line("loss", steps, RED)]),
        LineChart("Dice", [Line("liver", [(20.0, 0.5), (39.0, 0.7)], BLUE, has_dots=True)],
                  limits=(0, 1), marks=[("kept", 20.0)]),
    ]  # fmt: skip
    minutes = ("minutes", [(0.0, 0.0), (39.0, 12.0)])
    write_line_charts(charts, tmp_path / "a.png", x_label="step", second=minutes)
    assert pixels_like(tmp_path / "a.png", RED) > 300
    assert pixels_like(tmp_path / "a.png", BLUE) > 300
    # Beside it, more charts make a taller picture.
    write_line_charts(charts[:1], tmp_path / "b.png", x_label="step")
    assert Image.open(tmp_path / "a.png").height > 1.5 * Image.open(tmp_path / "b.png").height


@pytest.mark.parametrize(
    "points",
    [[(1.0, 2.0)], [], [(0.0, 5.0), (1.0, 5.0)], [(0.0, 0.0), (1e9, 1e-9)]],
    ids=["one point", "no point", "level", "far apart"],
)
def test_few_and_odd_points_are_no_fault(tmp_path, points):
    charts = [LineChart("loss", [Line("loss", points), Line("other", [])])]
    pairs = ("minutes", [(3.0, 1.0), (2.0, 1.0)])  # a clock that goes back
    write_line_charts(charts, tmp_path / "a.png", x_label="step", second=pairs)
    assert Image.open(tmp_path / "a.png").width > 500


def test_more_lines_than_a_legend_holds_are_all_drawn(tmp_path):
    lines = [Line(f"class {i}", [(0.0, i / 60), (1.0, i / 60)], RED) for i in range(60)]
    write_line_charts([LineChart("Dice", lines)], tmp_path / "a.png", x_label="step")
    assert pixels_like(tmp_path / "a.png", RED) > 5000


def test_pale_colours_are_darkened_and_others_kept():
    assert readable(BLUE) == BLUE
    r, g, b = readable((1.0, 1.0, 0.6))
    assert 0.299 * r + 0.587 * g + 0.114 * b == pytest.approx(LIGHTEST)
    assert r == g > b


def test_a_folder_that_is_missing_is_reported(tmp_path):
    chart = LineChart("loss", [Line("loss", [(0.0, 1.0)])])
    with pytest.raises(ExportError, match="folder does not exist"):
        write_line_charts([chart], tmp_path / "none" / "a.png", x_label="step")


def points() -> str:
    rows = [PointRow("A & B", [[0.5, 0.7], [0.6]], 0.6, 0.5, 0.7), PointRow("C", [[], []], None)]
    return point_rows_svg(rows, label="Dice", seeds=[0, 7])


def test_figures_keep_their_text_and_take_the_colour_around_them():
    svg = points()
    assert "seed 7" in svg
    assert "A &amp; B" in svg
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert points() == svg  # nothing of it is drawn by lot, or dated


def test_plots_share_a_look_that_ends_with_them():
    before = dict(matplotlib.rcParams)
    with plot_style("#010203"):
        axes = Figure().subplots()
        assert not axes.spines["top"].get_visible()
        assert axes.xaxis.label.get_color() == "#010203"
    assert dict(matplotlib.rcParams) == before
    assert len(set(COLORS)) == len(COLORS)
