"""All plots look alike, and their settings stay within them."""

from __future__ import annotations

import matplotlib
from matplotlib.figure import Figure
from pumit.report.views import COLORS, plot_style


def test_plots_share_a_look_that_ends_with_them() -> None:
    before = dict(matplotlib.rcParams)
    with plot_style("#010203"):
        axes = Figure().subplots()
        assert not axes.spines["top"].get_visible()
        assert axes.xaxis.label.get_color() == "#010203"
    assert dict(matplotlib.rcParams) == before
    assert len(set(COLORS)) == len(COLORS)
