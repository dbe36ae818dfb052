"""Reading of scans, and of their labels from any supported source onto the scan's grid."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import AmbiguousSeriesError, OtherPatientError, VolumeError
from pumit.geometry import is_sheared
from pumit.io.dicom.files import first_value, read_header, stated
from pumit.io.file_part import split_part
from pumit.io.labels.grid_match import Placement, place, put, same_grid
from pumit.io.labels.label_file import (
    LabelFile,
    LabelledSegment,
    made_by_sentence,
    named_segments,
    read_label_file,
    tabled_segments,
)
from pumit.io.labels.label_objects import (
    LabelObject,
    label_object,
    open_label_object,
    require_all_parts,
)
from pumit.io.read import read_grid
from pumit.io.slicer_bundle import find_node, is_bundle, unpacked
from pumit.volume import Volume

OUTSIDE = "labelled voxels are outside of the image"
OTHER_SERIES = "refers to another series than the image"
OTHER_FRAME = "is in another frame of reference than the image"


def read_scan(files: Sequence[Path], label: Path | None = None) -> Volume:
    """Read a scan: one file, folder or zip, or one for each channel.

    Args:
        files: Each may name a part: `folder#SeriesInstanceUID`, `scene.mrb#NodeName`.
        label: Its labels, whose referenced series is chosen if a folder holds several.

    Raises:
        VolumeError: If one cannot be read, or is on another grid than the first.
    """
    refuse_other_transforms(files if label is None else [*files, label])
    return joined_channels([path.name for path in files], [_read_one(p, label) for p in files])


def refuse_other_transforms(paths: Sequence[Path]) -> None:
    """Refuse nodes under different transforms, which their stored geometry does not include.

    Raises:
        VolumeError: If there are some; a file that is no node has no transform.
    """
    split = [split_part(path) for path in paths]
    transforms = {
        find_node(file, part).transform if part and is_bundle(file) else "" for file, part in split
    }
    if len(transforms) > 1:
        raise VolumeError("its nodes are under different transforms; harden them in Slicer.")


def _read_one(path: Path, label: Path | None) -> Volume:
    file, part = split_part(path)
    if is_bundle(file):
        if not part:
            raise VolumeError(f"Name the volume of the scene: {file.name}#NodeName.")
        node = find_node(file, part)
        with unpacked(file, node) as unpacked_file:
            return Volume.read(unpacked_file)
    try:
        return Volume.read(file, series=part or None)
    except AmbiguousSeriesError as error:
        found = None if label is None else label_object(label)
        series = {uid for uid, _ in error.series}
        if found is None or found.series not in series:
            text = str(error).removesuffix(".")
            raise VolumeError(f"{text}; write it as {file.name}#IDENTIFIER.") from None
        return Volume.read(file, series=found.series)


def joined_channels(names: Sequence[str], volumes: Sequence[Volume]) -> Volume:
    """Concatenate the channels of volumes, (C, D, H, W); return a single volume unchanged.

    Raises:
        VolumeError: If a volume is on another grid than the first, half a voxel or more away.
    """
    first = volumes[0]
    if len(volumes) == 1:
        return first
    for name, other in zip(names[1:], volumes[1:], strict=True):
        found = same_grid(other, first, name)
        if found.order != (0, 1, 2) or any(found.flipped):
            raise VolumeError(
                f"{name} has its axes in another order or direction than the image; save both with "
                "the same axes."
            )
    arrays = [v.array if v.array.ndim == 4 else v.array[None] for v in volumes]
    return replace(first, array=np.concatenate(arrays), source=None)


@contextmanager
def _opened(path: Path) -> Iterator[Path | LabelObject]:
    """Yield what a path names: a DICOM object, or a file, which is temporary for a bundle's node.

    Raises:
        VolumeError: If it is damaged, or a folder, zip or bundle does not tell which one is meant.
    """
    file, part = split_part(path)
    if not is_bundle(file):
        yield label_object(path) or file
    elif not part:
        raise VolumeError(f"Name the segmentation of the scene: {file.name}#NodeName.")
    else:
        with unpacked(file, find_node(file, part)) as unpacked_file:
            yield unpacked_file


def read_labels(path: Path, image: Volume, *, patients: Collection[str] = ()) -> LabelFile:
    """Read a label map, `.seg.nrrd`, DICOM-SEG, RTSTRUCT or a node of a Slicer bundle.

    Args:
        path: A file; a folder or zip with one DICOM-SEG or RTSTRUCT; or `scene.mrb#Name`.
        image: The scan whose grid the labels get. Labels are not interpolated: their voxels must
            coincide with the scan's. A plain label map must cover the scan; a file with named
            segments may be cropped.
        patients: Further identifiers of the image's patient, which are only a doubt.

    Raises:
        OtherPatientError: If it is of another patient, as DICOM states.
        VolumeError: If it cannot be read, or is on another grid than the scan.
    """
    with _opened(path) as found:
        if isinstance(found, LabelObject):
            return _read_object(found, image, patients)
        return on_grid(read_label_file(found), image)


def read_label_map(path: Path) -> LabelFile | None:
    """Read a label map, `.seg.nrrd` or a node of a Slicer bundle on its own grid.

    None for DICOM-SEG and RTSTRUCT, which are read on the grid of their scan.

    Raises:
        VolumeError: If it cannot be read.
    """
    with _opened(path) as found:
        return None if isinstance(found, LabelObject) else read_label_file(found)


def read_all_labels(paths: Sequence[Path], image: Volume) -> LabelFile:
    """Read several label files of one scan as one; see `read_labels`.

    Raises:
        VolumeError: If one cannot be read, or one of several has no segment names.
    """
    files = [read_labels(path, image) for path in paths]
    if len(files) == 1:
        return files[0]
    layers: list[npt.NDArray[Any]] = []
    segments: list[LabelledSegment] = []
    for path, file in zip(paths, files, strict=True):
        if not file.is_named:
            raise VolumeError(f"{path.name} names no segments; several labels need names.")
        first = sum(len(layer) for layer in layers)
        layers.append(file.volume.array.reshape(-1, *image.shape))
        segments += [replace(s, layer=s.layer + first) for s in file.segments]
    volume = replace(image, array=np.concatenate(layers), source=None)
    return LabelFile(volume, tuple(segments), tuple(d for f in files for d in f.doubts))


def _read_object(found: LabelObject, image: Volume, others: Collection[str]) -> LabelFile:
    source = image.source
    doubts = []
    if source and found.series != source.series_instance_uid:
        patients = stated(found.patient), read_header(source.files[0]).patient
        if all(patients) and patients[0] != patients[1]:
            if patients[0] not in others:
                raise OtherPatientError(
                    f"The {found.kind} is of another patient than the image, as DICOM states; give "
                    "one of this scan. If they are the same person, save it as .seg.nrrd in Slicer."
                )
            doubts.append(f"{found.kind}: states another patient than the image")
        is_of_others = found.instances and found.instances.isdisjoint(source.instances)
        if found.series or (source.instances and is_of_others):
            # Scans with one frame of reference may share a segmentation, so this is only a doubt.
            doubts.append(f"{found.kind}: {OTHER_SERIES}")
    # An RTSTRUCT may name several frames of reference.
    if source and found.kind == "DICOM-SEG":
        frame = ""
        with suppress(VolumeError):  # the scan's files may have been moved since
            header = read_header(source.files[0]).header
            frame = str(first_value(header, "FrameOfReferenceUID") or "")
        if frame and found.frame_of_reference not in ("", frame):
            doubts.append(f"{found.kind}: {OTHER_FRAME}")
    if incomplete := require_all_parts(found):
        doubts.append(incomplete)
    with open_label_object(found) as files:
        if found.kind == "DICOM-SEG":
            from pumit.io.labels.seg_labels import read_dicom_seg

            labels = read_dicom_seg(files, image)
        else:
            from pumit.io.labels.rt_struct import read_rt_struct

            labels = read_rt_struct(files[0], image)
    return replace(labels, doubts=(*labels.doubts, *doubts))


def on_grid(labels: LabelFile, image: Volume) -> LabelFile:
    """Move labels to the grid of a scan or of another label map; see `read_labels`.

    Raises:
        VolumeError: If voxels do not coincide, or a plain label map does not cover the scan.
    """
    what, placement = _placed(labels.volume, image, is_named=labels.is_named)
    array, lost = put(labels.volume.array, placement, image.shape)
    volume = replace(image, array=array, source=None)
    doubts = [*labels.doubts]
    if lost:
        doubts.append(f"{lost} {OUTSIDE}")
    if placement.doubt:
        doubts.append(f"the grid of {what} {placement.doubt}")
    return LabelFile(volume, labels.segments, tuple(doubts))


def _placed(labels: Volume, image: Volume, *, is_named: bool) -> tuple[str, Placement]:
    """Return how messages call labels, and their place on an image's grid."""
    if is_named:
        return "the segmentation", place(labels, image, "the segmentation")
    return "the label map", same_grid(labels, image, "the label map")


