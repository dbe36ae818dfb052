"""Make animations of prompts and their masks: `python scripts/draw_prompts.py THIGH TORSO`.

THIGH is the scan STS_001 of the TCIA collection Soft-tissue-Sarcoma (Vallières et al. 2015,
CC BY 3.0), TORSO the CT in the tests of TotalSegmentator (Wasserthal et al., Apache-2.0); pictures
of both may be shown. Each mask is the default model's 3D answer to the prompt shown, on one axial
and one coronal slice. The search by name uses abdomen-ct, whose licence must be accepted first
(`pumit models accept abdomen-ct`). The training data of the default weights included both scans.
Further arguments name the only animations to make.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pumit
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from PIL import Image
from pumit.gestures.prompts import lasso_prompts
from pumit.segmentation import Mask
from pumit.volume import Volume

OUT = Path(__file__).resolve().parent.parent / "Resources" / "prompts"
LOW_HU, HIGH_HU = -125.0, 225.0
SEGMENT, INSIDE, OUTSIDE = "#2ec4b6", "#ffd166", "#ef476f"
# Clicks of the tutorial, LPS mm: in the tumour, and where the first mask is too large.
TUMOUR = (69.3, 9.8, -796.3)
TOO_FAR = (43.0, 57.6, -793.0)
SHOWN = (69.3, 9.8, -793.0)
LOWER, UPPER = (12.0, -50.0, -838.0), (131.0, 64.0, -735.0)
# Centre and radii (D, H, W) of a rough mask, and a point in it outside the tumour.
ROUGH, ROUGH_MM, TOO_MUCH = (90.0, 12.0, -791.0), (42.0, 38.0, 42.0), (126.0, 8.0, -793.0)
# A point whose slices show liver, spleen and both kidneys in the other scan.
KIDNEY = (60.0, -130.0, 360.0)
MILLISECONDS = 1400

Lps = tuple[float, float, float]
Draw = Callable[[Axes, bool], None]


class Film:
    """Frames of one scan, in axial and coronal view."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.grey = np.clip((volume.array - LOW_HU) / (HIGH_HU - LOW_HU), 0, 1)
        self.frames: list[Image.Image] = []

    def frame(self, text: str, at: Lps, mask: Mask | None, draw: list[Draw]) -> None:
        """Add a frame.

        Args:
            text: Caption.
            at: Point on both slices, LPS mm.
            mask: The segment, (D, H, W), or None.
            draw: Functions that draw prompts; called with the axes and whether the view is axial.
        """
        depth, row, _ = np.rint(self.volume.world_to_index([at])[0]).astype(int)
        figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.9), dpi=80, facecolor="black")
        planes = ((depth, slice(None)), (slice(None, None, -1), row))
        for view, (ax, plane) in enumerate(zip(axes, planes, strict=True)):
            height, width = self.volume.spacing_mm[1 - view], self.volume.spacing_mm[2]
            ax.imshow(self.grey[plane], cmap="gray", aspect=height / width, vmin=0, vmax=1)
            if mask is not None and mask[plane].any():
                seen = mask[plane].astype(float)
                ax.contourf(seen, [0.5, 1.5], colors=SEGMENT, alpha=0.3)
                ax.contour(seen, [0.5], colors=SEGMENT, linewidths=1.5)
            for each in draw:
                each(ax, view == 0)
            ax.axis("off")
        figure.text(0.5, 0.045, text, color="white", ha="center", fontsize=12)
        figure.subplots_adjust(0.01, 0.11, 0.99, 0.99, wspace=0.02)
        figure.canvas.draw()
        self.frames.append(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3]))
        plt.close(figure)

    def save(self, name: str) -> None:
        """Write the frames as a GIF with one palette, to avoid flicker."""
        OUT.mkdir(parents=True, exist_ok=True)
        sheet = Image.new("RGB", (self.frames[0].width, self.frames[0].height * len(self.frames)))
        for number, frame in enumerate(self.frames):
            sheet.paste(frame, (0, number * frame.height))
        palette = sheet.quantize(160, method=Image.Quantize.MAXCOVERAGE)
        small = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in self.frames]
        times = [MILLISECONDS] * (len(small) - 1) + [2 * MILLISECONDS]
        file = OUT / f"{name}.gif"
        small[0].save(file, save_all=True, append_images=small[1:], duration=times, loop=0)
        print(f"{file.name}: {len(small)} frames, {file.stat().st_size / 1024:.0f} KiB")

    def column_row(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Convert positions, LPS mm (N, 3), to columns and rows of the axial view, (N, 2)."""
        return np.asarray(self.volume.world_to_index(points))[:, [2, 1]]

    def marker(self, point: Lps, color: str) -> Draw:
        """Return a function that draws a point on the axial view."""
        ((column, row),) = self.column_row([point])

        def draw(ax: Axes, is_axial: bool) -> None:
            if is_axial:
                ax.plot(column, row, "o", color=color, markersize=8, markeredgecolor="black")

        return draw

    def line(self, points: list[Lps], color: str) -> Draw:
        """Return a function that draws a line through points on the axial view."""
        line = self.column_row(points)

        def draw(ax: Axes, is_axial: bool) -> None:
            if is_axial:
                ax.plot(*line.T, color=color, linewidth=2.5)

        return draw


def upright(volume: Volume) -> Volume:
    """Flip an axis-aligned scan so that all its axes run along +L, +P and +S."""
    signs = np.diag(volume.direction)[[2, 1, 0]]
    first = np.where(signs < 0, np.array(volume.shape) - 1, 0)
    return Volume(
        np.ascontiguousarray(np.flip(volume.array, np.flatnonzero(signs < 0))),
        volume.spacing_mm,
        tuple(volume.index_to_world([first])[0]),
    )


def rectangle(lower: Lps, upper: Lps) -> list[Lps]:
    """Return the outline of a box on the shown slice."""
    corners = [
        (lower[0], lower[1]),
        (upper[0], lower[1]),
        (upper[0], upper[1]),
        (lower[0], upper[1]),
    ]
    return [(x, y, SHOWN[2]) for x, y in [*corners, corners[0]]]


def circle(center: Lps, radius_mm: float) -> list[Lps]:
    """Return a circle on an axial slice."""
    turns = np.linspace(0, 2 * np.pi, 40)
    return [
        (center[0] + radius_mm * np.cos(t), center[1] + radius_mm * np.sin(t), center[2])
        for t in turns
    ]


def click(film: Film, session: pumit.InteractiveSession) -> None:
    """Draw a positive click and a negative one."""
    film.frame("A scan of a thigh with a tumour", SHOWN, None, [])
    inside = film.marker(TUMOUR, INSIDE)
    film.frame("One click in the tumour ...", SHOWN, None, [inside])
    session.add_point(TUMOUR)
    film.frame("... and a segment in 3D", SHOWN, session.predict(), [inside])
    outside = film.marker(TOO_FAR, OUTSIDE)
    film.frame("Too much: one click outside ...", SHOWN, session.predict(), [outside])
    session.add_point(TOO_FAR, positive=False)
    film.frame("... takes away what is connected to it", SHOWN, session.predict(), [outside])
    film.frame("Two clicks: to be checked, and exported", SHOWN, session.predict(), [])


def box(film: Film, session: pumit.InteractiveSession) -> None:
    """Draw a box around the tumour in 3D."""
    drawn = film.line(rectangle(LOWER, UPPER), INSIDE)
    film.frame("A box around it, with a depth ...", SHOWN, None, [drawn])
    session.add_box(LOWER, UPPER)
    film.frame("... and its segment", SHOWN, session.predict(), [drawn])


def flat_box(film: Film, session: pumit.InteractiveSession) -> None:
    """Draw a box on one slice."""
    drawn = film.line(rectangle(LOWER, UPPER), INSIDE)
    film.frame("A box on one slice, by two clicks ...", SHOWN, None, [drawn])
    session.add_box((*LOWER[:2], SHOWN[2]), (*UPPER[:2], SHOWN[2]))
    film.frame(
        "... and its segment, above and below that slice, too", SHOWN, session.predict(), [drawn]
    )


def scribble(film: Film, session: pumit.InteractiveSession) -> None:
    """Draw a scribble in the tumour."""
    stroke = [(TUMOUR[0] + x, TUMOUR[1] + 8 * np.sin(x / 6), TUMOUR[2]) for x in range(-20, 21, 2)]
    line = film.line(stroke, INSIDE)
    film.frame("A scribble along it ...", SHOWN, None, [line])
    session.add_scribble(stroke)
    film.frame("... and its segment", SHOWN, session.predict(), [line])


def lasso(film: Film, session: pumit.InteractiveSession) -> None:
    """Draw a lasso around the tumour, predicted from its point prompts."""
    volume = film.volume
    middle_lps = (60.0, 8.0, TUMOUR[2])
    outline = circle(middle_lps, 44.0)
    line = film.line(outline, INSIDE)
    film.frame("A lasso around it ...", SHOWN, None, [line])
    lower, upper = np.rint(volume.world_to_index([outline[20], outline[0]])).astype(int)
    depth, row = np.rint(volume.world_to_index([middle_lps])[0]).astype(int)[:2]
    rows, columns = np.indices(volume.shape[1:])
    middle = (lower[2] + upper[2]) / 2
    radius = abs(upper[2] - lower[2]) / 2
    drawn = (rows - row) ** 2 + (columns - middle) ** 2 < radius**2
    for prompt in lasso_prompts(drawn[None], (int(depth), 0, 0), volume, is_positive=True):
        session.add_prompt(prompt)
    film.frame("... and its segment", SHOWN, session.predict(), [line])


def mask(film: Film, session: pumit.InteractiveSession) -> None:
    """Draw a rough mask prior and a click that corrects it."""
    volume = film.volume
    center = volume.world_to_index([ROUGH])[0]
    steps_mm = [
        (index - middle) * s
        for index, middle, s in zip(
            np.indices(volume.shape), center, volume.spacing_mm, strict=True
        )
    ]
    rough = sum((step / radius) ** 2 for step, radius in zip(steps_mm, ROUGH_MM, strict=True)) < 1
    film.frame("A mask: painted by hand, a label map, or a model's ...", SHOWN, rough, [])
    session.set_mask_prior(rough)
    outside = film.marker(TOO_MUCH, OUTSIDE)
    film.frame("... is a start: one click where it is wrong ...", SHOWN, rough, [outside])
    session.add_point(TOO_MUCH, positive=False)
    film.frame("... corrects it there, and leaves the rest", SHOWN, session.predict(), [outside])


def find(film: Film, _session: pumit.InteractiveSession) -> None:
    """Draw two organs found by name."""
    film.frame("A CT of the abdomen, without a click", KIDNEY, None, [])
    for structure in ("left kidney", "liver"):
        found = pumit.find_structure(film.volume, structure, model="abdomen-ct", device="cpu")
        film.frame(f'Find "{structure}"', KIDNEY, found.mask, [])


FILMS = {each.__name__: each for each in (click, box, flat_box, scribble, lasso, mask, find)}


def main() -> int:
    """Make the animations and return the exit status."""
    thigh, torso = (upright(Volume.read(path)) for path in sys.argv[1:3])
    session = pumit.InteractiveSession(pumit.load_segmenter("default", device="cpu"))
    session.set_volume(thigh)
    for name in sys.argv[3:] or FILMS:
        session.reset()
        film = Film(torso if name == "find" else thigh)
        FILMS[name](film, session)
        film.save(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
