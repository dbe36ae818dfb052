"""`pumit info` tells what a scan is and where to click; its answer is one that `segment` takes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from generated_scans import dicom_slice
from PIL import Image
from pumit.volume import Volume


@pytest.fixture
def turned(tmp_path: Path) -> Path:
    """Slices that run to the front, columns up."""
    image = SimpleITK.GetImageFromArray(np.arange(4 * 6 * 8, dtype=np.int16).reshape(4, 6, 8))
    image.SetSpacing((0.5, 1.0, 3.0))
    image.SetOrigin((10.0, 20.0, -30.0))
    image.SetDirection((0, 1, 0, 0, 0, -1, 1, 0, 0))
    path = tmp_path / "turned.nii.gz"
    SimpleITK.WriteImage(image, str(path))
    return path


def test_facts_are_those_of_the_file_in_json_and_in_lines(run, turned):
    facts = json.loads(run("info", turned, "--json").out)
    assert facts["voxels"] == [8, 6, 4]
    assert facts["spacing_mm"] == [0.5, 1.0, 3.0]
    assert facts["orientation"] == ["superior", "left", "anterior"]
    assert facts["range"] == [0.0, 191.0]
    corners = [SimpleITK.ReadImage(str(turned)).TransformIndexToPhysicalPoint(i)
               for i in ((0, 0, 0), (7, 5, 3))]  # fmt: skip
    ras = np.sort(np.array(corners) * (-1, -1, 1), axis=0).T
    np.testing.assert_allclose(facts["ras"], ras, atol=0.01)
    volume = Volume.read(turned)
    place = volume.to_lps(facts["middle_ras"], "RAS")
    assert volume.contains(place.tolist())
    np.testing.assert_allclose(place, volume.to_lps(facts["middle_voxel"], "IJK"), atol=0.1)
    told = run("info", turned).out
    assert all(words in told for words in ("8 x 6 x 4 voxels", "--voxel=3,2,1", "not stated"))


def test_what_is_no_scan_is_one_line(refused, tmp_path):
    assert "pumit info: " in refused("info", tmp_path / "none.nii.gz")


def test_a_picture_has_pixels_and_no_slices(run, tmp_path):
    Image.fromarray(np.arange(20, dtype=np.uint8).reshape(4, 5)).save(tmp_path / "photo.png")
    told = run("info", tmp_path / "photo.png").out
    assert "5 x 4 pixels (columns, rows)\n" in told
    assert "--voxel=2,1\n" in told
    # A picture states neither size nor place; 1 mm and left would be invented.
    assert "mm" not in told
    assert told.count("not stated") == 4


def stated(run: Any, scan: Path) -> tuple[bool, bool]:
    """Return whether a scan states its pixel size, and its position; text and JSON agree."""
    facts, told = json.loads(run("info", scan, "--json").out), run("info", scan).out
    size, place = facts["has_pixel_size"], facts["has_position"]
    lines = dict(line.split(maxsplit=1) for line in told.splitlines())
    assert [lines[key] != "not stated" for key in ("Spacing", "Orientation", "Extent")] == [
        size,
        place,
        size and place,
    ]
    return size, place


@pytest.mark.parametrize(
    ("shape", "suffix"), [((4, 5), "nrrd"), ((4, 5), "mha"), ((3, 4, 5), "nii")]
)
def test_voxels_of_a_millimetre_are_stated(run, tmp_path, shape, suffix):
    path = tmp_path / f"scan.{suffix}"
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(np.zeros(shape, dtype=np.uint8)), str(path))
    assert stated(run, path) == (True, True)


def test_a_volume_without_a_spacing_states_none(run, tmp_path):
    head = b"NRRD0004\ntype: uint8\ndimension: 3\nsizes: 2 2 2\nencoding: raw\n\n"
    (tmp_path / "scan.nrrd").write_bytes(head + bytes(8))
    assert stated(run, tmp_path / "scan.nrrd") == (False, True)


@pytest.mark.parametrize(
    ("frames", "place", "spacing"),
    [
        (1, None, None),
        (1, None, (1.0, 1.0)),
        (1, (0.0, 0.0, 0.0), None),
        (3, None, None),
        (3, (0.0, 0.0, 0.0), (1.0, 1.0)),
    ],
)
def test_a_dicom_scan_states_what_its_header_does(run, tmp_path, frames, place, spacing):
    ds = dicom_slice(np.zeros((4, 6), np.uint16), place, pixel_spacing=spacing)
    if frames > 1:
        ds.NumberOfFrames, ds.SliceThickness = frames, 2.0
        ds.FrameIncrementPointer, ds.PixelData = 0x00180050, ds.PixelData * frames
    ds.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert stated(run, tmp_path / "a.dcm") == (spacing is not None, place is not None)


@pytest.mark.parametrize("spacing_mm", [0.02, 0.0005])
def test_place_to_click_in_a_micro_ct_is_its_middle(run, tmp_path, spacing_mm):
    image = SimpleITK.GetImageFromArray(np.zeros((9, 11, 13), dtype=np.uint8))
    image.SetSpacing([spacing_mm] * 3)
    image.SetOrigin((0.0217, 0.0321, -0.0423))
    SimpleITK.WriteImage(image, str(tmp_path / "micro.nrrd"))
    facts = json.loads(run("info", tmp_path / "micro.nrrd", "--json").out)
    volume = Volume.read(tmp_path / "micro.nrrd")
    place = volume.world_to_index(volume.to_lps(facts["middle_ras"], "RAS"))
    np.testing.assert_allclose(place, (4, 5, 6), atol=0.2)
    assert (
        f"--point={','.join(f'{v:g}' for v in facts['middle_ras'])}"
        in run("info", tmp_path / "micro.nrrd").out
    )


def test_voxels_that_are_no_number_are_not_in_the_range(run, tmp_path):
    array = np.arange(60.0, dtype=np.float32).reshape(3, 4, 5)
    array[0, 0, :2] = np.nan
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(array), str(tmp_path / "scan.nrrd"))
    facts = json.loads(
        run("info", tmp_path / "scan.nrrd", "--json").out, parse_constant=pytest.fail
    )
    assert facts["range"] == [2.0, 59.0]


def test_each_axis_of_an_oblique_scan_has_its_own_direction(run, tmp_path):
    """A short axis of the heart: two axes are nearest to left."""
    image = SimpleITK.GetImageFromArray(np.arange(4 * 6 * 8, dtype=np.int16).reshape(4, 6, 8))
    across, down = np.array([0.62, 0.59, -0.52]), np.array([0.72, -0.2, 0.66])
    across /= np.linalg.norm(across)
    down -= across * (across @ down)
    down /= np.linalg.norm(down)
    image.SetDirection(np.column_stack([across, down, np.cross(across, down)]).ravel())
    SimpleITK.WriteImage(image, str(tmp_path / "heart.nrrd"))
    facts = json.loads(run("info", tmp_path / "heart.nrrd", "--json").out)
    pairs = {"left": 0, "right": 0, "posterior": 1, "anterior": 1, "superior": 2, "inferior": 2}
    assert sorted(pairs[word] for word in facts["orientation"]) == [0, 1, 2]