def require_grid(paths: Sequence[Path], scan: Path) -> None:
    """Refuse label files on another grid than their scan, as far as the headers tell.

    Raises:
        VolumeError: If a label is off the grid, or its header cannot be read.
    """
    try:
        image = _grid_of(scan)
    except VolumeError:  # reading the scan reports it
        return
    grids = [] if image is None else [(path, _grid_of(path)) for path in paths]
    for path, grid in grids:
        if image is not None and grid is not None:
            _placed(grid, image, is_named=bool(_named_in(path) or tabled_segments(path)))


def _grid_of(path: Path) -> Volume | None:
    """Return the grid of a file by its header; None if that does not tell."""
    file, part = split_part(path)
    grid = None if part or not file.is_file() else read_grid(file)
    if grid is None or is_sheared(grid.steps_mm):  # which is resampled when it is read
        return None
    return Volume.from_steps(grid.array, grid.steps_mm, grid.origin_lps)


def on_common_grid(labels: LabelFile, other: LabelFile) -> tuple[LabelFile, LabelFile]:
    """Move two label files to one grid; a file with named segments may be cropped to them.

    Args:
        other: Labels whose grid is used, extended to cover `labels` if its segments are named.

    Raises:
        VolumeError: If voxels do not coincide.
    """
    if other.is_named:
        placement = place(labels.volume, other.volume, "the segmentation")
        low = np.minimum(placement.start, 0)
        high = np.maximum(np.add(placement.start, placement.shape), other.volume.shape)
        other = _extended(other, low, high)
    return on_grid(labels, other.volume), other


