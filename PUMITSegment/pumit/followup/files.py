"""Files of a follow-up: table, facts, registration transform and picture."""

import csv
import io
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK

from pumit.errors import ExportError, VolumeError
from pumit.followup.changes import LesionChange, Measure
from pumit.followup.follow_up import FollowUp
from pumit.followup.registration import Registration, brought_onto, itk_transform, matrix_of
from pumit.geometry import Floats
from pumit.segmentation import Mask
from pumit.system.files import atomic_path, write_text
from pumit.volume import Volume

SEGMENTATION, TABLE, FACTS = "later.seg.nrrd", "follow-up.csv", "follow-up.json"
TRANSFORM, PICTURE = "registration.tfm", "registration.png"
ROWS = ("earlier", "later, registered", "both: earlier red, later blue-green")
OUTLINE = "#ffd166"
ROW_INCHES, DPI = 3.0, 100
_MEASURES = ("volume_ml", "long_axis_mm", "perpendicular_mm", "longest_mm")


def write_table(result: FollowUp, path: Path) -> None:
    """Write a CSV table with one row per lesion, columns for both dates, and a row of sums.

    Raises:
        ExportError: If the file cannot be written.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    header = ["lesion", "change"]
    header += [f"{date}_{name}" for name in _MEASURES for date in ("earlier", "later")]
    table.writerow([*header, "volume_change_percent", "remark"])
    for row in table_of(result):
        sizes = [row[date][name] for name in _MEASURES for date in ("earlier", "later")]
        shown = ["" if size is None else size for size in sizes]
        change = row["volume_change_percent"]
        line = [row["lesion"], row["change"], *shown, "" if change is None else change]
        table.writerow([*line, row["remark"]])
    write_text(path, text.getvalue())


def table_of(result: FollowUp) -> list[dict[str, Any]]:
    """Return the table as JSON values; the last row sums the lesions within the later scan."""
    rows = [_row(change) for change in result.changes]
    shown = [c for c in result.changes if c.change != "not shown"]
    sums = {
        date: {
            name: round(sum(float(getattr(m, name)) for m in measures), 3)
            if name in ("volume_ml", "long_axis_mm")
            else None
            for name in _MEASURES
        }
        for date, measures in (
            ("earlier", [c.before for c in shown]),
            ("later", [c.after for c in shown]),
        )
    }
    before, after = (sums[date]["volume_ml"] or 0.0 for date in ("earlier", "later"))
    change = round(100 * (after / before - 1), 1) if before else None
    whole = {"lesion": "Sum", "change": "", **sums, "volume_change_percent": change, "remark": ""}
    return [*rows, whole]


def _row(change: LesionChange) -> dict[str, Any]:
    is_shown = change.change != "not shown"
    volume = change.volume_change
    return {
        "lesion": change.name,
        "change": change.change,
        "earlier": _sizes(change.before, change.change != "new"),
        "later": _sizes(change.after, is_shown),
        "volume_change_percent": None if volume is None else round(100 * volume, 1),
        "remark": change.remark,
    }


def _sizes(measure: Measure, is_known: bool) -> dict[str, float | None]:
    return {
        name: round(float(getattr(measure, name)), 3) if is_known else None for name in _MEASURES
    }


def registration_facts(registration: Registration) -> dict[str, Any]:
    """Return the measures of a registration as JSON values; null for an infinite shift."""
    shift, worst = (
        round(mm, 2) if math.isfinite(mm) else None
        for mm in (registration.shift_mm, registration.worst_mm)
    )
    return {
        "fit": registration.fit,
        "shift_mm": shift,
        "worst_mm": worst,
        "similarity": round(registration.similarity, 3),
        "overlap": round(registration.overlap, 3),
        "earlier_to_later_lps": registration.matrix.round(6).tolist(),
    }


def write_registration(
    registration: Registration, earlier: Volume, later: Volume, mask: Mask, folder: Path
) -> None:
    """Write the transform, which Slicer can apply to the later scan, and a picture of the fit.

    Raises:
        ExportError: If a file cannot be written.
    """
    with atomic_path(folder / TRANSFORM) as temporary:
        # ITK chooses the format by suffix.
        written = temporary.with_name(f"{temporary.name}.transform.tfm")
        try:
            SimpleITK.WriteTransform(itk_transform(registration.matrix), str(written))
            written.replace(temporary)
        except RuntimeError as error:
            raise ExportError(
                "The transform cannot be written; check the free space of the disk."
            ) from error
        finally:
            written.unlink(missing_ok=True)
    registered = brought_onto(earlier, later, registration.matrix)
    _write_picture(earlier, registered, mask, folder / PICTURE, title=registration.sentence)


def _write_picture(
    earlier: Volume,
    registered: npt.NDArray[np.float32],
    mask: Mask,
    path: Path,
    *,
    title: str,
) -> None:
    """Draw three planes of each scan and of their overlay through the lesions, with outlines."""
    from pumit.report.panels import draw_outline, first_channel, new_figure, save_figure
    from pumit.report.views import TEXT, views_through

    scan = np.asarray(first_channel(earlier), np.float32)
    first, second = (_grey(part, mask) for part in (scan, registered))
    index = np.argwhere(mask)
    nearest = index[np.abs(index - np.median(index, axis=0)).sum(axis=1).argmin()]
    d, h, w = (int(i) for i in nearest)
    views = views_through(earlier, (d, h, w))
    width, height = ROW_INCHES * 1.25 * len(views), ROW_INCHES * len(ROWS) + 0.4
    figure = new_figure(width, height, dpi=DPI)
    grid = figure.subplots(len(ROWS), len(views), squeeze=False)
    for row, name, parts in zip(
        grid, ROWS, ((first, first), (second, second), (first, second)), strict=True
    ):
        for axes, view in zip(row, views, strict=True):
            red, other = (view.cut(part) for part in parts)
            across, down = view.size_mm(mask.shape)
            image = np.stack([red, other, other], axis=-1)
            axes.imshow(image, extent=(0.0, across, down, 0.0), interpolation="bilinear")
            axes.set(xlim=(0, across), ylim=(down, 0))
            draw_outline(axes, view, mask, OUTLINE, width=0.8)
            axes.set_axis_off()
        row[0].set_title(name, color=TEXT, fontsize=9, loc="left")
    figure.suptitle(title, color=TEXT, fontsize=10)
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    save_figure(figure, path)


def _grey(array: npt.NDArray[np.float32], mask: Mask) -> npt.NDArray[np.float32]:
    windows = [slice(max(int(i.min()) - 30, 0), int(i.max()) + 31) for i in np.nonzero(mask)]
    low, high = np.percentile(array[tuple(windows)], (5, 99.5))
    return np.asarray(np.clip((array - low) / max(float(high - low), 1e-6), 0, 1), np.float32)


def read_transform(path: Path) -> Floats:
    """Read a linear ITK or Slicer transform as a 4 x 4 matrix, LPS mm.

    Raises:
        VolumeError: If it cannot be read, or is not a linear 3D transform.
    """
    try:
        transform = SimpleITK.ReadTransform(os.fspath(path))
    except RuntimeError:
        raise VolumeError(
            f"{path.name} is not a transform that ITK can read; give a .tfm file."
        ) from None
    if transform.GetDimension() != 3 or not transform.IsLinear():
        raise VolumeError(f"{path.name} is not a linear transform of three dimensions.")
    return matrix_of(transform)


def facts_of(result: FollowUp, *, model: dict[str, Any] | None) -> dict[str, Any]:
    """Return all measures of a follow-up as JSON values.

    Args:
        model: Model that segmented the later scan; None if both segmentations were given.
    """
    return {
        "registration": registration_facts(result.registration),
        "lesions": table_of(result),
        "prompts": {"used": result.prompts_kept, "left_out": result.prompts_left},
        "model": model,
    }
