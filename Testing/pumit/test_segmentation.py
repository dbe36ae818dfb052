from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from pumit.errors import ExportError, VolumeError
from pumit.segmentation import TISSUE, Algorithm, CodedConcept, Segment, Segmentation
from pumit.volume import Volume

ALGORITHM = Algorithm("pumit default", "0.1.0")


def a_mask(shape: tuple[int, int, int] = (3, 4, 5)) -> np.ndarray:
    mask = np.zeros(shape, dtype=bool)
    mask[1, 1:3, 1:4] = True
    return mask


def a_volume() -> Volume:
    return Volume(np.zeros((3, 4, 5), dtype=np.int16))


def test_segment_is_tissue_unless_set_otherwise():
    segment = Segment("1", a_mask())
    assert segment.category == segment.type == TISSUE == CodedConcept("85756007", "SCT", "Tissue")
    assert segment.anatomic_region is None


def test_segments_may_overlap():
    segmentation = Segmentation(
        a_volume(), [Segment("a", a_mask()), Segment("b", a_mask())], ALGORITHM
    )
    assert [s.name for s in segmentation.segments] == ["a", "b"]


def test_mask_of_another_grid_is_refused():
    with pytest.raises(VolumeError, match=r"\(3, 4, 6\).*\(3, 4, 5\)"):
        Segmentation(a_volume(), [Segment("a", a_mask((3, 4, 6)))], ALGORITHM)


def test_colour_volume_takes_masks_of_its_grid():
    volume = Volume(np.zeros((3, 3, 4, 5), dtype=np.uint8))
    assert Segmentation(volume, [Segment("a", a_mask())], ALGORITHM).segments


def test_no_segments_are_refused():
    with pytest.raises(ExportError, match="no segment"):
        Segmentation(a_volume(), [], ALGORITHM)


def test_two_segments_of_one_name_are_refused():
    with pytest.raises(ExportError, match="'a' more than once"):
        Segmentation(a_volume(), [Segment("a", a_mask()), Segment("a", a_mask())], ALGORITHM)


def test_empty_mask_is_refused_by_name():
    with pytest.raises(ExportError, match="'lesion' is empty"):
        Segment("lesion", np.zeros((3, 4, 5), dtype=bool))


def test_label_values_are_not_taken_for_a_mask():
    with pytest.raises(VolumeError, match="must be bool"):
        Segment("a", a_mask().astype(np.uint8))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "a\\b", "a\nb"])
def test_name_that_dicom_cannot_hold_is_refused(name):
    with pytest.raises(ExportError):
        Segment(name, a_mask())


@pytest.mark.parametrize(
    "parts", [("", "SCT", "m"), ("1", "SCT", "a~b"), ("1", "S" * 17, "m"), ("1^2", "SCT", "m")]
)
def test_code_that_cannot_be_written_is_refused(parts):
    with pytest.raises(ExportError):
        CodedConcept(*parts)


def test_colour_outside_its_range_is_refused():
    with pytest.raises(ExportError, match="colour"):
        Segment("a", a_mask(), color_rgb=(255.0, 0.0, 0.0))


def test_region_modifier_needs_a_region():
    with pytest.raises(ExportError, match="no region"):
        Segment("a", a_mask(), region_modifier=TISSUE)


def test_unknown_algorithm_kind_is_refused():
    with pytest.raises(ExportError, match="MANUAL"):
        Algorithm("a", "1", "MANUAL")  # type: ignore[arg-type]


def test_import_brings_nothing_heavy():
    code = (
        "import sys, pumit.segmentation;"
        "sys.exit(any(m in sys.modules for m in ('torch', 'SimpleITK', 'pydicom', 'highdicom')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
