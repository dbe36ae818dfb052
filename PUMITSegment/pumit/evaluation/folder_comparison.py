"""Compare a folder of predictions with a folder of labels, matched by name."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pumit.errors import VolumeError
from pumit.evaluation.segmentation_metrics import ComparedRow, compared_metrics
from pumit.io.labels.label_file import LabelFile, LabelledSegment, read_label_file
from pumit.io.labels.label_source import OUTSIDE, on_common_grid
from pumit.segmentation import Mask
from pumit.volume import Volume

logger = logging.getLogger(__name__)

FIRST_CHANNEL = "_0000"
LABEL_SUFFIXES = (".seg.nrrd", ".nii.gz", ".nii", ".nrrd", ".nhdr", ".mha", ".mhd", ".png")
PICTURE = ".png"  # a mask of a photograph; beside label maps it is a picture of one


@dataclass(frozen=True)
class CasePair:
    """A prediction and the labels of the same name.

    Attributes:
        case: The name without suffix.
        prediction: File of the prediction; None where there is none.
        labels: File of the labels; None where there is none.
    """

    case: str
    prediction: Path | None
    labels: Path | None


@dataclass(frozen=True)
class ComparedClass:
    """A class that is compared, whatever its values are in the two files.

    Attributes:
        name: Name of the class; it selects a segment in a file that names them.
        true_values: Values that mean it in the labels; a region has several.
        predicted_values: Values that mean it in the predictions.
    """

    name: str
    true_values: tuple[int, ...]
    predicted_values: tuple[int, ...]


def find_pairs(predictions: Path, labels: Path) -> list[CasePair]:
    """All cases of two folders, sorted, those too that only one of them has.

    A prediction of `case_0000`, as nnU-Net calls the image of a case, belongs to the labels `case`.

    Raises:
        VolumeError: If a folder is none or holds no label map, or no name occurs in both.
    """
    found = [_label_files(predictions, "predictions"), _label_files(labels, "labels")]
    of_images = {name: name.removesuffix(FIRST_CHANNEL) for name in found[0]}
    if set(of_images.values()) <= found[1].keys():
        found[0] = {of_images[name]: file for name, file in found[0].items()}
    names = sorted(found[0].keys() | found[1].keys())
    if not found[0].keys() & found[1].keys():
        raise VolumeError(
            f"No prediction has the same name as its labels, for example {min(found[0])!r} and "
            f"{min(found[1])!r}; rename the files of one folder."
        )
    return [CasePair(name, found[0].get(name), found[1].get(name)) for name in names]


def pair_of_files(prediction: Path, labels: Path) -> CasePair:
    """Two files as a case, whatever they are called; it has the name of the labels."""
    suffix = next((s for s in LABEL_SUFFIXES if labels.name.lower().endswith(s)), labels.suffix)
    return CasePair(labels.name[: len(labels.name) - len(suffix)], prediction, labels)


@dataclass(frozen=True, eq=False)
class ComparedMasks:
    """A class in both files.

    Attributes:
        prediction: Where the prediction has it, (D, H, W).
        truth: Where the labels have it.
        grid: Volume with the grid of both.
    """

    label: str
    prediction: Mask
    truth: Mask
    grid: Volume


def row_of(masks: ComparedMasks, case: str, tolerance_mm: float) -> ComparedRow:
    """Metrics of a class.

    Args:
        tolerance_mm: Tolerance of the normalised surface distance, mm.
    """
    return compared_metrics(
        masks.prediction,
        masks.truth,
        masks.grid.spacing_mm,
        tolerance_mm=tolerance_mm,
        case=case,
        label=masks.label,
    )


def compared_masks(
    pair: CasePair, classes: Sequence[ComparedClass] = (), *, ignored: int | None = None
) -> Iterator[ComparedMasks]:
    """Masks of a case, two for each class that its labels or its prediction hold.

    Classes are matched by name where both files name them, else by value; a name, where only one
    file has it, is that class's.

    Args:
        classes: Classes to compare, with the values that mean them, such as regions that overlap; a
            file that names one of them is read by name. Empty for what the files hold.
        ignored: Value of the labels for what is unknown, which counts for nothing.

    Raises:
        VolumeError: If a file is missing or cannot be read, the two are on different grids, or
            two classes of one file cannot be distinguished.
    """
    if pair.prediction is None or pair.labels is None:
        raise VolumeError(
            "The case has no prediction." if pair.labels else "The case has no labels."
        )
    truth = read_label_file(pair.labels)
    # As labels of a scan: voxels at the same places are the same, however they are stored.
    prediction, truth = on_common_grid(read_label_file(pair.prediction), truth)
    for doubt in prediction.doubts:
        if OUTSIDE in doubt:
            raise VolumeError(
                f"In the prediction, {doubt} (the grid of the labels); resample the prediction."
            )
        if doubt != prediction.unreviewed:  # which a prediction may well be
            logger.warning("Remark on a prediction: %s.", doubt)
    if truth.unreviewed:
        logger.warning("Labels of a case are %s: they are not ground truth yet.", truth.unreviewed)
    if classes:
        predictions = _masks(prediction, {c.name: c.predicted_values for c in classes})
        truths = _masks(truth, {c.name: c.true_values for c in classes})
        unknown = None if ignored is None else truth.volume.array == ignored
        for one, p_mask, t_mask in zip(classes, predictions, truths, strict=True):
            if unknown is not None:
                p_mask = p_mask & ~unknown
            yield ComparedMasks(one.name, p_mask, t_mask, truth.volume)
        return
    by_name = prediction.is_named and truth.is_named
    predicted, true = _by_key(prediction, by_name), _by_key(truth, by_name)
    nothing = np.zeros(truth.volume.shape, dtype=bool)
    for key in sorted(true.keys() | predicted.keys()):
        p, t = predicted.get(key), true.get(key)
        yield ComparedMasks(
            (t.name if t else "") or (p.name if p else "") or str(key),
            nothing if p is None else prediction.mask(p),
            nothing if t is None else truth.mask(t),
            truth.volume,
        )


def _masks(file: LabelFile, classes: Mapping[str, Sequence[int]]) -> Iterator[Mask]:
    """Each class of a file: the segment of its name; where no name is known, of its values."""
    names = {segment.name.casefold() for segment in file.segments}
    by_name = not names.isdisjoint(name.casefold() for name in classes)
    for name, values in classes.items():
        mask = np.zeros(file.volume.shape, dtype=bool)
        for segment in file.segments:
            if segment.name.casefold() == name.casefold() if by_name else segment.value in values:
                mask |= file.mask(segment)
        yield mask


def _by_key(file: LabelFile, by_name: bool) -> dict[int | str, LabelledSegment]:
    keys = [segment.name if by_name else segment.value for segment in file.segments]
    key, count = Counter(keys).most_common(1)[0] if keys else ("", 0)
    if count > 1:
        raise VolumeError(
            f"Several segments have the {'name' if by_name else 'value'} {key!r}; they cannot be "
            "distinguished: rename them, or compare two .seg.nrrd files."
        )
    return dict(zip(keys, file.segments, strict=True))


def _label_files(folder: Path, what: str) -> dict[str, Path]:
    if not folder.is_dir():
        raise VolumeError(f"There is no folder {folder.name!r} of {what}; check the path.")
    found: dict[str, Path] = {}
    # Pictures come last, and count where nothing else does.
    for path in sorted(folder.iterdir(), key=lambda p: (p.suffix.lower() == PICTURE, p)):
        if path.suffix.lower() == PICTURE and any(
            p.suffix.lower() != PICTURE for p in found.values()
        ):
            continue
        suffix = next((s for s in LABEL_SUFFIXES if path.name.lower().endswith(s)), None)
        if suffix is None or path.name.startswith(".") or not path.is_file():
            continue
        name = path.name[: -len(suffix)]
        if name in found:
            raise VolumeError(
                f"{found[name].name!r} and {path.name!r} are both {what} of one case; remove one."
            )
        found[name] = path
    if not found:
        raise VolumeError(
            f"The folder {folder.name!r} of {what} holds no {', '.join(LABEL_SUFFIXES)} file."
        )
    return found
