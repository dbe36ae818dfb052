"""Comparison of predictions with labels, matched by file name, and their largest differences."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.errors import VolumeError
from pumit.geometry import Triple, slice_axis
from pumit.io.labels.label_file import IN_PROGRESS, LabelFile, LabelledSegment
from pumit.io.labels.label_objects import label_object
from pumit.io.labels.label_source import (
    on_common_grid,
    on_grid,
    read_label_map,
    read_labels,
    read_scan,
    refuse_other_transforms,
)
from pumit.io.scans import suffix_of
from pumit.segmentation import UNKNOWN_NAMES, Mask, plain_name
from pumit.volume import Volume

logger = logging.getLogger(__name__)

FIRST_CHANNEL = "_0000"
LABEL_SUFFIXES = (
    *(".seg.nrrd", ".nii.gz", ".nii", ".nrrd", ".nhdr", ".mha", ".mhd", ".png"),
    *(".labelmap.dcm", ".rtstruct.dcm", ".seg.dcm", ".dcm"),
)
APART = 2.0  # radius around a place, in units of its depth, in which no other is reported
LEAST_APART_MM = 5.0
PICTURE = ".png"  # a mask of a photograph; next to label maps it is only a preview
DICOM = ".dcm"
OUTSIDE = "outside of the image"  # in the doubts of all readers


@dataclass(frozen=True)
class CasePair:
    """Prediction and labels of a case."""

    case: str
    prediction: Path | None
    labels: Path | None


@dataclass(frozen=True)
class ComparedClass:
    """A class to compare, with its label values in both files.

    Attributes:
        name: Name of the class; selects a segment in files with segment names.
        true_values: Its values in the labels; a region has several.
    """

    name: str
    true_values: tuple[int, ...]
    predicted_values: tuple[int, ...]


def find_pairs(predictions: Path, labels: Path) -> list[CasePair]:
    """Return all cases of two folders, sorted, including those in only one of them.

    A prediction `case_0000`, nnU-Net's name for the image of a case, matches the labels `case`.

    Raises:
        VolumeError: If a folder does not exist or has no label map, or no name occurs in both.
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
    """Pair two files, whatever their names; the case gets the name of the labels."""
    suffix = suffix_of(labels, LABEL_SUFFIXES) or labels.suffix
    return CasePair(labels.name[: len(labels.name) - len(suffix)], prediction, labels)


@dataclass(frozen=True, eq=False)
class ComparedMasks:
    """Masks, (D, H, W), of a class in both files.

    Attributes:
        is_by_value: Whether one of several classes was matched by value, since only one file has
            names.
    """

    label: str
    prediction: Mask
    truth: Mask
    grid: Volume
    is_by_value: bool = False


def compared_masks(
    pair: CasePair,
    classes: Sequence[ComparedClass] = (),
    *,
    ignored: int | None = None,
    scan: Path | None = None,
) -> Iterator[ComparedMasks]:
    """Yield both masks of each class in the labels or the prediction of a case.

    Classes are matched by name if both files have names, else by value. If only one file has a
    name, it is used for the class. Segments that share a value in several layers are numbered in
    their order, as in Slicer's label maps.

    Args:
        classes: Classes to compare with their values, such as overlapping regions. A file that
            names one of them is read by name. Empty for all classes in the files.
        ignored: Label value of unknown voxels, which are excluded, like segments named "ignore".
        scan: The scan, or a folder of scans that DICOM-SEG and RTSTRUCT refer to. Its grid is used;
            otherwise, or if both are label maps, that of a label map.

    Raises:
        VolumeError: If a file is missing or cannot be read, the grids differ, no grid is known, or
            two classes of one file cannot be distinguished.
    """
    if pair.prediction is None or pair.labels is None:
        raise VolumeError(
            "The case has no prediction." if pair.labels else "The case has no labels."
        )
    prediction, truth, are_maps = _read_both(pair.prediction, pair.labels, scan)
    for file, what, other in (prediction, "prediction", "labels"), (truth, "labels", "prediction"):
        if outside := [doubt for doubt in file.doubts if OUTSIDE in doubt]:
            grid = "scan" if scan and not are_maps else other
            more = "" if scan or are_maps else ", or give the scan with --scan"
            raise VolumeError(
                f"In the {what}, {outside[0]} (the grid of the {grid}); resample the {what}{more}."
            )
    for doubt in prediction.doubts:
        if doubt != prediction.unreviewed:  # normal for a prediction
            logger.warning("Remark on a prediction: %s.", doubt)
    for doubt in truth.doubts:
        if doubt not in (truth.unreviewed, IN_PROGRESS):
            logger.warning("Remark on the labels of a case: %s.", doubt)
    if truth.unreviewed:
        logger.warning("Labels of a case are %s: they are not ground truth yet.", truth.unreviewed)
    unknown = [truth.mask(s) for s in truth.segments if _is_unknown(s, ignored)]
    pairs: Iterable[tuple[str, Mask, Mask]]
    fewest, most = sorted((len(prediction.segments), len(truth.segments)))
    is_unlike = fewest > 0 and most > 1 and prediction.is_named != truth.is_named
    is_by_value = is_unlike and not classes
    if classes:
        predictions = _masks(prediction, {c.name: c.predicted_values for c in classes})
        truths = _masks(truth, {c.name: c.true_values for c in classes})
        pairs = zip((c.name for c in classes), predictions, truths, strict=True)
    else:
        pairs = _masks_of_all(prediction, truth, ignored)
    for name, p_mask, t_mask in pairs:
        for mask in unknown:  # which segments may overlap
            p_mask, t_mask = p_mask & ~mask, t_mask & ~mask
        yield ComparedMasks(name, p_mask, t_mask, truth.volume, is_by_value)


