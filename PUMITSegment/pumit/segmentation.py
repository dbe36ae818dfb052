"""Segmentation results: segments with coded meanings, label maps, and answers to prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from pumit.errors import ExportError, VolumeError
from pumit.geometry import Triple
from pumit.prompts import PointPrompt, Prompt
from pumit.volume import Volume

UNKNOWN_NAMES = ("ignore", "ignored", "unknown")  # of segments of unknown voxels
Mask = npt.NDArray[np.bool_]
AlgorithmKind = Literal["AUTOMATIC", "SEMIAUTOMATIC"]

# Maximum lengths of DICOM's short string and long string, PS3.5 6.2.
_SHORT_STRING = 16
_LONG_STRING = 64
MOST_REGIONS = 64  # bits of the largest integer type


def plain_name(name: str) -> str:
    """Return a name normalised for comparison: case, spaces, hyphens and underscores."""
    return " ".join(name.replace("_", " ").replace("-", " ").split()).casefold()


def _checked_color(color_rgb: Sequence[float]) -> Triple:
    color = tuple(float(c) for c in color_rgb)
    if len(color) != 3 or not all(0.0 <= c <= 1.0 for c in color):
        raise ExportError(f"A colour needs three numbers in 0..1, got {color_rgb}.")
    return color


def _require_text(text: str, what: str, *, longest: int, forbidden: str = "") -> None:
    """Raise ExportError unless every output format can store the text."""
    if not text.strip():
        raise ExportError(f"{what} is empty; give it a value.")
    if len(text) > longest:
        raise ExportError(
            f"{what} has {len(text)} characters, but DICOM allows {longest}: {text!r}; shorten it."
        )
    wrong = sorted({c for c in text if c in "\\" + forbidden or not c.isprintable()})
    if wrong:
        raise ExportError(f"{what} must not contain {' '.join(map(repr, wrong))}: {text!r}.")


@dataclass(frozen=True)
class CodedConcept:
    """A term of a coding scheme, such as SCT 10200004 "Liver".

    Attributes:
        value: The code, at most 16 characters.
        scheme: The coding scheme's designator: SCT (SNOMED CT), DCM, FMA, 99PUMIT...
        meaning: Meaning of the code, at most 64 characters.

    Raises:
        ExportError: If a part is empty, too long, or contains a separator of an output format.
    """

    value: str
    scheme: str
    meaning: str

    def __post_init__(self) -> None:
        # ~ ^ | separate the parts of a terminology entry and of a segment's tags in Slicer.
        _require_text(self.value, "A code value", longest=_SHORT_STRING, forbidden="~^|")
        _require_text(self.scheme, "A coding scheme", longest=_SHORT_STRING, forbidden="~^|")
        _require_text(self.meaning, "A code meaning", longest=_LONG_STRING, forbidden="~^|")


# Slicer's default for an unnamed segment.
TISSUE = CodedConcept("85756007", "SCT", "Tissue")
TISSUE_COLOR_RGB: Triple = (128 / 255, 174 / 255, 128 / 255)


@dataclass(frozen=True, eq=False)
class Segment:
    """One structure: mask, name and coded meaning.

    Attributes:
        name: Display name, at most 64 characters.
        mask: bool, (D, H, W), on the grid of the segmentation's volume; not empty.
        category: Property category, such as "Anatomical Structure".
        type: Property type, such as "Liver".
        type_modifier: Property type modifier, such as "Left".
        anatomic_region: Region of a structure that is not itself an anatomic region.
        region_modifier: Modifier of the anatomic region; requires a region.
        color_rgb: Display colour, each part in 0..1.

    Raises:
        VolumeError: If the mask is not bool or not three-dimensional.
        ExportError: If the mask is empty, or the name or colour cannot be written.
    """

    name: str
    mask: Mask = field(repr=False)
    category: CodedConcept = TISSUE
    type: CodedConcept = TISSUE
    type_modifier: CodedConcept | None = None
    anatomic_region: CodedConcept | None = None
    region_modifier: CodedConcept | None = None
    color_rgb: Triple = TISSUE_COLOR_RGB

    def __post_init__(self) -> None:
        _require_text(self.name, "A segment's name", longest=_LONG_STRING)
        mask = np.asarray(self.mask)
        if mask.dtype != np.bool_ or mask.ndim != 3:
            raise VolumeError(
                f"The mask of segment {self.name!r} must be bool with shape (D, H, W), "
                f"got {mask.dtype} {mask.shape}."
            )
        if not mask.any():
            raise ExportError(
                f"Segment {self.name!r} is empty: there is nothing to write; "
                "add a positive prompt inside the structure."
            )
        if self.region_modifier is not None and self.anatomic_region is None:
            raise ExportError(
                f"Segment {self.name!r} has a region modifier but no region; give the region too."
            )
        object.__setattr__(self, "mask", mask)
        object.__setattr__(self, "color_rgb", _checked_color(self.color_rgb))


@dataclass(frozen=True)
class ClassLabel:
    """One class of an automatic segmentation.

    Attributes:
        name: Display name, at most 64 characters.
        terminology: Terminology entry for `export.terminology.concept_for`; empty if unknown.
        color_rgb: Display colour, each part in 0..1; None for the terminology's colour.

    Raises:
        ExportError: If the name or colour cannot be written.
    """

    name: str
    terminology: str = ""
    color_rgb: Triple | None = None

    def __post_init__(self) -> None:
        _require_text(self.name, "A class's name", longest=_LONG_STRING)
        if self.color_rgb is not None:
            object.__setattr__(self, "color_rgb", _checked_color(self.color_rgb))


def region_type(count: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type with a bit for each of `count` overlapping classes.

    Raises:
        VolumeError: If there are more than 64.
    """
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        if count <= 8 * np.dtype(dtype).itemsize:
            return dtype
    raise VolumeError(f"At most {MOST_REGIONS} classes can overlap, got {count}; name fewer.")


