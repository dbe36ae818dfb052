"""Small generated scans, and the outside readers that results are held to."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import highdicom as hd
import numpy as np
import pytest
import SimpleITK
from pumit.export.dicom_seg import write_dicom_seg
from pumit.export.terminology import concept_for
from pumit.file_image import DicomSource
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.volume import Volume
from pydicom import dcmread
from scipy.spatial.transform import Rotation

ALGORITHM = Algorithm("pumit default", "0.1.0")
OBLIQUE = Rotation.from_euler("xyz", [12, -25, 40], degrees=True).as_matrix()


def a_volume(direction: np.ndarray = OBLIQUE, shape: tuple[int, int, int] = (9, 21, 30)) -> Volume:
    noise = np.random.default_rng(0).normal(0, 200, shape)
    return Volume(noise.round().astype(np.int16), (2.5, 0.7, 0.8), (-11.5, 23.25, 40.0), direction)


def two_overlapping(volume: Volume) -> Segmentation:
    rng = np.random.default_rng(1)
    left, tumor = (np.zeros(volume.shape, dtype=bool) for _ in range(2))
    # Rugged, so that any flip or shift shows.
    left[2:6, 3:12, 4:20] = rng.random((4, 9, 16)) > 0.4
    tumor[4:8, 8:19, 14:25] = rng.random((4, 11, 11)) > 0.4
    left[4, 8, 14] = tumor[4, 8, 14] = True
    segments = [
        concept_for("left kidney").segment("Left kidney", left),
        concept_for("right kidney tumor").segment("Tumour", tumor),
    ]
    return Segmentation(volume, segments, ALGORITHM)


def reversed_slices(volume: Volume) -> Volume:
    """The same scan with its slices in the opposite order: left-handed, files descending."""
    source = DicomSource(volume.source.files[::-1], volume.source.series_instance_uid)
    last = tuple(volume.index_to_world((volume.shape[0] - 1, 0, 0)))
    direction = volume.direction @ np.diag([1.0, 1.0, -1.0])
    return replace(
        volume, array=volume.array[::-1], origin_lps=last, direction=direction, source=source
    )


def dciodvfy(path: Path) -> list[str]:
    """Lines on which the DICOM validator reports an error."""
    if shutil.which("dciodvfy") is None:
        pytest.skip("dciodvfy is absent: install the system package dicom3tools")
    run = subprocess.run(["dciodvfy", str(path)], capture_output=True, text=True, check=False)
    lines = (run.stdout + run.stderr).splitlines()
    assert lines, "the validator said nothing at all"
    return [line for line in lines if "Error" in line]


def dcmqi_segments(path: Path, folder: Path, volume: Volume) -> dict[str, np.ndarray]:
    """Masks by name as dcmqi reads them, brought onto the volume's grid by their own geometry."""
    pytest.importorskip("dcmqi", reason="dcmqi is absent: pip install dcmqi")
    folder.mkdir()
    command = ["segimage2itkimage", "--inputDICOM", str(path), "--outputDirectory", str(folder)]
    subprocess.run([*command, "-t", "nrrd"], check=True, capture_output=True)
    groups = json.loads((folder / "meta.json").read_text())["segmentAttributes"]
    masks: dict[str, np.ndarray] = {}
    for number, group in enumerate(groups, start=1):
        image = SimpleITK.ReadImage(str(folder / f"{number}.nrrd"))
        labels = SimpleITK.GetArrayFromImage(image)
        for attributes in group:
            index = np.argwhere(labels == attributes["labelID"])[:, ::-1] * image.GetSpacing()
            world = index @ np.reshape(image.GetDirection(), (3, 3)).T + image.GetOrigin()
            masks[attributes["SegmentLabel"]] = on_grid(world, volume)
    return masks


def on_grid(world_lps: np.ndarray, volume: Volume) -> np.ndarray:
    """Mask of the voxels whose centres are these points; a point off every centre fails."""
    index = volume.world_to_index(world_lps)
    assert np.abs(index - index.round()).max() < 0.02
    mask = np.zeros(volume.shape, dtype=bool)
    mask[tuple(index.round().astype(int).T)] = True
    return mask


def assert_same_masks(masks: dict[str, np.ndarray], segments: tuple[Segment, ...]) -> None:
    assert sorted(masks) == sorted(s.name for s in segments)
    for segment in segments:
        np.testing.assert_array_equal(masks[segment.name], segment.mask)


def disjoint(volume: Volume) -> Segmentation:
    """The two segments without the voxels that they share."""
    segmentation = two_overlapping(volume)
    first, second = segmentation.segments
    rest = Segment(second.name, second.mask & ~first.mask)
    return Segmentation(volume, (first, rest), segmentation.algorithm)


def as_enhanced(volume: Volume, path: Path) -> Volume:
    """The same scan as one multi-frame file."""
    hd.legacy.LegacyConvertedEnhancedCTImage(
        [dcmread(file) for file in volume.source.files],
        series_instance_uid=hd.UID(),
        series_number=2,
        sop_instance_uid=hd.UID(),
        instance_number=1,
    ).save_as(path)
    return Volume.read(path)


def read_by_instance(path: Path, volume: Volume, **options: bool) -> tuple[np.ndarray, list[str]]:
    """Pixels as highdicom reads them by the instances of the source, and those instances."""
    uids = [str(dcmread(file).SOPInstanceUID) for file in volume.source.files]
    pixels = hd.seg.segread(path).get_pixels_by_source_instance(
        uids, ignore_spatial_locations=True, assert_missing_frames_are_empty=True, **options
    )
    return pixels, uids


def check_with_others(segmentation: Segmentation, folder: Path) -> None:
    """Write a DICOM-SEG that the validator accepts and from which dcmqi reads the same masks."""
    write_dicom_seg(segmentation, folder / "out.dcm")
    assert dciodvfy(folder / "out.dcm") == []
    masks = dcmqi_segments(folder / "out.dcm", folder / "dcmqi", segmentation.volume)
    assert_same_masks(masks, segmentation.segments)
