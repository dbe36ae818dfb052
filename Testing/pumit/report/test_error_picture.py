"""The picture of an error shows the truth, the answer and the prompts through the error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pumit.prompts import BoxPrompt, PointPrompt, Prompt
from pumit.report.error_picture import Stage, write_error_picture
from pumit.volume import Volume

GREEN, RED, YELLOW = (74, 222, 128), (255, 77, 77), (255, 209, 102)


def pixels_like(path: Path, color: tuple[int, int, int], tolerance: int = 40) -> int:
    """How many pixels of a picture have about one colour."""
    picture = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return int((np.abs(picture - np.array(color)).max(axis=-1) < tolerance).sum())


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


def test_truth_answer_and_prompts_are_drawn(
    tmp_path: Path, scan: tuple[Volume, np.ndarray]
) -> None:
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


def test_nothing_is_red_where_there_is_no_answer(
    tmp_path: Path, scan: tuple[Volume, np.ndarray]
) -> None:
    volume, target = scan
    prompts: list[Prompt] = []
    stages = [Stage("none", np.zeros_like(target), prompts)]
    write_error_picture(volume, target, stages, tmp_path / "a.png", title="case")
    assert pixels_like(tmp_path / "a.png", GREEN) > 100
    assert pixels_like(tmp_path / "a.png", RED) == 0


def test_a_2d_image_is_one_panel(tmp_path: Path) -> None:
    target = np.zeros((1, 60, 50), dtype=bool)
    target[0, 20:40, 10:30] = True
    volume = Volume((target * 200).astype(np.uint8), (1e8, 1.0, 1.0))
    stage = Stage("1 click", target, [PointPrompt((20.0, 30.0, 0.0))])
    write_error_picture(volume, target, [stage], tmp_path / "a.png", title="case")
    width, height = Image.open(tmp_path / "a.png").size
    assert width < 1.3 * height