@dataclass(frozen=True, eq=False)
class LabelMap:
    """Result of automatic segmentation: a label per voxel, and optionally overlapping regions.

    Attributes:
        labels: Unsigned integers, (D, H, W); 0 is background, i is `classes[i - 1]`. Where classes
            overlap, the last one counts.
        classes: Meaning of the labels; a class need not occur.
        regions: Bit masks of overlapping classes, unsigned integers (D, H, W): bit i - 1 is set
            where a voxel belongs to `classes[i - 1]`; None if classes cannot overlap.
        expected_dice: Expected Dice of each class with the ground truth, 0 to 1, from the network's
            probabilities, mostly overestimated. None for a class that was not found; empty if
            unknown.
        doubt: Probability that a voxel's label is wrong, scaled to 0 to 255, (D, H, W); None if not
            requested.
        remark: Warning for the user, in a sentence, if the scan may not suit the model; or empty.
        scan: Grid of the segmented scan, without voxels and files, to which `pumit.save` compares
            its image; None if unknown.

    Raises:
        VolumeError: If the regions have another grid than the labels, or too few bits.
    """

    labels: npt.NDArray[np.unsignedinteger[Any]]
    classes: tuple[ClassLabel, ...]
    regions: npt.NDArray[np.unsignedinteger[Any]] | None = None
    expected_dice: tuple[float | None, ...] = ()
    doubt: npt.NDArray[np.uint8] | None = None
    remark: str = ""
    scan: Volume | None = None

    def __repr__(self) -> str:
        """Return a one-line summary."""
        names = ", ".join(label.name for label in self.classes)
        size = " x ".join(map(str, self.labels.shape))
        return f"<LabelMap: {size} voxels (D x H x W), {len(self.classes)} classes: {names}>"

    def __post_init__(self) -> None:
        if self.regions is None:
            return
        bits = 8 * self.regions.dtype.itemsize if self.regions.dtype.kind == "u" else 0
        if self.regions.shape != self.labels.shape or bits < len(self.classes):
            raise VolumeError(
                f"Regions of shape {self.regions.shape} and {bits} bits cannot hold "
                f"{len(self.classes)} classes on the grid {self.labels.shape}."
            )

    @classmethod
    def of_regions(
        cls,
        regions: npt.NDArray[np.unsignedinteger[Any]],
        classes: tuple[ClassLabel, ...],
        expected_dice: tuple[float | None, ...] = (),
    ) -> LabelMap:
        """Create a label map from overlapping regions; labels are derived from them."""
        dtype = np.uint8 if len(classes) < 256 else np.uint16
        labels = np.zeros(regions.shape, dtype=dtype)
        answer = cls(labels, classes, regions, expected_dice)
        for number in range(1, len(classes) + 1):
            labels[answer.mask(number)] = number
        return answer

    def mask(self, number: int) -> Mask:
        """Return the complete mask of `classes[number - 1]`, (D, H, W)."""
        if self.regions is None:
            return self.labels == number
        bit = self.regions.dtype.type(1 << (number - 1))
        return (self.regions & bit) != 0


