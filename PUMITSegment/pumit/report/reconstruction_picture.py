"""Pictures of a tokenizer: scan, reconstruction and error, and the use of its codebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from pumit.report.panels import add_panel, add_text, draw_slice, new_figure, save_figure
from pumit.report.picture import DPI, GAP_INCHES
from pumit.report.views import COLORS, FAINT_TEXT, View, plot_style, views_through
from pumit.system.files import atomic_path
from pumit.volume import Volume

_WIDTH_INCHES, _ROWS_LIMIT_INCHES = 11.0, 8.0
_HEADER_INCHES, _LABEL_INCHES, _BAR_INCHES, _LINE_INCHES = 0.45, 0.3, 0.12, 0.2
_LINE_LETTERS = 128
_MOST_ROWS = 2
# Percentile of the errors at the end of the colour scale; the few larger ones are clipped.
_SHOWN_PERCENTILE = 99.5
Image = npt.NDArray[np.float32]
_IMAGE, _USUAL, _EVEN = COLORS[0], "black", COLORS[1]


@dataclass(frozen=True)
class _Column:
    title: str
    image: Image
    colors: str
    limits: tuple[float, float]
    has_bar: bool = False


def write_reconstruction_picture(
    volume: Volume,
    image: Image,
    difference: Image,
    path: str | Path,
    *,
    title: str = "",
    caption: str = "",
) -> None:
    """Write a PNG of the tokenizer's input, the reconstruction and the error.

    The first row is the middle slice; a second row shows a plane across the slices if the volume is
    thick enough. The physical aspect ratio is kept.

    Args:
        image: Reconstruction, (D, H, W).
        difference: Reconstruction minus scan, (D, H, W).

    Raises:
        ExportError: If the file cannot be written.
    """
    seen = image - difference
    limits = (float(seen.min()), float(seen.max()))
    limits = limits if limits[1] > limits[0] else (limits[0] - 1, limits[1] + 1)
    step = max(1, round((difference.size / 1e6) ** (1 / 3)))
    sample = np.abs(difference[::step, ::step, ::step])
    reach = float(np.percentile(sample, _SHOWN_PERCENTILE)) or float(sample.max()) or 1.0
    columns = [
        _Column("Scan, as the model sees it", seen, "gray", limits),
        _Column("Reconstruction", image, "gray", limits),
        _Column(
            "Error: blue too dark, red too bright", difference, "coolwarm", (-reach, reach), True
        ),
    ]
    save_figure(_drawn(volume, columns, title, wrap(caption, _LINE_LETTERS)), Path(path))


def _drawn(
    volume: Volume, columns: Sequence[_Column], title: str, caption: Sequence[str]
) -> Figure:
    views = _rows(volume)
    sizes = [view.size_mm(volume.shape) for view in views]
    room = (_WIDTH_INCHES - GAP_INCHES * (len(columns) + 1)) / len(columns)
    scale = min(
        room / max(width for width, _ in sizes),
        _ROWS_LIMIT_INCHES / sum(height for _, height in sizes),
    )
    rows_inches = sum(height for _, height in sizes) * scale + GAP_INCHES * (len(sizes) - 1)
    foot = _LABEL_INCHES + _BAR_INCHES + 2 * GAP_INCHES + _LINE_INCHES * (len(caption) + 1)
    total = _HEADER_INCHES + _LABEL_INCHES + rows_inches + foot
    figure = new_figure(_WIDTH_INCHES, total, dpi=DPI)
    add_text(figure, GAP_INCHES, _HEADER_INCHES / 2, title, fontsize=13)
    for i, column in enumerate(columns):
        left = GAP_INCHES + i * (room + GAP_INCHES)
        y = _HEADER_INCHES + _LABEL_INCHES / 2
        add_text(figure, left + room / 2, y, column.title, fontsize=10, ha="center")
        top = _HEADER_INCHES + _LABEL_INCHES
        for view, (width, height) in zip(views, sizes, strict=True):
            w, h = width * scale, height * scale
            axes = add_panel(figure, left + (room - w) / 2, top, w, h)
            draw_slice(axes, view, column.image, column.limits, colors=column.colors)
            top += h + GAP_INCHES
        if column.has_bar:
            bar = add_panel(figure, left + room / 5, top, room * 3 / 5, _BAR_INCHES)
            _draw_bar(bar, column)
    for i, line in enumerate(caption):
        y = total - foot + _LABEL_INCHES + _BAR_INCHES + 2 * GAP_INCHES + _LINE_INCHES * (i + 0.5)
        add_text(figure, GAP_INCHES, y, line, color=FAINT_TEXT, fontsize=10)
    return figure


def _rows(volume: Volume) -> list[View]:
    """Return the two views with the most voxels, the second only if it is thick enough."""
    d, h, w = volume.shape
    views = views_through(volume, (d // 2, h // 2, w // 2))

    def area(view: View) -> int:
        return volume.shape[view.down[0]] * volume.shape[view.right[0]]

    views = sorted(views, key=area, reverse=True)[:_MOST_ROWS]
    # A view with few slices is only a thin strip.
    return [
        v
        for i, v in enumerate(views)
        if i == 0 or min(volume.shape[v.down[0]], volume.shape[v.right[0]]) >= 16
    ]


def _draw_bar(axes: Axes, column: _Column) -> None:
    low, high = column.limits
    axes.imshow(
        np.linspace(low, high, 256)[None],
        cmap=column.colors,
        norm=Normalize(low, high),
        aspect="auto",
        extent=(low, high, 0, 1),
    )
    axes.set(yticks=[], xticks=[low, (low + high) / 2, high])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    axes.tick_params(colors=FAINT_TEXT, labelsize=8, length=2)
    axes.spines[:].set_visible(False)


def write_token_plot(
    shares: Sequence[float],
    path: str | Path,
    *,
    usual: Sequence[float] | None = None,
    title: str = "",
    caption: str = "",
) -> None:
    """Write a PNG of the token frequencies of an image, with uniform and reference frequencies.

    Tokens are sorted by reference frequency, the highest first, so that tokens that this image uses
    more or less than usual stand out; without a reference, by the image's own frequency.

    Args:
        shares: Frequency of each token, summing to 1.
        usual: Reference frequencies over known images, same length.

    Raises:
        ExportError: If the file cannot be written.
        ValueError: If the reference has another number of tokens.
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
        axes.axhline(even, color=_EVEN, lw=1.2, ls="--", label="all tokens equal")
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
    """Draw frequencies in the given order: dots over the reference line, else an area."""
    floor = 1e-3 / len(shares)
    rank = np.arange(1, len(shares) + 1)
    own = np.maximum(shares, floor)
    if usual is None:
        axes.fill_between(rank, own, floor, color=_IMAGE, lw=0, step="mid", label="this image")
        return
    axes.plot(rank, own, "o", color=_IMAGE, ms=3, mew=0, label="this image")
    axes.plot(rank, np.maximum(usual, floor), color=_USUAL, lw=1.6, label="images it knows")
