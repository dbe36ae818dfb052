"""How far the model's estimates of its own IoU are right, and the knots that read them better.

Run by hand. Answers after one, three and five clicks of the simulated user, and to one box:

    python Testing/benchmarks/accuracy/bench_calibration.py --cases FOLDER --fit OUT.safetensors

fits the knots on generated scans and on those cases that the model's recipe says it was trained
on, tells their error by cross-validation over scans, and writes the checkpoint with them.
`--measure CASE,CASE` also measures cases that are never fitted. A case is a folder in FOLDER with
`image.nii.gz` and `label.nii.gz`. Nothing here is a test.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pumit.evaluation.simulated_user import box_score, click_until, labels_on, targets_of
from pumit.inference.interactive.segmenter import Segmenter, load_segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.models.card import Calibration, calibration_of
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.models.index import file_sha256, find_model
from pumit.training.synthesis.scene import draw_scene
from pumit.volume import PLANAR_SLICE_SPACING_MM, Volume
from scipy.optimize import isotonic_regression

CLICKS = (1, 3, 5)
KNOTS = 7
BINS = 8
# A generated scan is larger than one field, as real ones are.
SIZE = 80
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One answer.

    Attributes:
        scan: Which scan it is on.
        after: `box`, or the number of clicks.
        estimate: What the model says its IoU is.
        iou: What it is.
    """

    scan: str
    after: str
    estimate: float
    iou: float


class NotingSession(InteractiveSession):
    """A session that notes the estimate of every answer."""

    noted: list[float]

    def predict(self, *args: Any, **kwargs: Any) -> npt.NDArray[np.bool_]:
        """Answer the prompts of a segment."""
        mask = super().predict(*args, **kwargs)
        self.noted.append(self.estimated_iou())
        return mask


def iou_of(dice: float) -> float:
    return dice / (2 - dice)


def answers(segmenter: Segmenter, scan: str, volume: Volume, targets: list[Any]) -> Iterator[Row]:
    """The answers to the simulated user on one scan."""
    session = NotingSession(segmenter)
    session.set_volume(volume)
    for target in targets:
        session.reset()
        session.noted = []
        dice = box_score(session, target)
        yield Row(scan, "box", session.noted[0], iou_of(dice))
        session.reset()
        session.noted = []
        scores, _ = click_until(session, target, max(CLICKS))
        for count in CLICKS:
            if count <= len(session.noted):
                yield Row(scan, str(count), session.noted[count - 1], iou_of(scores[count - 1]))


def on_cases(segmenter: Segmenter, folder: Path, names: list[str]) -> Iterator[Row]:
    for name in names:
        volume = Volume.read(folder / name / "image.nii.gz")
        labels = labels_on(volume, Volume.read(folder / name / "label.nii.gz"))
        targets = [labels == label for label in targets_of(labels, 2)]
        yield from answers(segmenter, name, volume, targets)


def on_generated(segmenter: Segmenter, count: int, seed: int) -> Iterator[Row]:
    for i in range(count):
        generator = torch.Generator().manual_seed(seed + i)
        da0 = (0, 1, 2, 2, 3, 5)[i % 6]
        scene = draw_scene(da0, SIZE, generator)
        slices_mm = PLANAR_SLICE_SPACING_MM if da0 == 5 else scene.slice_ratio
        volume = Volume(scene.image.numpy(), (slices_mm, 1.0, 1.0))
        order = torch.randperm(len(scene.targets), generator=generator)[:2]
        targets = [scene.targets[int(k)].numpy() for k in order]
        yield from answers(segmenter, f"generated {i}", volume, targets)


def fit(rows: list[Row]) -> Calibration:
    """Knots at means of equally many answers, made to rise by isotonic regression."""
    ordered = sorted(rows, key=lambda row: row.estimate)
    parts = np.array_split(np.arange(len(ordered)), KNOTS)
    x = np.array([np.mean([ordered[i].estimate for i in part]) for part in parts])
    y = np.array([np.mean([ordered[i].iou for i in part]) for part in parts])
    rising = np.asarray(isotonic_regression(y).x).clip(0, 1)
    return Calibration(
        tuple(np.round(x, 4).tolist()), tuple(np.round(rising, 4).tolist()), answers=len(rows)
    )


