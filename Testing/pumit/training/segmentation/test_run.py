"""`pumit train` makes what `pumit predict` uses, resumes, and says what is wrong."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pumit
import pytest
from labelled_scans import SHAPE, SPACING, ball_and_box, write, write_pairs
from pumit.errors import PumitError, TrainingError
from pumit.export.classes import class_colors
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.checkpoint import read_recipe
from pumit.runs import read_log
from pumit.segmentation import Mask
from pumit.training.segmentation.validation import SinglePieceChoice
from pumit.volume import Volume
from segmentation_runs import LEARNING, RECIPE, dice_of, train

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.mark.slow
def test_trained_model_predicts_other_scans(tmp_path, monkeypatch):
    monkeypatch.setattr(SinglePieceChoice, "values", lambda self: (0,))
    write_pairs(tmp_path / "set", 5)
    rows = [{"name": "ball", "value": 1, "terminology": "liver"}, {"name": "box", "value": 2}]
    data = {"folder": "set", "classes": rows, "validation": ["case_4"]}
    schedule = {**LEARNING, "validate_every": 13}
    more = {"version": "7", "card": {"licence": "none"}}
    best = train(tmp_path, data=data, schedule=schedule, **more)
    assert best == tmp_path / "out" / "made.safetensors"
    # On a scan that no one has seen, stored otherwise.
    image, labels = ball_and_box(9)
    volume = Volume(image.transpose(1, 2, 0), (1.0, 1.0, 2.0))
    model = load_automatic(best, "cpu")
    answer = model.segment(volume).labels.transpose(2, 0, 1)
    by_one_call = pumit.predict(volume.array, best, spacing_mm=volume.spacing_mm, device="cpu")
    np.testing.assert_array_equal(by_one_call.labels.transpose(2, 0, 1), answer)
    # The box takes longer to learn.
    assert dice_of(answer == 1, labels == 1) > 0.75
    assert [(c.name, c.terminology) for c in model.classes] == [("ball", "liver"), ("box", "")]
    recipe, _ = read_recipe(best)
    assert recipe["plan"]["patch_size"] == [16, 32, 32]
    assert recipe["version"] == "7"
    assert recipe["licence"] == "none"
    assert recipe["training"]["cases"] == 4
    assert recipe["metrics"]["dice_ball"] > 0.75
    assert recipe["single_piece"] == [0]
    assert recipe["expected_dice"] == [pytest.approx(0.8, abs=0.2)] * 2
    log = read_log(tmp_path / "out")[0]
    assert log[0]["data"]["validation"] == ["case_4"]
    colors = class_colors(model.classes)  # a curve has the colour of its class in the pictures
    assert log[0]["data"]["colors"] == {name: list(color) for name, color in colors.items()}
    assert log[1]["plan"]["spacing_mm"] == [2.0, 1.0, 1.0]
    assert [r["step"] for r in log if "validation" in r] == [13, 25]
    judged = json.loads((tmp_path / "out" / "validation.json").read_text())
    assert [(r["case"], r["label"]) for r in judged["rows"]] == [
        ("case_4", "ball"),
        ("case_4", "box"),
    ]
    assert judged["overlap"] == 0.75
    assert judged["mean"]["ball"]["hd95_mm"]["mean"] < 10
    assert (tmp_path / "out" / "made_last.safetensors").is_file()


def test_validation_without_any_class_still_makes_a_model(tmp_path):
    write_pairs(tmp_path / "set", 3)
    write(tmp_path / "set" / "labels" / "case_2.nii.gz", np.zeros_like(ball_and_box(2)[1]))
    data = {**RECIPE["data"], "validation": ["case_2"]}
    best = train(tmp_path, data=data, schedule={"steps": 1, "learning_rate": 0.0})
    assert load_automatic(best, "cpu").name == "made"
    assert "case_2: its label map is empty" in read_log(tmp_path / "out")[0][0]["data"]["warnings"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shedule": {}}, "did you mean 'schedule'"),
        ({"network_sizes": {"dims": 3}}, "dim"),
        ({"data": None}, "needs the key data"),
        ({"data": {"folder": "set", "classes": {"ball": 1}}}, "label values 2"),
        ({"plan": {"patch_size": [16, 30, 32]}}, r"nearest is \[16, 32, 32\]"),
        ({"initial": "nothing.safetensors"}, "nothing.safetensors"),
        ({"name": "../x"}, "model's file"),
        ({"name": "last"}, "model's file"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_recipe_is_refused_before_anything_is_written(tmp_path, changes, message):
    write_pairs(tmp_path / "set", 2)
    with pytest.raises(PumitError, match=message):
        train(tmp_path, **changes)
    assert not (tmp_path / "out").exists()


CHANNELS = ("T1", "T1ce", "T2", "FLAIR")
REGIONS = {"whole tumour": [1, 2, 4], "tumour core": [1, 4], "enhancing tumour": [4]}
# What each channel shows of necrosis (1), oedema (2) and enhancing tumour (4).
_SHOWN = {"T1": (-40, 0, 0), "T1ce": (-60, 0, 200), "T2": (120, 60, 60), "FLAIR": (0, 150, 150)}


def tumour(
    seed: int, shape: tuple[int, int, int] = SHAPE
) -> tuple[list[npt.NDArray[np.float32]], npt.NDArray[np.uint8]]:
    """Four images and their labels: balls in each other around one centre."""
    rng = np.random.default_rng(seed)
    d, h, w = np.ogrid[: shape[0], : shape[1], : shape[2]]
    z, y, x = (rng.integers(n // 3, 2 * n // 3) for n in shape)
    away = np.sqrt(((d - z) * 2.0) ** 2 + (h - y) ** 2 + (w - x) ** 2)
    labels = np.select([away < 3, away < 6, away < 9], [1, 4, 2]).astype(np.uint8)
    images = [
        rng.normal(100, 5, shape) + np.select([labels == v for v in (1, 2, 4)], _SHOWN[name])
        for name in CHANNELS
    ]
    return [image.astype(np.float32) for image in images], labels


def write_tumours(folder: Path, count: int) -> Path:
    """Write images/case_<i>_000<c>.nii.gz and labels/case_<i>.nii.gz."""
    for i in range(count):
        images, labels = tumour(i)
        for c, image in enumerate(images):
            write(folder / "images" / f"case_{i}_{c:04d}.nii.gz", image, SPACING)
        write(folder / "labels" / f"case_{i}.nii.gz", labels, SPACING)
    return folder


@pytest.mark.slow
def test_regions_are_learned_and_judged(tmp_path):
    write_tumours(tmp_path / "set", 4)
    best = train(
        tmp_path,
        network="basic_unet",
        network_sizes={"features": [8, 8, 16, 16, 16, 8]},
        data={
            "folder": "set",
            "images": "images/{case}_{channel}.*",
            "channels": list(CHANNELS),
            "classes": REGIONS,
            "validation": ["case_3"],
        },
        schedule={**LEARNING, "learning_rate": 1e-2},
    )
    recipe, _ = read_recipe(best)
    assert recipe["regions"] == [[1, 2, 4], [1, 4], [4]]
    assert recipe["sizes"]["num_classes"] == 3
    assert recipe["training"]["channels"] == list(CHANNELS)
    model = load_automatic(best, "cpu")
    images, labels = tumour(9)
    answer = model.segment(Volume(np.stack(images), (2.0, 1.0, 1.0)), overlap=0.5)
    assert dice_of(answer.mask(1), labels > 0) > 0.75
    assert all(recipe["metrics"][f"dice_{name}"] > 0.3 for name in REGIONS)  # none is forgotten
    judged = json.loads((tmp_path / "out" / "validation.json").read_text())
    assert [(r["case"], r["label"]) for r in judged["rows"]] == [("case_3", n) for n in REGIONS]
    _, labels = tumour(3)
    for row, values in zip(judged["rows"], REGIONS.values(), strict=True):
        assert row["true_voxels"] == np.isin(labels, values).sum()
        assert row["hd95_mm"] is not None


Labels = npt.NDArray[np.uint8]


def truth() -> Labels:
    labels = np.zeros((4, 24, 24), dtype=np.uint8)
    labels[:, 2:8, 2:8] = 1
    labels[:, 8:11, 2:8] = 2
    return labels


def masks(labels: Labels) -> list[Mask]:
    return [labels == 1, labels == 2, labels == 3]


def chosen(rows: slice, columns: slice, value: int, *right: Labels) -> tuple[int, ...]:
    """The choice after an answer with a false piece, and after answers that are right."""
    answer = truth()
    answer[:, rows, columns] = value
    choice = SinglePieceChoice(3)
    choice.add(answer, masks(truth()))
    for labels in right:
        choice.add(labels, masks(labels))
    return choice.values()


def test_single_pieces_are_chosen_where_they_help_and_harm_no_case():
    assert SinglePieceChoice(3).values() == ()
    far, corner, two = slice(16, 22), slice(22, None), truth()
    two[:, 16:20, 16:22] = 1
    assert chosen(far, far, 2) == (0,)  # lies elsewhere, and is larger than the true one
    assert chosen(slice(2, 4), slice(8, 10), 2, truth()) == (2,)  # hangs on another class
    assert chosen(corner, corner, 1, two) == ()  # that case has two pieces


def test_loss_that_is_not_finite_names_its_cases(tmp_path):
    write_pairs(tmp_path / "set", 2)
    data = {**RECIPE["data"], "validation": ["case_1"]}
    schedule = {"steps": 20, "learning_rate": 1e30, "warm_up": 0, "clip": 0.0}
    with pytest.raises(TrainingError, match="the loss of case_0, case_0 "):
        train(tmp_path, data=data, schedule=schedule)
