"""The simulated user clicks where a person would, and its figures are right."""

import gzip
import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from pumit.errors import VolumeError
from pumit.evaluation.click_scores import means, means_of_groups
from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import (
    GESTURES,
    deepest,
    dice_after_clicks,
    evaluate_case,
    largest_slice,
    read_case,
    simulate_gesture,
    targets_of,
)
from pumit.prompts import BoxPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.report.click_tables import click_tables
from pumit.volume import Volume


def ball_scan() -> tuple[Volume, np.ndarray]:
    """A bright ball off the middle of an oblique scan, and its mask."""
    shape, spacing = (24, 40, 44), (2.0, 1.0, 1.0)
    offset = np.indices(shape) - np.array([10, 18, 24]).reshape(3, 1, 1, 1)
    mask = (np.sqrt(((offset * np.array(spacing).reshape(3, 1, 1, 1)) ** 2).sum(0))) < 11
    noise = np.random.default_rng(0).normal(0, 3, shape)
    angle = 0.4
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    return Volume((100 * mask + noise).astype(np.int16), spacing, (5.0, -20.0, 60.0), turn), mask


class ScriptedSession:
    """A session that gives prepared masks and remembers its prompts."""

    def __init__(self, volume: Volume, masks: list[np.ndarray]) -> None:
        self.volume = volume
        self.masks = masks
        self.prompts: list[Prompt] = []

    def add_point(self, point: tuple[float, float, float], *, positive: bool = True) -> None:
        self.prompts.append(PointPrompt(point, positive))

    def add_prompt(self, prompt: Prompt) -> None:
        self.prompts.append(prompt)

    def predict(self) -> np.ndarray:
        return self.masks[min(len(self.prompts), len(self.masks)) - 1]


def block(shape: tuple[int, int, int], *bounds: tuple[int, int]) -> np.ndarray:
    mask = np.zeros(shape, dtype=bool)
    mask[tuple(slice(a, b) for a, b in bounds)] = True
    return mask


def write_case(folder: Path, volume: Volume, labels: np.ndarray) -> None:
    folder.mkdir(parents=True)
    for name, array in (("image", volume.array), ("label", labels)):
        image = SimpleITK.GetImageFromArray(array.astype(np.int16))
        image.SetSpacing(volume.spacing_mm[::-1])
        image.SetOrigin(volume.origin_lps)
        image.SetDirection(volume.direction.ravel())
        SimpleITK.WriteImage(image, str(folder / f"{name}.nii.gz"))


def test_the_deepest_voxel_is_the_middle_of_the_largest_piece():
    shape = (13, 20, 20)
    mask = block(shape, (0, 13), (2, 13), (2, 13)) | block(shape, (0, 2), (18, 20), (18, 20))
    assert deepest(mask, (1.0, 1.0, 1.0))[1:] == (7, 7)


def test_depth_is_measured_in_millimetres():
    """A plate of one thick slice is deeper than a stem that is longer in voxels."""
    shape = (5, 9, 20)
    stem = block(shape, (0, 5), (3, 6), (0, 3))
    plate = block(shape, (2, 3), (0, 9), (3, 12))
    assert deepest(stem | plate, (10.0, 1.0, 1.0)) == (2, 4, 7)
    assert deepest(stem | plate, (1.0, 1.0, 1.0))[1:] == (4, 1)


def test_the_deepest_voxel_lies_inside_at_the_border_of_the_volume():
    mask = block((2, 6, 6), (0, 2), (0, 2), (0, 6))
    assert mask[deepest(mask, (5.0, 1.0, 1.0))]
    planar = block((1, 40, 40), (0, 1), (10, 31), (10, 31))
    assert deepest(planar, (1.0, 0.5, 0.5)) == (0, 20, 20)


def test_targets_are_the_largest_labels_that_are_large_enough():
    labels = np.zeros((10, 20, 20), dtype=np.int16)
    labels[:3, :10, :10] = 7  # 300
    labels[4:, :10, :10] = 3  # 600
    labels[:3, 12:14, 12:14] = 9  # 12
    assert targets_of(labels, 5) == [3, 7]
    assert targets_of(labels, 1) == [3]
    assert targets_of(np.zeros_like(labels), 3) == []


