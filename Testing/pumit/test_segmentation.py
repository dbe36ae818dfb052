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


def of(*segments: Segment) -> Segmentation:
    return Segmentation(a_volume(), segments, ALGORITHM)


def test_segments_may_overlap_and_are_tissue_unless_set_otherwise():
    volume = Volume(np.zeros((3, 3, 4, 5), dtype=np.uint8))  # in colour
    segments = Segmentation(volume, [Segment(n, a_mask()) for n in "ab"], ALGORITHM).segments
    assert [s.name for s in segments] == ["a", "b"]
    assert segments[0].category == segments[0].type == TISSUE
    assert segments[0].anatomic_region is None


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: of(Segment("a", a_mask((3, 4, 6)))), r"\(3, 4, 6\).*\(3, 4, 5\)"),
        (lambda: of(), "no segment"),
        (lambda: of(Segment("a", a_mask()), Segment("a", a_mask())), "'a' more than once"),
        (lambda: Segment("lesion", np.zeros((3, 4, 5), dtype=bool)), "'lesion' is empty"),
        (lambda: Segment("a", a_mask().astype(np.uint8)), "must be bool"),
        (lambda: Segment("a", a_mask(), color_rgb=(255.0, 0.0, 0.0)), "colour"),
        (lambda: Segment("a", a_mask(), region_modifier=TISSUE), "no region"),
        (lambda: Algorithm("a", "1", "MANUAL"), "MANUAL"),
    ],
)
def test_what_is_no_segmentation_is_refused(made, reason):
    with pytest.raises((ExportError, VolumeError), match=reason):
        made()


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