def cross_validated(rows: list[Row], folds: int = 5) -> list[Row]:
    """The rows with the estimates as read by knots that were fitted on other scans."""
    scans = sorted({row.scan for row in rows})
    read = []
    for fold in range(folds):
        own = set(scans[fold::folds])
        calibration = fit([row for row in rows if row.scan not in own])
        read += [
            replace(row, estimate=calibration(row.estimate)) for row in rows if row.scan in own
        ]
    return read


def table(rows: list[Row]) -> list[tuple[int, float, float, float]]:
    """Count, mean estimate, mean and standard deviation of the IoU in bins of equal count."""
    ordered = sorted(rows, key=lambda row: row.estimate)
    out = []
    for part in np.array_split(np.arange(len(ordered)), min(BINS, len(ordered))):
        iou = np.array([ordered[i].iou for i in part])
        estimate = float(np.mean([ordered[i].estimate for i in part]))
        out.append((len(part), estimate, float(iou.mean()), float(iou.std())))
    return out


def error_of(rows: list[Row]) -> float:
    """Expected calibration error: the mean gap of the bins, each by its count."""
    return sum(n * abs(x - y) for n, x, y, _ in table(rows)) / len(rows)


def report(title: str, rows: list[Row]) -> None:
    """Print correlation, error and bins."""
    if len(rows) < BINS:
        return
    print(f"\n{title}: {len(rows)} answers on {len({row.scan for row in rows})} scans")
    print(f"  {'after':<8}{'n':>5}{'estimate':>10}{'IoU':>8}{'r':>7}{'ECE':>7}")
    for after in ("box", *map(str, CLICKS), "all"):
        part = [row for row in rows if after in (row.after, "all")]
        x, y = (np.array([getattr(row, name) for row in part]) for name in ("estimate", "iou"))
        r = float(np.corrcoef(x, y)[0, 1])
        print(
            f"  {after:<8}{len(part):>5}{x.mean():>10.3f}{y.mean():>8.3f}{r:>7.2f}"
            f"{error_of(part):>7.3f}"
        )
    print(f"  {'bin':<8}{'n':>5}{'estimate':>10}{'IoU':>8}{'sd':>7}")
    for i, (n, x, y, sd) in enumerate(table(rows)):
        print(f"  {i + 1:<8}{n:>5}{x:>10.3f}{y:>8.3f}{sd:>7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default", help="name of the index, or a checkpoint")
    parser.add_argument("--cases", type=Path, help="folder of labelled cases")
    parser.add_argument("--generated", type=int, default=24, help="how many generated scans")
    parser.add_argument("--seed", type=int, default=90_000, help="of the generated scans")
    parser.add_argument("--measure", default="", help="cases that are never fitted, with commas")
    parser.add_argument("--fit", type=Path, metavar="OUT", help="write the checkpoint with knots")
    args = parser.parse_args()
    segmenter = load_segmenter(args.model, device="cpu")
    present = calibration_of(segmenter.recipe)
    segmenter.recipe.pop("calibration", None)  # what is measured is the network's own estimate
    trained = segmenter.recipe.get("training", {}).get("real_cases", [])
    generated = list(on_generated(segmenter, args.generated, args.seed))
    real = list(on_cases(segmenter, args.cases, trained)) if args.cases else []
    report("generated scans, the network's own estimate", generated)
    report("real scans it was trained on, the network's own estimate", real)
    calibration = present
    if args.fit:
        rows = generated + real
        read = cross_validated(rows)
        report("both, read by knots of other scans", read)
        on_real = [row for row in read if not row.scan.startswith("generated")]
        report("of these the real scans", on_real)
        told = on_real or read  # generated scans are not what a person looks at
        calibration = replace(
            fit(rows),
            ece=round(error_of([row for row in told if row.after != "box"]), 4),
            ece_box=round(error_of([row for row in told if row.after == "box"]), 4),
        )
        checkpoint = load_checkpoint(find_model(args.model))
        entry = {**vars(calibration)}
        save_checkpoint(args.fit, checkpoint.state, {**checkpoint.recipe, "calibration": entry})
        print(f"\ncalibration: {entry}\n{args.fit.name}: sha256 {file_sha256(args.fit)}")
    if args.measure:
        rows = list(on_cases(segmenter, args.cases, args.measure.split(",")))
        report("scans that nothing was fitted on, the network's own estimate", rows)
        if calibration is not None:
            told = [replace(row, estimate=calibration(row.estimate)) for row in rows]
            report("the same, calibrated", told)


if __name__ == "__main__":
    main()