@dataclass(frozen=True)
class Algorithm:
    """Software that created the segments, to distinguish them from manual annotations.

    Attributes:
        name: The model's name, at most 64 characters.
        version: The model's version, at most 64 characters.
        kind: SEMIAUTOMATIC if a user gave prompts, else AUTOMATIC.

    Raises:
        ExportError: If a part is empty, too long or unknown.
    """

    name: str
    version: str
    kind: AlgorithmKind = "SEMIAUTOMATIC"

    def __post_init__(self) -> None:
        _require_text(self.name, "An algorithm's name", longest=_LONG_STRING, forbidden="|")
        _require_text(self.version, "An algorithm's version", longest=_LONG_STRING, forbidden="|")
        if self.kind not in ("AUTOMATIC", "SEMIAUTOMATIC"):
            raise ExportError(
                f"An algorithm's kind is AUTOMATIC or SEMIAUTOMATIC, got {self.kind!r}."
            )


@dataclass(frozen=True, eq=False)
class Segmentation:
    """Segments of one volume; they may overlap.

    Attributes:
        volume: The segmented volume: grid, geometry and DICOM source.
        segments: At least one segment, with unique names, each on the volume's grid.
        values: Values of the segments in files of label values, such as class numbers; 1, 2, ... if
            empty.

    Raises:
        ExportError: If there is no segment or two share a name.
        VolumeError: If a mask is not on the volume's grid.
    """

    volume: Volume
    segments: tuple[Segment, ...]
    algorithm: Algorithm
    values: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        segments = tuple(self.segments)
        if not segments:
            raise ExportError("There is no segment to write; segment something first.")
        names = Counter(segment.name for segment in segments)
        repeated = sorted(name for name, count in names.items() if count > 1)
        if repeated:
            raise ExportError(
                f"Segment names must differ, got {', '.join(map(repr, repeated))} more than once."
            )
        for segment in segments:
            if segment.mask.shape != self.volume.shape:
                raise VolumeError(
                    f"The mask of segment {segment.name!r} has shape {segment.mask.shape}, the "
                    f"volume {self.volume.shape}; masks must be on the volume's own grid."
                )
        object.__setattr__(self, "segments", segments)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Values of the segments in a file of label values."""
        return self.values or tuple(range(1, len(self.segments) + 1))


# Quality of an answer in words, the best first.
Quality = Literal["good", "check", "check carefully", "unreliable"]
# Volume from which doubtful first answers are usually too large; and as a share of a small scan.
_LARGE_ML, _LARGE_SHARE = 10.0, 0.2
QUALITIES: tuple[Quality, ...] = get_args(Quality)


@dataclass(frozen=True)
class UncertainRegion:
    """A region at a segment's border where the answer is probably wrong.

    Attributes:
        point_lps: Centre, LPS mm.
        error_share: Expected share of wrong voxels around it, 0 to 1.
        reach_mm: Standard deviation of the Gaussian weight around it, mm.
        expected_error_ml: Expected volume of wrong voxels around it, ml; None in a 2D image.
    """

    point_lps: tuple[float, float, float]
    error_share: float
    reach_mm: float
    expected_error_ml: float | None


@dataclass(frozen=True)
class AnswerChoice:
    """Which of several alternative answers is shown: its number, from 1 (best score)."""

    number: int = 1
    count: int = 1


@dataclass(frozen=True, eq=False)
class PromptAnswer:
    """The answer to a segment's prompts.

    Attributes:
        mask: bool, (D, H, W), on the volume's grid.
        estimated_iou: Estimated IoU, 0 to 1; None if the model gives no estimate.
        expected_dice: Expected Dice with the ground truth, 0 to 1; None if unknown.
        places: Regions to check, the worst first, at most as many as requested.
        quality: Quality in words, from `expected_dice`; None if unknown.
    """

    mask: Mask
    estimated_iou: float | None
    expected_dice: float | None
    places: tuple[UncertainRegion, ...] = ()
    quality: Quality | None = None
    choice: AnswerChoice = AnswerChoice()

    def may_be_too_large(self, prompts: Sequence[Prompt], spacing_mm: Sequence[float]) -> bool:
        """Return whether this is a large, doubtful answer to a first click.

        Clicks in small structures often get such answers.
        """
        is_first = len(prompts) == 1 and isinstance(prompts[0], PointPrompt)
        if not is_first or self.quality not in ("check carefully", "unreliable"):
            return False
        voxels = int(np.count_nonzero(self.mask))
        volume_ml = voxels * float(np.prod(spacing_mm)) / 1000
        return volume_ml >= _LARGE_ML or voxels >= _LARGE_SHARE * self.mask.size