def _extended(
    labels: LabelFile, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]
) -> LabelFile:
    """Pad labels with background to the index range from `low` to below `high`, (d, h, w)."""
    volume = labels.volume
    more = [(int(-a), int(b - n)) for a, b, n in zip(low, high, volume.shape, strict=True)]
    if not any(map(any, more)):
        return labels
    leading = [(0, 0)] * (volume.array.ndim - 3)
    left, posterior, superior = (float(v) for v in volume.index_to_world(low))
    array = np.pad(volume.array, [*leading, *more])
    grid = replace(volume, array=array, origin_lps=(left, posterior, superior))
    return replace(labels, volume=grid)


def unreviewed_of(paths: Sequence[Path]) -> str:
    """Say why labels are not ground truth for training or validation.

    Empty if nothing says so, or if a file cannot be read, which reading the labels reports.
    """
    for path in paths:
        try:
            with _opened(path) as found:
                sentences = [s.unreviewed for s in _named_in(found)]
                file = found.path if isinstance(found, LabelObject) else found
                sentences.append(made_by_sentence(file))
        except (VolumeError, OSError):
            continue
        if any(sentences):
            return next(filter(None, sentences))
    return ""


def announced_segments(path: Path) -> tuple[LabelledSegment, ...]:
    """List the segments named in a label file's header; without names, one per label value.

    Raises:
        VolumeError: If it cannot be read.
    """
    with _opened(path) as found:
        named = _named_in(found)
        if named or isinstance(found, LabelObject):
            return named
        return read_label_file(found).segments


def _named_in(found: Path | LabelObject) -> tuple[LabelledSegment, ...]:
    """Return the segments that a DICOM object or the header of a NRRD file names."""
    if isinstance(found, LabelObject):
        return found.segments
    return named_segments(found) if found.name.lower().endswith(".nrrd") else ()
