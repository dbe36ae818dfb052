"""Reader of label maps, with the names of segments if the file holds them."""

import json
import math
import os
import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.geometry import Triple
from pumit.io.parser_errors import muted_stderr, parsing
from pumit.io.read import read_image
from pumit.system.files import file_sha256
from pumit.system.machine import free_bytes
from pumit.system.wording import listed
from pumit.volume import Volume

# ITK's metadata key for a note in any format, and the length limit of NIfTI's `descrip`.
NOTE, NOTE_LENGTH = "ITK_FileNotes", 79
IN_PROGRESS = "marked as in progress"
NEGATIVE = "the label map has values below 0, which count as background"
COLOR_TABLE = "_ColorTable.ctbl"  # how Slicer names the colours of an exported label map
SHOWN_VALUES = 6
SMALL_NUMBERS = 1 << 16  # smaller label values are counted in a table
_BLOCK_VALUES = 1 << 20
_FEW_LAYERS = 4  # added without a memory check


@dataclass(frozen=True)
class LabelledSegment:
    """One segment of a label file.

    Attributes:
        terminology: Slicer's terminology entry; empty if not stated.
        unreviewed: Why it is not ground truth, as `unreviewed_sentence` words it; else empty.
        is_tabled: Whether the name is from the colour table beside a label map.
    """

    value: int
    layer: int = 0
    name: str = ""
    terminology: str = ""
    color_rgb: Triple | None = None
    unreviewed: str = ""
    is_in_progress: bool = False
    is_tabled: bool = False


@dataclass(frozen=True, eq=False)
class LabelFile:
    """Segments on a grid; they may overlap.

    Attributes:
        volume: Label values on the grid, one channel for each layer.
        segments: All segments named in the file, empty ones included; without names, one for each
            value above 0.
    """

    volume: Volume
    segments: tuple[LabelledSegment, ...]
    doubts: tuple[str, ...] = ()

    @property
    def unreviewed(self) -> str:
        """Why the labels are not ground truth; empty if no segment says so."""
        return next((s.unreviewed for s in self.segments if s.unreviewed), "")

    @property
    def is_named(self) -> bool:
        """Whether every segment has a name."""
        return all(segment.name for segment in self.segments)

    def mask(self, segment: LabelledSegment) -> npt.NDArray[np.bool_]:
        """Return the mask of a segment, (D, H, W)."""
        layers = self.volume.array.reshape(-1, *self.volume.shape)
        return np.asarray(layers[segment.layer] == segment.value)


class LabelLayers:
    """Label maps (D, H, W) on one grid, filled segment by segment.

    Args:
        highest: Largest label value; decides between uint8 and uint16.
    """

    def __init__(self, shape: tuple[int, int, int], highest: int) -> None:
        self.shape = shape
        self._dtype: type[Any] = np.uint8 if highest <= np.iinfo(np.uint8).max else np.uint16
        self._layers: list[npt.NDArray[Any]] = []

    def add(self, value: int, mask: npt.NDArray[np.bool_], start: int = 0) -> int:
        """Add a segment to the first layer where it overlaps no other; return the layer's index.

        Args:
            mask: (d, H, W), slices from `start` on.

        Raises:
            VolumeError: If the layers of overlapping segments do not fit in memory.
        """
        part = slice(start, start + len(mask))
        free = (i for i, layer in enumerate(self._layers) if not layer[part][mask].any())
        number = next(free, len(self._layers))
        if number == len(self._layers):
            self._check_memory()
            self._layers.append(np.zeros(self.shape, dtype=self._dtype))
        self._layers[number][part][mask] = value
        return number

    def _check_memory(self) -> None:
        """Refuse another layer if stacking all of them would need more memory than is free."""
        count = len(self._layers) + 1
        size = math.prod(self.shape) * np.dtype(self._dtype).itemsize
        if count > _FEW_LAYERS and (count + 1) * size > free_bytes():
            raise VolumeError(
                f"More than {count - 1} segments overlap, and their {count} label maps of "
                f"{size >> 20} MiB do not fit in memory; export the segments in several files."
            )

    def fill(self, labels: npt.NDArray[Any]) -> None:
        """Add a whole label map (D, H, W) as a new layer."""
        self._layers.append(labels.astype(self._dtype))

    def array(self) -> npt.NDArray[Any]:
        """Return (D, H, W), or (L, D, H, W) for several layers."""
        if not self._layers:
            return np.zeros(self.shape, dtype=self._dtype)
        return self._layers[0] if len(self._layers) == 1 else np.stack(self._layers)