def _read_both(
    prediction: Path, labels: Path, scan: Path | None
) -> tuple[LabelFile, LabelFile, bool]:
    """Read prediction and labels on one grid; return if both are label maps, which need no scan."""
    paths = (prediction, labels)
    refuse_other_transforms(paths)
    stored = [read_label_map(path) for path in paths]
    maps = [file for file in stored if file is not None]
    if len(maps) == 2:
        # Match voxels by position, even if the files store their axes differently.
        try:
            return *on_common_grid(*maps), True
        except VolumeError as error:
            text = re.sub("the (label map|segmentation) ", "the prediction ", str(error))
            raise VolumeError(
                text.replace("the image's", "the labels'").replace("the image", "the labels")
            ) from None
    if scan is not None:
        dicom = (path for path, file in zip(paths, stored, strict=True) if file is None)
        image = read_scan([scan], next(dicom, None))
    elif maps:
        image = maps[0].volume
    else:
        raise VolumeError(
            "DICOM-SEG and RTSTRUCT are read on the grid of a scan; give their scan with --scan."
        )
    one, other = (
        read_labels(path, image) if file is None else on_grid(file, image)
        for path, file in zip(paths, stored, strict=True)
    )
    return one, other, False


def _masks_of_all(
    prediction: LabelFile, truth: LabelFile, ignored: int | None
) -> Iterator[tuple[str, Mask, Mask]]:
    by_name = prediction.is_named and truth.is_named
    predicted, true = _by_key(prediction, by_name), _by_key(truth, by_name)
    nothing = np.zeros(truth.volume.shape, dtype=bool)
    for key in sorted(true.keys() | predicted.keys()):
        p, t = predicted.get(key), true.get(key)
        if any(_is_unknown(s, ignored) for s in [t or p] if s):
            continue
        p_mask = prediction.mask(p) if p else nothing
        t_mask = truth.mask(t) if t else nothing
        yield (t.name if t else "") or (p.name if p else "") or str(key), p_mask, t_mask


def _is_unknown(segment: LabelledSegment, ignored: int | None) -> bool:
    return plain_name(segment.name) in UNKNOWN_NAMES or segment.value == ignored


def _masks(file: LabelFile, classes: Mapping[str, Sequence[int]]) -> Iterator[Mask]:
    """Yield the mask of each class: by segment name, or by value if no name is known."""
    names = [plain_name(segment.name) for segment in file.segments]
    by_name = not set(names).isdisjoint(map(plain_name, classes))
    for name, values in classes.items():
        mask = np.zeros(file.volume.shape, dtype=bool)
        for segment, known in zip(file.segments, names, strict=True):
            if known == plain_name(name) if by_name else segment.value in values:
                mask |= file.mask(segment)
        yield mask


def _by_key(file: LabelFile, by_name: bool) -> dict[int | str, LabelledSegment]:
    keys = [plain_name(segment.name) if by_name else segment.value for segment in file.segments]
    if not by_name and file.is_named and len(set(keys)) < len(keys):
        keys = list(range(1, len(keys) + 1))
    key, count = Counter(keys).most_common(1)[0] if keys else ("", 0)
    if count > 1:
        raise VolumeError(
            f"Several segments have the {'name' if by_name else 'value'} {key!r} and cannot be "
            "distinguished; give each its own."
        )
    return dict(zip(keys, file.segments, strict=True))


