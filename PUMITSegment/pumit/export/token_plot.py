"""A picture of how an image uses a tokenizer's codebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pumit.io.atomic import atomic_path


def write_token_plot(
    shares: Sequence[float], path: str | Path, *, title: str = "", caption: str = ""
) -> None:
    """Write a PNG: the share of each token, the most used first, beside an even use.

    Args:
        shares: Share of each token, summing to 1.
        path: File to write, `.png`.
        title: One line above.
        caption: One line below.

    Raises:
        ExportError: If the file cannot be written.
    """
    ranked = np.sort(np.asarray(shares, dtype=np.float64))[::-1]
    even = 1 / len(ranked)
    figure = Figure(figsize=(8, 4.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rank = np.arange(1, len(ranked) + 1)
    axes.fill_between(rank, np.maximum(ranked, even * 1e-3), even * 1e-3, color="#3b82c4", lw=0)
    axes.axhline(even, color="#c2410c", lw=1.2, ls="--")
    axes.annotate("all tokens alike", (len(ranked), even), (0, 4), textcoords="offset points",
                  ha="right", color="#c2410c", fontsize=9)  # fmt: skip
    axes.set(
        yscale="log",
        xlim=(1, len(ranked)),
        ylim=(even * 1e-3, max(ranked[0], even) * 2),
        xlabel=f"token, the most used of {len(ranked)} first" + (f"\n{caption}" if caption else ""),
        ylabel="share of the image",
        title=title,
    )
    axes.spines[["top", "right"]].set_visible(False)
    with atomic_path(Path(path)) as temporary:
        figure.savefig(temporary, format="png")
