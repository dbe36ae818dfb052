"""A picture of how an image uses a tokenizer's codebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pumit.report.style import COLORS, plot_style
from pumit.system.atomic import atomic_path

_IMAGE, _USUAL, _EVEN = COLORS[0], "black", COLORS[1]


def write_token_plot(
    shares: Sequence[float],
    path: str | Path,
    *,
    usual: Sequence[float] | None = None,
    title: str = "",
    caption: str = "",
) -> None:
    """Write a PNG: the share of each token, with an even use and the usual one.

    Where the usual use is known, the tokens stand in its order, the most usual first, so that a
    token that this image uses more or less than others do stands out of the line; else in the
    order of the image's own use.

    Args:
        shares: Share of each token, summing to 1.
        usual: Shares over the images that the tokenizer knows, as many.

    Raises:
        ExportError: If the file cannot be written.
        ValueError: If the usual use is of another codebook.
    """
    own = np.asarray(shares, dtype=np.float64)
    known = None if usual is None else np.asarray(usual, dtype=np.float64)
    if known is not None and known.shape != own.shape:
        raise ValueError(f"Expected the usual use of {own.size} tokens, got {known.size}.")
    order = np.argsort(-(own if known is None else known), kind="stable")
    even = 1 / len(own)
    with plot_style():
        figure = Figure(figsize=(8, 4.5), dpi=130, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        _draw(axes, own[order], None if known is None else known[order])
        axes.axhline(even, color=_EVEN, lw=1.2, ls="--", label="all tokens alike")
        first = "the most used" if known is None else "the most usual"
        axes.set(
            yscale="log",
            xlim=(1, len(own)),
            ylim=(even * 1e-3, max(own.max(), even) * 2),
            xlabel=f"token, {first} of {len(own)} first" + (f"\n{caption}" if caption else ""),
            ylabel="share of the image",
            title=title,
        )
        figure.legend(loc="outside upper center", ncols=3)
        with atomic_path(Path(path)) as temporary:
            figure.savefig(temporary, format="png")


def _draw(
    axes: Axes, shares: npt.NDArray[np.float64], usual: npt.NDArray[np.float64] | None
) -> None:
    """Shares in the order given: dots about the line of the usual ones, or else an area."""
    floor = 1e-3 / len(shares)
    rank = np.arange(1, len(shares) + 1)
    own = np.maximum(shares, floor)
    if usual is None:
        axes.fill_between(rank, own, floor, color=_IMAGE, lw=0, step="mid", label="this image")
        return
    axes.plot(rank, own, "o", color=_IMAGE, ms=3, mew=0, label="this image")
    axes.plot(rank, np.maximum(usual, floor), color=_USUAL, lw=1.6, label="images it knows")
