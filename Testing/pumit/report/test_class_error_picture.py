"""The picture of a case shows labels and answers of all classes where they differ most."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pumit.errors import VolumeError
from pumit.report.error_picture import ClassMasks, write_class_error_picture
from pumit.volume import Volume

ORANGE, CYAN = (1.0, 0.5, 0.0), (0.0, 0.8, 0.9)


def pixels_like(path: Path, color: tuple[float, float, float]) -> int:
    """How many pixels of a picture have about one colour, parts 0 to 1."""
    picture = np.asarray(Image.open(path).convert("RGB")) / 255
    return int((np.abs(picture - np.array(color)).max(axis=-1) < 0.15).sum())


def box(shape: tuple[int, ...], *bounds: slice) -> np.ndarray:
    mask = np.zeros(shape, dtype=bool)
    mask[bounds] = True
    return mask


SHAPE = (12, 40, 44)
SCAN = np.random.default_rng(0).normal(0, 5, SHAPE).astype(np.float32)
TRUTH = box(SHAPE, slice(3, 8), slice(10, 22), slice(12, 26))
FAR = box(SHAPE, slice(3, 8), slice(28, 35), slice(30, 38))


def test_every_class_is_outlined_in_its_colour(tmp_path: Path) -> None:
    volume = Volume(SCAN + 100 * TRUTH, (4.0, 1.0, 1.0))
    classes = [
        ClassMasks("ball", ORANGE, TRUTH, np.roll(TRUTH, 4, axis=2)),
        ClassMasks("box", CYAN, FAR, np.zeros_like(FAR)),
    ]
    write_class_error_picture(volume, classes, tmp_path / "a.png", title="case 7")
    assert pixels_like(tmp_path / "a.png", ORANGE) > 300
    assert pixels_like(tmp_path / "a.png", CYAN) > 100
    edge = np.asarray(Image.open(tmp_path / "a.png").convert("L"))
    assert edge[:, 2].max() < 60  # no frame


def test_the_planes_go_through_the_largest_error(tmp_path: Path) -> None:
    volume = Volume(SCAN, (4.0, 1.0, 1.0))
    wrong = [ClassMasks("a", ORANGE, TRUTH, TRUTH), ClassMasks("b", CYAN, FAR, FAR & False)]
    right = [ClassMasks("a", ORANGE, TRUTH, TRUTH), ClassMasks("b", CYAN, FAR, FAR)]
    write_class_error_picture(volume, wrong, tmp_path / "wrong.png", title="")
    write_class_error_picture(volume, right, tmp_path / "right.png", title="")
    # Where nothing is wrong they go through the largest class, which the far one is not.
    assert pixels_like(tmp_path / "wrong.png", CYAN) > pixels_like(tmp_path / "right.png", CYAN)


def test_a_planar_image_is_one_panel(tmp_path: Path) -> None:
    volume = Volume(SCAN[:1], (1.0, 1.0, 1.0))
    mask = box((1, *SHAPE[1:]), slice(0, 1), slice(10, 22), slice(12, 26))
    classes = [ClassMasks("a", ORANGE, mask, np.roll(mask, 3, axis=1))]
    write_class_error_picture(volume, classes, tmp_path / "a.png", title="case 1")
    assert pixels_like(tmp_path / "a.png", ORANGE) > 200


def test_many_classes_fit_their_legend(tmp_path: Path) -> None:
    volume = Volume(SCAN, (4.0, 1.0, 1.0))
    classes = [ClassMasks(f"class {i}", ORANGE, TRUTH, FAR) for i in range(40)]
    write_class_error_picture(volume, classes, tmp_path / "a.png", title="case 1")
    assert Image.open(tmp_path / "a.png").height < 1200


def test_nothing_to_show_is_reported(tmp_path: Path) -> None:
    none = np.zeros(SHAPE, dtype=bool)
    with pytest.raises(VolumeError, match="nothing to show"):
        write_class_error_picture(
            Volume(SCAN, (4.0, 1.0, 1.0)),
            [ClassMasks("a", ORANGE, none, none)],
            tmp_path / "a.png",
            title="",
        )