def read_label_file(path: Path) -> LabelFile:
    """Read a NIfTI, NRRD, MetaImage or PNG label map, or `.seg.nrrd` with names and layers.

    A label map takes names and colours from the table that Slicer writes beside it, which must name
    each of its values.

    Raises:
        VolumeError: If the file cannot be read, or does not hold labels.
    """
    volume = _read_volume(path)
    array = volume.array
    if array.dtype.kind == "f" and not np.array_equal(array, np.rint(array)):
        raise VolumeError(
            "The label map has values that are not whole numbers; save it with one whole "
            "number per voxel."
        )
    segments = named_segments(path) if path.name.lower().endswith(".nrrd") else ()
    if not segments:
        if volume.channels > 1:
            raise VolumeError(
                f"The label map has {volume.channels} channels and no segment names; save it "
                "with one channel."
            )
        segments = _segments_of_map(volume, tabled_segments(path))
    if any(segment.layer >= volume.channels for segment in segments):
        raise VolumeError(
            "The file describes a segment on a layer that it does not contain; export it again."
        )
    by_model = made_by_sentence(path)
    if by_model:
        segments = tuple(replace(segment, unreviewed=by_model) for segment in segments)
    has_negative = array.dtype.kind in "if" and array.min() < 0
    return with_review(LabelFile(volume, segments, (NEGATIVE,) if has_negative else ()))


def _segments_of_map(
    volume: Volume, tabled: tuple[LabelledSegment, ...]
) -> tuple[LabelledSegment, ...]:
    """Return the segments of the colour table, or without one, those of the values above 0."""
    values = [int(v) for v in distinct_values(volume.array) if v > 0]
    if not tabled:
        return tuple(map(LabelledSegment, values))
    unnamed = sorted({*values} - {segment.value for segment in tabled})
    if unnamed:
        raise VolumeError(
            "The colour table beside the label map names no segment for the values "
            f"{listed(unnamed, SHOWN_VALUES)}; add them to it, or remove it."
        )
    return tuple(sorted(tabled, key=lambda segment: segment.value))


def with_review(file: LabelFile) -> LabelFile:
    """Add a doubt if the labels are unreviewed or in progress."""
    doubt = file.unreviewed
    if not doubt and any(segment.is_in_progress for segment in file.segments):
        doubt = IN_PROGRESS
    return replace(file, doubts=(doubt, *file.doubts)) if doubt else file


def unreviewed_sentence(kind: str, model: str, status: str) -> str:
    """Say why a segment is not ground truth for training or validation; empty if it may be.

    Args:
        kind: SegmentAlgorithmType: AUTOMATIC, SEMIAUTOMATIC, MANUAL, or empty.
        model: SegmentAlgorithmName; may be empty.
        status: Slicer's segment status: inprogress, flagged, completed, or empty.
    """
    if status == "completed":
        return ""
    # Manual work, with or without a model's help, has its own kinds. "inprogress" does not count:
    # Slicer's Segment Editor sets it on every segment that it changes.
    if kind == "AUTOMATIC" or (model and kind not in ("SEMIAUTOMATIC", "MANUAL")):
        return f"made by {model or 'a model'}, not reviewed"
    return "marked for review, not reviewed" if status == "flagged" else ""


def made_by_sentence(path: Path) -> str:
    """Say that a model made a label file, according to its note or manifest; else empty.

    A file that was changed afterwards has another checksum and counts as reviewed.
    """
    return _noted_sentence(path) or _manifest_sentence(path)


def note_of(labels: npt.NDArray[Any], kind: str, name: str) -> str:
    """Return the header note of a label map made by a model."""
    return f"PUMIT {kind} {_checksum(labels)} {name}"[:NOTE_LENGTH]


def _checksum(labels: npt.NDArray[Any]) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(labels).data):08x}"


def _noted_sentence(path: Path) -> str:
    import SimpleITK

    reader = SimpleITK.ImageFileReader()
    reader.SetFileName(os.fspath(path))
    try:
        with muted_stderr():
            reader.ReadImageInformation()
        note = reader.GetMetaData(NOTE) if reader.HasMetaDataKey(NOTE) else ""
        program, kind, checksum, name = [*note.strip().split(" ", 3), *[""] * 3][:4]
        if program != "PUMIT":
            return ""
        labels = SimpleITK.GetArrayFromImage(reader.Execute())
    except RuntimeError:  # a folder, or damaged: reading the labels reports it
        return ""
    return unreviewed_sentence(kind, name, "") if _checksum(labels) == checksum else ""


