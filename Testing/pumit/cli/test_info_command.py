"""`pumit info` tells what a scan is and where to click; its answer is one that `segment` takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
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


def test_facts_are_those_of_the_file(run: Any, turned: Path) -> None:
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


def test_people_get_a_line_per_fact(run: Any, turned: Path) -> None:
    ran = run("info", turned)
    assert "8 x 6 x 4 voxels" in ran.out
    assert "--voxel=3,2,1" in ran.out
    assert "not stated" in ran.out


def test_what_is_no_scan_is_one_line(refused: Any, tmp_path: Path) -> None:
    assert "pumit info: " in refused("info", tmp_path / "none.nii.gz")


def test_a_picture_has_pixels_and_no_slices(run: Any, tmp_path: Path) -> None:
    Image.fromarray(np.arange(20, dtype=np.uint8).reshape(4, 5)).save(tmp_path / "photo.png")
    told = run("info", tmp_path / "photo.png").out
    assert "5 x 4 pixels (columns, rows)\n" in told
    assert "--voxel=2,1\n" in told
    # A picture states neither size nor place; 1 mm and left would be invented.
    assert "mm" not in told
    assert told.count("not stated") == 4


@pytest.mark.parametrize("spacing_mm", [0.02, 0.0005])
def test_place_to_click_in_a_micro_ct_is_its_middle(
    run: Any, tmp_path: Path, spacing_mm: float
) -> None:
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
