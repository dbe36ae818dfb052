"""Pictures of errors go through them: of one target with its prompts, and of all classes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.legend import Legend
from PIL import Image
from pumit.errors import VolumeError
from pumit.prompts import BoxPrompt, PointPrompt, Prompt
from pumit.report import error_picture
from pumit.report.error_picture import (
    ClassMasks,
    Stage,
    write_class_error_picture,
    write_error_picture,
)
from pumit.volume import Volume

GREEN, RED, YELLOW = (74, 222, 128), (255, 77, 77), (255, 209, 102)
ORANGE, CYAN = (1.0, 0.5, 0.0), (0.0, 0.8, 0.9)


def pixels_like(path: Path, color: tuple[float, ...]) -> int:
    """How many pixels of a picture have about one colour, parts 0 to 255, or 0 to 1."""
    picture = np.asarray(Image.open(path).convert("RGB")).astype(float)
    wanted = np.array(color) * (255 if max(color) <= 1 else 1)
    return int((np.abs(picture - wanted).max(axis=-1) < 39).sum())


@pytest.fixture
def scan() -> tuple[Volume, np.ndarray]:
    rng = np.random.default_rng(0)
    target = np.zeros((12, 40, 44), dtype=bool)
    target[3:8, 10:22, 12:26] = True
    array = (100 * target + rng.normal(0, 5, target.shape)).astype(np.int16)
    angle = 0.3
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    return Volume(array, (4.0, 1.0, 1.0), (5.0, -20.0, 60.0), turn), target


def test_truth_answer_and_prompts_are_drawn(tmp_path, scan):
    volume, target = scan
    answer = np.roll(target, 6, axis=2)
    corners = volume.index_to_world([[3, 9, 11], [7, 22, 26]])
    box = BoxPrompt.from_bounds(corners.min(0).tolist(), corners.max(0).tolist())
    x, y, z = volume.index_to_world((5, 16, 13)).tolist()
    stages = [Stage("box", answer, [box]), Stage("1 click", target, [PointPrompt((x, y, z))])]
    write_error_picture(volume, target, stages, tmp_path / "a.png", title="case")
    assert pixels_like(tmp_path / "a.png", GREEN) > 100
    assert pixels_like(tmp_path / "a.png", RED) > 100
    assert pixels_like(tmp_path / "a.png", YELLOW) > 50


def test_nothing_is_red_where_there_is_no_answer(tmp_path, scan):
    volume, target = scan
    prompts: list[Prompt] = []
    stages = [Stage("none", np.zeros_like(target), prompts)]
    write_error_picture(volume, target, stages, tmp_path / "a.png", title="case")
    assert pixels_like(tmp_path / "a.png", GREEN) > 100
    assert pixels_like(tmp_path / "a.png", RED) == 0


def test_a_2d_image_is_one_panel(tmp_path):
    target = np.zeros((1, 60, 50), dtype=bool)
    target[0, 20:40, 10:30] = True
    volume = Volume((target * 200).astype(np.uint8), (1e8, 1.0, 1.0))
    stage = Stage("1 click", target, [PointPrompt((20.0, 30.0, 0.0))])
    write_error_picture(volume, target, [stage], tmp_path / "a.png", title="case")
    width, height = Image.open(tmp_path / "a.png").size
    assert width < 1.3 * height


def box(shape: tuple[int, ...], *bounds: slice) -> np.ndarray:
    mask = np.zeros(shape, dtype=bool)
    mask[bounds] = True
    return mask


SHAPE = (12, 40, 44)
SCAN = np.random.default_rng(0).normal(0, 5, SHAPE).astype(np.float32)
TRUTH = box(SHAPE, slice(3, 8), slice(10, 22), slice(12, 26))
FAR = box(SHAPE, slice(3, 8), slice(28, 35), slice(30, 38))


def test_every_class_is_outlined_in_its_colour(tmp_path):
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


def test_the_planes_go_through_the_largest_error(tmp_path):
    volume = Volume(SCAN, (4.0, 1.0, 1.0))
    wrong = [ClassMasks("a", ORANGE, TRUTH, TRUTH), ClassMasks("b", CYAN, FAR, FAR & False)]
    right = [ClassMasks("a", ORANGE, TRUTH, TRUTH), ClassMasks("b", CYAN, FAR, FAR)]
    write_class_error_picture(volume, wrong, tmp_path / "wrong.png", title="")
    write_class_error_picture(volume, right, tmp_path / "right.png", title="")
    # Where nothing is wrong they go through the largest class, which the far one is not.
    assert pixels_like(tmp_path / "wrong.png", CYAN) > pixels_like(tmp_path / "right.png", CYAN)


def test_a_planar_image_is_one_panel(tmp_path):
    volume = Volume(SCAN[:1], (1.0, 1.0, 1.0))
    mask = box((1, *SHAPE[1:]), slice(0, 1), slice(10, 22), slice(12, 26))
    classes = [ClassMasks("a", ORANGE, mask, np.roll(mask, 3, axis=1))]
    write_class_error_picture(volume, classes, tmp_path / "a.png", title="case 1")
    assert pixels_like(tmp_path / "a.png", ORANGE) > 200


def test_many_classes_fit_their_legend(tmp_path):
    volume = Volume(SCAN, (4.0, 1.0, 1.0))
    classes = [ClassMasks(f"class {i}", ORANGE, TRUTH, FAR) for i in range(40)]
    write_class_error_picture(volume, classes, tmp_path / "a.png", title="case 1")
    assert Image.open(tmp_path / "a.png").height < 1200


def test_nothing_to_show_is_reported(tmp_path):
    none = np.zeros(SHAPE, dtype=bool)
    with pytest.raises(VolumeError, match="nothing to show"):
        write_class_error_picture(
            Volume(SCAN, (4.0, 1.0, 1.0)),
            [ClassMasks("a", ORANGE, none, none)],
            tmp_path / "a.png",
            title="",
        )


def test_the_legend_counts_the_classes_that_it_does_not_name(tmp_path, monkeypatch):
    figures: list[Any] = []
    monkeypatch.setattr(error_picture, "save_figure", lambda figure, path: figures.append(figure))
    volume = Volume(SCAN, (4.0, 1.0, 1.0))
    classes = [ClassMasks(f"class {n}", ORANGE, TRUTH, TRUTH) for n in range(20)]
    write_class_error_picture(volume, classes, tmp_path / "a.png", title="case")
    (figure,) = figures
    shown = [text.get_text() for legend in figure.findobj(Legend) for text in legend.get_texts()]
    named = [text for text in shown if text.startswith("class")]
    assert f"and {len(classes) - len(named)} more" in shown