def _label_files(folder: Path, what: str) -> dict[str, Path]:
    if not folder.is_dir():
        raise VolumeError(f"There is no folder {folder.name!r} of {what}; check the path.")
    found: dict[str, Path] = {}
    # Pictures come last, and are used only if there is nothing else; DICOM after the label maps.
    last = {DICOM: 1, PICTURE: 2}
    for path in sorted(folder.iterdir(), key=lambda p: (last.get(p.suffix.lower(), 0), p)):
        if path.suffix.lower() == PICTURE and any(
            p.suffix.lower() != PICTURE for p in found.values()
        ):
            continue
        suffix = suffix_of(path, LABEL_SUFFIXES)
        if suffix is None or path.name.startswith(".") or not path.is_file():
            continue
        name = path.name[: -len(suffix)]
        if name in found and found[name].suffix.lower() != DICOM == path.suffix.lower():
            continue
        if path.suffix.lower() == DICOM and not _may_have_labels(path):
            continue
        if name in found:
            raise VolumeError(
                f"{found[name].name!r} and {path.name!r} are both {what} of one case; remove one."
            )
        found[name] = path
    if not found:
        raise VolumeError(
            f"The folder {folder.name!r} of {what} holds no labels ({', '.join(LABEL_SUFFIXES)})."
        )
    return found


def _may_have_labels(path: Path) -> bool:
    """Return whether a DICOM file has labels, or is damaged, which its case reports."""
    try:
        return label_object(path) is not None
    except VolumeError:
        return True


@dataclass(frozen=True)
class LargeDifference:
    """A place where two segmentations differ.

    Attributes:
        is_missing: Whether the prediction is too small here; otherwise it is too large.
        depth_mm: Distance from the place to where both agree, mm.
    """

    case: str
    label: str
    is_missing: bool
    depth_mm: float
    position_ras: Triple


def differences(
    prediction: Mask, truth: Mask, grid: Volume, *, count: int, case: str = "", label: str = ""
) -> list[LargeDifference]:
    """Find the places deepest inside the differences of two masks, the deepest first.

    Args:
        prediction: bool, (D, H, W).
        truth: bool, of the same shape.
    """
    found = [
        LargeDifference(case, label, is_missing, depth, _ras(grid, index))
        for is_missing, wrong in ((True, truth & ~prediction), (False, prediction & ~truth))
        for depth, index in _deepest(wrong, grid, count)
    ]
    return sorted(found, key=lambda each: -each.depth_mm)[:count]


def _deepest(wrong: Mask, grid: Volume, count: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    boxes = ndimage.find_objects(wrong.astype(np.uint8))
    if not boxes:
        return
    start = np.array([part.start for part in boxes[0]])
    # The faces of a single slice are no border.
    around = [(0, 0) if axis == slice_axis(wrong.shape) else (1, 1) for axis in range(3)]
    padded = np.pad(wrong[boxes[0]], around)
    spacing = np.asarray(grid.spacing_mm)
    depth = ndimage.distance_transform_edt(padded, spacing)
    before = np.array([low for low, _ in around])
    for _ in range(count):
        value = float(depth.max())
        if value <= 0:
            return
        deepest = _middle_of_deepest(depth, value, spacing)
        yield value, tuple(int(i) for i in deepest - before + start)
        radius = max(APART * value, LEAST_APART_MM)
        squares = (
            ((np.arange(n) - i) * s) ** 2
            for n, i, s in zip(depth.shape, deepest, spacing, strict=True)
        )
        z, y, x = squares
        depth[z[:, None, None] + y[:, None] + x <= radius**2] = 0.0


def _middle_of_deepest(
    depth: npt.NDArray[np.float64], value: float, spacing: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    places = np.argwhere(depth >= value * (1 - 1e-6))
    millimetres = places * spacing
    near = np.linalg.norm(millimetres - millimetres[0], axis=1) <= APART * value
    places, millimetres = places[near], millimetres[near]
    gaps = np.linalg.norm(millimetres - millimetres.mean(axis=0), axis=1)
    return np.asarray(places[int(gaps.argmin())])


def _ras(grid: Volume, index: tuple[int, ...]) -> Triple:
    left, posterior, superior = grid.index_to_world(np.asarray(index, dtype=float))
    return (-float(left), -float(posterior), float(superior))