def _manifest_sentence(path: Path) -> str:
    suffix = ".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix
    manifest = path.with_name(f"{path.name[: len(path.name) - len(suffix)]}.manifest.json")
    if not manifest.is_file():
        return ""
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        model, expected = content["model"], content["result"]["sha256"]
        kind, name = str(model["kind"]), str(model["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # not our manifest
    return unreviewed_sentence(kind, name, "") if file_sha256(path) == expected else ""


def _read_volume(path: Path) -> Volume:
    from pumit.io.images.picture import is_picture, read_label_picture

    start = b""
    if path.is_file():
        with parsing("label map"), path.open("rb") as stream:
            start = stream.read(16)
    image = read_label_picture(path) if is_picture(start) else read_image(path)
    volume = Volume.from_steps(
        image.array, image.steps_mm, image.origin_lps, image.source, is_label=True
    )
    return replace(volume, path=path.absolute())


def distinct_values(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Do the same as `np.unique`, but much faster for the small integers of label maps."""
    if array.dtype.kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        if low >= 0 and high < SMALL_NUMBERS:
            return np.flatnonzero(count_values(array, high))
    return np.unique(array)


def count_values(array: npt.NDArray[Any], highest: int) -> npt.NDArray[np.int64]:
    """Count the occurrences of each integer from 0 to `highest`."""
    counts = np.zeros(highest + 1, dtype=np.int64)
    # In blocks: bincount converts to 64 bits, eight times the memory of a label map.
    values = array.reshape(-1)
    for start in range(0, len(values), _BLOCK_VALUES):
        counts += np.bincount(values[start : start + _BLOCK_VALUES], minlength=highest + 1)
    return counts


def named_segments(path: Path) -> tuple[LabelledSegment, ...]:
    """List the segments in the header of a `.seg.nrrd` file, in order; empty for another NRRD.

    Raises:
        VolumeError: If the header cannot be read, or a segment has no usable value or layer.
    """
    from pumit.io.images.itk_image import read_header

    with parsing("NRRD file"), muted_stderr():
        reader = read_header(path, "NRRD")
        # ITK passes on the file's bytes.
        stored = {k: reader.GetMetaData(k) for k in reader.GetMetaDataKeys()}
        header = {k: _text(v.encode("utf-8", "surrogateescape")) for k, v in stored.items()}
    numbers = sorted(int(m[1]) for k in header if (m := re.fullmatch(r"Segment(\d{1,6})_ID", k)))
    # Slicer before 4.11 wrote one 0/1 component per segment, without these two keys.
    is_old = not any(f"Segment{i}_Layer" in header for i in numbers)
    found = []
    for order, i in enumerate(numbers):
        value = header.get(f"Segment{i}_LabelValue", "1")
        layer = header.get(f"Segment{i}_Layer", str(order) if is_old else "0")
        if not (_is_number(value) and _is_number(layer)):
            raise VolumeError(f"Segment {i} has no usable label value or layer; export it again.")
        name = header.get(f"Segment{i}_Name") or f"Segment {i + 1}"
        tags = header.get(f"Segment{i}_Tags", "").split("|")
        pairs = dict(tag.partition(":")[::2] for tag in tags)
        color = _color(header.get(f"Segment{i}_Color", ""))
        terms = pairs.get("TerminologyEntry", pairs.get("Terminology", ""))
        status = pairs.get("Segmentation.Status", "")
        sentence = unreviewed_sentence(
            pairs.get("DICOM.SegmentAlgorithmType", ""),
            pairs.get("DICOM.SegmentAlgorithmName", ""),
            status,
        )
        is_open = status == "inprogress"
        found.append(LabelledSegment(int(value), int(layer), name, terms, color, sentence, is_open))
    return tuple(found)


def tabled_segments(path: Path) -> tuple[LabelledSegment, ...]:
    """List the segments in the colour table that Slicer writes beside a label map, if any.

    A line has value, name with _ for spaces, and red, green, blue and opacity up to 255.
    """
    stem = re.sub(r"(\.nii)?\.gz$|\.\w+$", "", path.name, flags=re.IGNORECASE)
    try:
        text = _text(path.with_name(f"{stem}{COLOR_TABLE}").read_bytes())
    except OSError:
        return ()
    found: dict[int, LabelledSegment] = {}
    for line in text.splitlines():
        value, name, *color = [*line.split(), "", ""]
        if _is_number(value) and int(value) > 0 and name not in ("", "(none)"):
            shares = " ".join(str(int(c) / 255) for c in color[:3] if _is_number(c))
            segment = LabelledSegment(
                int(value), 0, name.replace("_", " "), color_rgb=_color(shares), is_tabled=True
            )
            found.setdefault(segment.value, segment)
    return tuple(found.values())


def _text(stored: bytes) -> str:
    """Decode text of Slicer, which wrote in the code page of Windows before it wrote in UTF-8."""
    try:
        return stored.decode("utf-8")
    except UnicodeDecodeError:
        return stored.decode("cp1252", "replace")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 6


def _color(text: str) -> Triple | None:
    try:
        red, green, blue = (float(part) for part in text.split())
    except ValueError:
        return None
    return (red, green, blue) if all(0 <= part <= 1 for part in (red, green, blue)) else None