def test_clicks_go_into_the_larger_error():
    volume = Volume(np.zeros((4, 20, 20), np.int16), (1, 1, 1))
    target = block((4, 20, 20), (0, 4), (2, 12), (2, 12))
    excess = target | block((4, 20, 20), (0, 4), (14, 20), (0, 20))
    missing = target & ~block((4, 20, 20), (0, 4), (2, 12), (8, 12))
    session = ScriptedSession(volume, [excess, missing, target, target])
    scores, seconds = dice_after_clicks(session, target, 5)
    points = [p for p in session.prompts if isinstance(p, PointPrompt)]
    assert [p.is_positive for p in points] == [True, False, True]
    places = [tuple(np.round(volume.world_to_index(p.point_lps)).astype(int)) for p in points]
    assert target[places[0]]
    assert (excess & ~target)[places[1]]
    assert (target & ~missing)[places[2]]
    assert len(scores) == 5
    assert scores[2:] == [1.0, 1.0, 1.0]  # nothing is left to click at
    assert len(seconds) == 3


def test_human_like_clicks_are_in_the_error_and_not_in_its_middle():
    volume = Volume(np.zeros((4, 40, 40), np.int16), (1, 1, 1))
    target = block((4, 40, 40), (0, 4), (5, 25), (5, 25))
    excess = target | block((4, 40, 40), (0, 4), (28, 38), (28, 38))
    answers = [target[:, ::-1] & target, excess, excess, target]
    places = []
    for seed in (1, 1, 2):
        session = ScriptedSession(volume, answers)
        dice_after_clicks(session, target, 4, np.random.default_rng(seed))
        points = [p for p in session.prompts if isinstance(p, PointPrompt)]
        assert [p.is_positive for p in points] == [True, True, False, False]
        index = [tuple(np.round(volume.world_to_index(p.point_lps)).astype(int)) for p in points]
        assert [bool(target[i]) for i in index] == [True, True, False, False]
        places.append(index)
    assert places[0] == places[1] != places[2]
    assert deepest(target, volume.spacing_mm) not in [index[0] for index in places]


def test_a_row_tells_human_like_prompts(tmp_path, bright_segmenter):
    volume, target = ball_scan()
    write_case(tmp_path / "case_a", volume, target)
    rows = list(evaluate_case(bright_segmenter, tmp_path / "case_a", clicks=2, human=True))
    assert means(rows)["human_box"] == pytest.approx(rows[0]["human_box"], abs=1e-3)
    assert len(rows[0]["human"]) == 2
    table = click_tables(rows)
    assert "| Dice after human-like clicks | loose box | 1 | 2 | mean of 2 |" in table


def test_the_box_is_tight_in_an_oblique_volume():
    volume, mask = ball_scan()
    session = ScriptedSession(volume, [mask])
    assert dice(simulate_gesture(session, mask, "box"), mask) == 1.0
    (prompt,) = session.prompts
    corners = volume.world_to_index(prompt.corners_lps)
    where = np.argwhere(mask)
    np.testing.assert_allclose(where.min(0) - corners.min(0), [0, 1, 1], atol=1e-6)
    np.testing.assert_allclose(corners.max(0) - where.max(0), [0, 1, 1], atol=1e-6)


def test_the_box_stays_in_the_volume():
    volume = Volume(np.zeros((4, 20, 20), np.int16), (1, 1, 1))
    mask = np.ones(volume.shape, dtype=bool)
    session = ScriptedSession(volume, [mask])
    simulate_gesture(session, mask, "box")
    (prompt,) = session.prompts
    corners = volume.world_to_index(prompt.corners_lps)
    np.testing.assert_allclose(corners.min(0), 0, atol=1e-9)
    np.testing.assert_allclose(corners.max(0), [3, 19, 19], atol=1e-9)


def test_a_case_is_evaluated_from_its_folder(tmp_path, bright_segmenter):
    volume, mask = ball_scan()
    labels = mask * 5
    labels[0, 0, :3] = 2  # too small
    write_case(tmp_path / "case_a", volume, labels)
    gestures = ("loose_box", "flat_box", "scribble", "lasso")
    (row,) = evaluate_case(
        bright_segmenter, tmp_path / "case_a", clicks=3, gestures=gestures, tolerance_mm=0.0
    )
    assert row["case"] == "case_a"
    assert row["label"] == 5
    assert row["voxels"] == int(mask.sum())
    assert row["box"] > 0.9
    assert len(row["clicks"]) == 3
    assert min(row["clicks"]) > 0.9
    assert row["gestures"].keys() == set(gestures)
    assert len(row["nsd"]) == 3
    assert all(0 <= v <= 1 for v in (*row["nsd"], *row["gestures"].values()))
    json.dumps(row)


