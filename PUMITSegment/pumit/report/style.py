"""Style of all figures: colours, and matplotlib's settings for plots."""

from __future__ import annotations

from contextlib import AbstractContextManager

import matplotlib

# Okabe and Ito's colours without black and yellow: distinct for colour-blind readers, and visible
# on white and on black.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
# Pictures of scans have a dark background.
BACKGROUND = "#0d1014"
TEXT = "#e8ebef"
FAINT_TEXT = "#8b949e"

_PLOT = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.titlesize": 11,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "pumit",
}
_INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")


def plot_style(ink: str = "black") -> AbstractContextManager[None]:
    """Return a context with matplotlib's settings for plots created and saved within it."""
    style: AbstractContextManager[None] = matplotlib.rc_context(_PLOT | dict.fromkeys(_INKED, ink))
    return style
