"""An RTSTRUCT gives each mask back, in this program's reader and in others'."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from export_checks import (
    ALGORITHM,
    OBLIQUE,
    a_volume,
    as_enhanced,
    assert_same_masks,
    dciodvfy,
    reversed_slices,
    two_overlapping,
)
from matplotlib.path import Path as Outline
from pumit.errors import ExportError
from pumit.evaluation.metrics import dice
from pumit.export.dicom_series import write_dicom_series
from pumit.export.mask_contours import keyhole_contours
from pumit.export.write import write_segmentation
from pumit.io.labels.label_source import read_labels
from pumit.segmentation import Segment, Segmentation
from pumit.volume import Volume
from pydicom import dcmread

SHAPE = (5, 48, 56)


def nested(shape: tuple[int, int, int] = SHAPE) -> dict[str, np.ndarray]:
    """Shapes that contours get wrong: holes, islands in holes, several pieces, touching corners."""
    d, h, w = np.indices(shape)
    across = np.hypot(h - shape[1] / 2 + 0.3, (w - shape[2] / 2) * 0.9)
    ring = (across < 22) & (across > 15)
    inside = (d > 0) & (d < shape[0] - 1)
    pieces = ((h // 7 + w // 9) % 3 == 0) & (d != 2) & (h % 7 < 5) & (w % 9 < 7)
    sieve = (across < 20) & ~((h % 5 == 2) & (w % 6 == 3))
    return {
        "Ring with islands": (ring | (across < 5) | ((across < 11) & (across > 8))) & inside,
        "Pieces": pieces,
        "Sieve": sieve & inside,
        "Chequers": ((h + w) % 2 == 0) & (across < 6),
        "To the border": (h < 9) | (w > shape[2] - 3),
        "Noise": np.random.default_rng(2).random(shape) > 0.5,
        "One voxel": (d == 2) & (h == 5) & (w == 6),
    }


def a_struct(folder: Path, volume: Volume, masks: dict[str, np.ndarray]) -> Path:
    path = folder / "out.rtstruct.dcm"
    segments = tuple(Segment(name, mask) for name, mask in masks.items())
    write_segmentation(Segmentation(volume, segments, ALGORITHM), path)
    return path


@pytest.mark.parametrize(("order", "mirror"), [("ascending", -1.0), ("descending", 1.0)])
def test_holes_and_pieces_come_back_voxel_exact(tmp_path, mirror, order):
    direction = OBLIQUE @ np.diag([1.0, 1.0, mirror])
    volume = write_dicom_series(a_volume(direction, SHAPE), tmp_path / "series")
    if order == "descending":
        volume = reversed_slices(volume)
    masks = nested()
    path = a_struct(tmp_path, volume, masks)
    assert dciodvfy(path) == []
    found = read_labels(path, volume)
    back = {segment.name: found.mask(segment) for segment in found.segments}
    for name, mask in masks.items():
        assert dice(back[name], mask) == 1.0, name
    assert not [doubt for doubt in found.doubts if "no contour on slices" not in doubt]


def test_contours_hold_for_filling_each_by_its_winding(tmp_path):
    """Not every program fills by even-odd: the union of contours, each filled, is the mask too."""
    volume = write_dicom_series(a_volume(OBLIQUE, SHAPE), tmp_path / "series")
    masks = nested()
    ds = dcmread(a_struct(tmp_path, volume, masks))
    names = {item.ROINumber: item.ROIName for item in ds.StructureSetROISequence}
    grid = np.stack(np.indices(SHAPE[1:]), axis=-1).reshape(-1, 2)
    for region in ds.ROIContourSequence:
        filled = np.zeros(SHAPE, dtype=bool)
        for contour in region.ContourSequence:
            points = np.array([float(v) for v in contour.ContourData]).reshape(-1, 3)
            assert contour.NumberOfContourPoints == len(points)
            index = volume.world_to_index(points)
            assert np.ptp(index[:, 0]) < 1e-2
            inside = Outline(index[:, 1:], closed=False).contains_points(grid)
            filled[round(float(index[0, 0]))] |= inside.reshape(SHAPE[1:])
        np.testing.assert_array_equal(filled, masks[names[region.ReferencedROINumber]])


def test_treatment_planning_software_reads_the_same_masks(tmp_path):
    if shutil.which("plastimatch") is None:
        pytest.skip("plastimatch is absent: install the system package plastimatch")
    volume = write_dicom_series(a_volume(np.eye(3), SHAPE), tmp_path / "series")
    masks = nested()
    a_struct(tmp_path, volume, masks)
    command = ["plastimatch", "convert", "--input", tmp_path / "out.rtstruct.dcm"]
    command += ["--referenced-ct", tmp_path / "series", "--output-prefix", tmp_path / "masks"]
    subprocess.run([*map(str, command), "--prefix-format", "nrrd"], check=True, capture_output=True)
    for name, mask in masks.items():
        image = SimpleITK.ReadImage(str(tmp_path / "masks" / f"{name}.nrrd"))
        back = SimpleITK.GetArrayFromImage(image) > 0
        assert dice(back, mask) > 0.999, name


def test_structures_name_their_images_and_their_makers(tmp_path):
    volume = write_dicom_series(a_volume(), tmp_path / "series")
    segmentation = two_overlapping(volume)
    write_segmentation(segmentation, tmp_path / "out.rtstruct.dcm")
    ds = dcmread(tmp_path / "out.rtstruct.dcm")
    sources = [dcmread(file) for file in volume.source.files]
    assert (ds.Modality, ds.ApprovalStatus) == ("RTSTRUCT", "UNAPPROVED")
    assert ds.StudyInstanceUID == sources[0].StudyInstanceUID
    assert ds.PatientID == sources[0].PatientID
    assert list(ds.SoftwareVersions)[1] == "pumit default 0.1.0"
    uids = [source.SOPInstanceUID for source in sources]
    frame = ds.ReferencedFrameOfReferenceSequence[0]
    series = frame.RTReferencedStudySequence[0].RTReferencedSeriesSequence[0]
    assert series.SeriesInstanceUID == volume.source.series_instance_uid
    assert [i.ReferencedSOPInstanceUID for i in series.ContourImageSequence] == uids
    for region in ds.ROIContourSequence:
        for contour in region.ContourSequence:
            point = [float(v) for v in contour.ContourData[:3]]
            k = round(float(volume.world_to_index(point)[0]))
            assert contour.ContourImageSequence[0].ReferencedSOPInstanceUID == uids[k]
    codes = [o.RTROIIdentificationCodeSequence[0].CodeValue for o in ds.RTROIObservationsSequence]
    assert codes == [segment.type.value for segment in segmentation.segments]
    found = read_labels(tmp_path / "out.rtstruct.dcm", volume)
    assert_same_masks({s.name: found.mask(s) for s in found.segments}, segmentation.segments)


def test_frames_of_a_multi_frame_image_are_named_by_number(tmp_path):
    volume = write_dicom_series(a_volume(), tmp_path / "series")
    volume = as_enhanced(volume, tmp_path / "enhanced.dcm")
    segmentation = two_overlapping(volume)
    write_segmentation(segmentation, tmp_path / "out.rtstruct.dcm")
    assert dciodvfy(tmp_path / "out.rtstruct.dcm") == []
    image = dcmread(tmp_path / "enhanced.dcm")
    groups = image.PerFrameFunctionalGroupsSequence
    for region in dcmread(tmp_path / "out.rtstruct.dcm").ROIContourSequence:
        for contour in region.ContourSequence:
            number = contour.ContourImageSequence[0].ReferencedFrameNumber
            place = groups[number - 1].PlanePositionSequence[0].ImagePositionPatient
            d = [volume.world_to_index([float(v) for v in p])[0]
                 for p in (place, contour.ContourData[:3])]  # fmt: skip
            assert abs(d[0] - d[1]) < 1e-2
    found = read_labels(tmp_path / "out.rtstruct.dcm", volume)
    assert_same_masks({s.name: found.mask(s) for s in found.segments}, segmentation.segments)


def test_a_picture_without_a_place_is_refused(tmp_path):
    volume = write_dicom_series(Volume(a_volume().array[:1], (1e8, 0.5, 0.5)), tmp_path / "series")
    ds = dcmread(volume.source.files[0])
    del ds.ImagePositionPatient, ds.ImageOrientationPatient
    ds.save_as(volume.source.files[0])
    mask = np.ones(volume.shape, dtype=bool)
    with pytest.raises(ExportError, match=r"has none; write \.dcm"):
        a_struct(tmp_path, volume, {"a": mask})
    assert not (tmp_path / "out.rtstruct.dcm").exists()


def test_straight_sides_have_no_corners_between():
    mask = np.zeros((12, 14), dtype=bool)
    mask[2:9, 3:11] = True
    (outline,) = keyhole_contours(mask)
    assert len(outline) == 8  # four sides, and each corner of the pixels cut off
    mask[4:6, 5:7] = False
    assert len(keyhole_contours(mask)) == 1
