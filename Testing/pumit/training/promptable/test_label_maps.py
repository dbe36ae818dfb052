"""Label maps of real anatomy become scans whose targets are their structures."""

from pathlib import Path

import numpy as np
import pytest
import torch
from labelled_scans import write
from pumit.errors import VolumeError
from pumit.preprocessing.fields import field_shape
from pumit.training.promptable.label_maps import LabelMaps, part_of_body
from pumit.training.synthesis.scene import MAX_SHARE, MIN_REAL_SHARE

SIZE = 24


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three balls inside one another, unlabelled around them."""
    d, h, w = np.indices((30, 44, 44))
    radius = np.sqrt((1.5 * (d - 15)) ** 2 + (h - 22) ** 2 + (w - 22) ** 2)
    label = np.select([radius < 5, radius < 10, radius < 16], [300, 7, 2], 0)
    return write(
        tmp_path_factory.mktemp("maps") / "shells.nii.gz", label.astype(np.int16), (1.5, 1.0, 1.0)
    )


@pytest.mark.parametrize("da0", range(6))
def test_scenes_of_every_degree(shells, da0):
    maps = LabelMaps([shells])
    generator = torch.Generator().manual_seed(0)
    scenes = [s for s in (maps.draw(da0, SIZE, generator) for _ in range(8)) if s is not None]
    assert len(scenes) > 3
    again = maps.draw(da0, SIZE, torch.Generator().manual_seed(0))
    assert again is None or torch.equal(again.image, scenes[0].image)
    for scene in scenes:
        assert scene.image.shape == field_shape(da0, SIZE)
        assert torch.isfinite(scene.image).all()
        for target in scene.targets:
            assert target.shape == scene.image.shape
            assert MIN_REAL_SHARE <= float(target.float().mean()) <= MAX_SHARE


def test_a_structure_is_distinguished_by_its_intensity_on_the_whole(shells):
    """In most scenes the target's mean is not that of what lies around it."""
    maps = LabelMaps([shells])
    generator = torch.Generator().manual_seed(3)
    differences = []
    while len(differences) < 16:
        scene = maps.draw(0, SIZE, generator)
        if scene is not None:
            target = scene.targets[0]
            apart = scene.image[target].mean() - scene.image[~target].mean()
            differences.append(float(apart.abs() / scene.image.std()))
    assert np.median(differences) > 0.5


def test_a_wide_scene_shows_classes_as_the_map_lies(shells):
    empty = write(shells.with_name("empty.nii.gz"), np.zeros((8, 8, 8), np.int16))
    with pytest.raises(VolumeError, match=r"^empty\.nii\.gz: .* no structure"):
        LabelMaps([empty])
    maps = LabelMaps([shells])
    assert maps.draw(0, SIZE, torch.Generator().manual_seed(2), is_wide=True) is None
    assert maps.number_classes(5) == [
        ("other: shells (label maps)", label) for label in (0, 2, 7, 300)
    ]
    generator = torch.Generator().manual_seed(2)
    scenes = [maps.draw(da0, SIZE, generator, is_wide=True) for da0 in range(6)]
    for scene in scenes:
        assert scene.is_upright
        assert scene.classes.shape == scene.image.shape
        assert set(torch.unique(scene.classes).tolist()) <= {5, 6, 7, 8}
        for target in scene.targets:  # a structure, some together, or a part
            assert int(scene.classes[target].min()) > 5


def test_a_name_tells_the_part_of_the_body():
    parts = {
        "brain_synthseg": "head",
        "headneck_tcia": "neck",
        "hra_f_thorax_neck": "thorax",
        "hra_m_knee_l": "leg",
        "bone_gfxmorph_femur_a": "leg",
        "abdomen_spl": "abdomen",
        "skeleton_hand": "arm",
        "skeleton_torso": "spine",
        "fish_fin": "other",
    }
    assert {name: part_of_body(name) for name in parts} == parts