def test_a_label_map_on_another_grid_is_refused(tmp_path, bright_segmenter):
    volume, mask = ball_scan()
    for k, other in enumerate(
        (
            replace(volume, array=mask[:, :, 1:].astype(np.uint8)),
            replace(volume, array=mask.astype(np.uint8), origin_lps=(0.0, 0.0, 0.0)),
            replace(volume, array=mask.astype(np.uint8), direction=np.eye(3)),
            replace(volume, array=mask.astype(np.uint8), spacing_mm=(2.0, 1.5, 1.0)),
        )
    ):
        folder = tmp_path / f"case{k}"
        write_case(folder, volume, mask)
        image = SimpleITK.GetImageFromArray(other.array)
        image.SetSpacing(other.spacing_mm[::-1])
        image.SetOrigin(other.origin_lps)
        image.SetDirection(other.direction.ravel())
        SimpleITK.WriteImage(image, str(folder / "label.nii.gz"))
        with pytest.raises(VolumeError, match="off the image's grid"):
            list(evaluate_case(bright_segmenter, folder))


def test_groups_have_means_of_their_own_cases():
    rows = [
        {"case": "mr_acdc_patient1_frame1", "box": 1.0, "clicks": [0.5]},
        {"case": "mr_acdc_patient2_frame1", "box": 0.0, "clicks": [0.7]},
        {"case": "ct_chaos_liver", "box": 0.8, "clicks": [0.9]},
    ]
    found = means_of_groups(rows)
    assert found.keys() == {"ct_chaos", "mr_acdc"}
    hearts = {"cases": 2, "targets": 2, "box": 0.5, "dice@1": 0.6}
    assert hearts.items() <= found["mr_acdc"].items()


def test_clicks_go_on_until_the_goal(tmp_path, bright_segmenter):
    """What is bright is found at once; of noise that hides in it, never all."""
    volume, target = ball_scan()
    write_case(tmp_path / "easy", volume, target)
    (row,) = evaluate_case(bright_segmenter, tmp_path / "easy", clicks=2, until=6)
    assert len(row["clicks"]) == len(row["until"]) == 2
    hidden = target & (np.random.default_rng(0).random(target.shape) < 0.5)
    write_case(tmp_path / "hard", volume, hidden)
    (row,) = evaluate_case(bright_segmenter, tmp_path / "hard", clicks=2, until=4)
    assert (len(row["clicks"]), len(row["until"])) == (2, 4)
    assert row["until"][:2] == row["clicks"]


def index_bounds(prompt: BoxPrompt) -> np.ndarray:
    volume, _ = ball_scan()
    index = volume.world_to_index(prompt.corners_lps)
    return np.round(np.stack((index.min(0), index.max(0)))).astype(int)


def test_a_loose_box_is_a_tenth_larger_to_every_side():
    volume, target = ball_scan()
    where = np.argwhere(target)
    size = where.max(0) - where.min(0) + 1
    (box,) = GESTURES["loose_box"](volume, target)
    low, high = index_bounds(box)
    grow = np.maximum(np.round(0.1 * size), 1)
    assert (low == np.maximum(where.min(0) - grow, 0)).all()
    assert (high == np.minimum(where.max(0) + grow, np.array(target.shape) - 1)).all()


def test_a_flat_box_lies_on_the_slice_that_shows_most():
    volume, target = ball_scan()
    axis, index = largest_slice(volume, target)
    (box,) = GESTURES["flat_box"](volume, target)
    low, high = index_bounds(box)
    assert low[axis] == high[axis] == index


@pytest.mark.parametrize("gesture", ["scribble", "lasso"])
def test_strokes_stay_in_the_target(gesture):
    volume, target = ball_scan()
    prompts = GESTURES[gesture](volume, target)
    assert prompts
    for prompt in prompts:
        assert isinstance(prompt, PointPrompt | ScribblePrompt)
        places = prompt.points_lps if isinstance(prompt, ScribblePrompt) else [prompt.point_lps]
        index = np.round(volume.world_to_index(np.array(places))).astype(int)
        assert target[tuple(index.T)].all()


def test_labels_of_a_tilted_gantry_are_not_mixed(tmp_path):
    volume, _ = ball_scan()
    labels = np.zeros(volume.shape, dtype=np.uint8)
    labels[:, :20], labels[:, 20:] = 1, 3
    write_case(tmp_path / "case", volume, labels)
    tilt = np.array([[1, 0, 0, 0], [0, 1, 0.7, 0], [0, 0, 2, 0]])  # 0.7 mm from slice to slice
    for file in (tmp_path / "case").iterdir():
        data = bytearray(gzip.decompress(file.read_bytes()))
        struct.pack_into("<2h", data, 252, 0, 1)  # qform and sform code
        struct.pack_into("<12f", data, 280, *tilt.ravel())
        file.write_bytes(gzip.compress(data))
    assert set(np.unique(read_case(tmp_path / "case")[1])) == {0, 1, 3}
