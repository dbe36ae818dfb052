"""From labels that were drawn in part to a model: what is unknown neither teaches nor judges."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from labelled_scans import SPACING, ball_and_box, write, write_pairs
from pumit.inference.automatic.segmentation import NetworkPlan, load_automatic
from pumit.preprocessing.normalization import Normalization
from pumit.runs import read_log
from pumit.training.data.case import LabelledVolume
from pumit.training.data.classes import UNKNOWN, classes_from
from pumit.training.data.found_cases import LabelledCase
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.segmentation import AugmentationSettings
from pumit.training.segmentation.patches import Augmentation, SegmentationSource
from pumit.training.segmentation.prepared_cases import PreparedCase, prepare, prepare_all
from pumit.training.segmentation.validation import SegmentationValidation
from pumit.volume import Volume
from segmentation_runs import LEARNING, dice_of, train
from torch import Tensor, nn

PATCH = (8, 16, 16)
CLASSES = classes_from({"ball": 1, "box": 2})
PLAN = NetworkPlan((1.0, 1.0, 1.0), PATCH, 1, (Normalization("zscore"),))


def in_part(seed: int = 0, drawn: tuple[bool, ...] | None = None) -> LabelledVolume:
    """A case of which one slice in four was drawn."""
    image, labels = ball_and_box(seed)
    known = np.zeros_like(labels, dtype=bool)
    known[1::4] = True
    labels[~known] = UNKNOWN
    return LabelledVolume("a", Volume(image, SPACING), labels, (), drawn)


def source(case: PreparedCase, settings: AugmentationSettings, share: float) -> SegmentationSource:
    varied = Augmentation(settings, PATCH, (1.0, 1.0, 1.0), (0, 1, 2))
    return SegmentationSource(
        [case], patch=PATCH, batch_size=4, balanced_share=share, augmentation=varied
    )


def test_resampling_keeps_what_is_unknown():
    case = prepare(in_part(), PLAN, CLASSES)
    assert case.labels.shape == (28, 30, 28)
    assert set(np.unique(case.labels)) == {0, 1, 2, UNKNOWN}
    shares = [(case.labels[k] == UNKNOWN).mean() for k in range(28)]
    assert set(shares) == {0.0, 1.0}
    assert np.mean(shares) == pytest.approx(0.75, abs=0.05)
    assert sorted(case.places) == [1, 2]
    assert (case.labels[tuple(case.known.T)] != UNKNOWN).all()


def test_patches_are_cut_where_something_is_known_and_augmentation_keeps_it():
    read = in_part(drawn=(True, False))
    labels = read.labels.copy()
    labels[:, :14] = UNKNOWN  # a patch that is drawn at random mostly knows nothing
    labels[:, :, :14] = UNKNOWN
    case = prepare(LabelledVolume("a", read.volume, labels, (), read.drawn), PLAN, CLASSES)
    for settings in (AugmentationSettings.model_validate(False), AugmentationSettings(rotation=1)):
        made = source(case, settings, 0.0)
        for seed in range(4):
            batch = made.draw(0, torch.Generator().manual_seed(seed), torch.Generator())
            known = (batch.labels != UNKNOWN).flatten(1).any(1)
            assert known.float().mean() >= (1.0 if settings.rotation == 0 else 0.75)
            assert set(np.unique(batch.labels)) <= {0, 1, 2, UNKNOWN}
            assert batch.drawn.tolist() == [[True, False]] * 4


def test_cases_on_disk_know_what_was_drawn(tmp_path):
    keys: dict[str, Any] = {"folder": str(write_pairs(tmp_path / "set", 2))}
    keys |= {"classes": {"ball": 1, "box": 2}, "drawn": {"case_1": ["ball"]}}
    found = find_labelled_set(LabelledData(**keys), Path)
    options: dict[str, Any] = {"folder": tmp_path / "kept", "voxels": 1 << 40}
    for _ in range(2):
        first, second = prepare_all(found.cases, found.classes, PLAN, **options)
        assert first.drawn is None
        assert second.drawn.tolist() == [True, False]
    everything = find_labelled_set(LabelledData(**{**keys, "drawn": {}}), Path)
    again = prepare_all(everything.cases, everything.classes, PLAN, **options)
    assert again[1].drawn is None  # and not what was kept of the other


class Answers(nn.Module):
    """Answers with the ball everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        zero = torch.zeros_like(x)
        return torch.cat((zero, zero + 1, zero), dim=1)


def validated(tmp_path: Path, labels: np.ndarray, **said: Any) -> SegmentationValidation:
    image = write(tmp_path / "image.nii.gz", ball_and_box(0)[0])
    case = LabelledCase("a", (image,), write(tmp_path / "label.nii.gz", labels), **said)
    network = Answers()
    network.register_parameter("x", nn.Parameter(torch.zeros(1)))
    return SegmentationValidation(network, PLAN, [case], CLASSES, overlap=0.0)


def test_validation_counts_known_voxels_and_drawn_classes(tmp_path):
    labels = ball_and_box(0)[1]
    state = {"x": torch.zeros(1)}
    whole = validated(tmp_path, labels)(state)
    assert whole["dice_box"] == 0
    assert whole["dice_ball"] < 0.1
    seen = np.where(labels == 1, labels, 9).astype(np.uint8)  # nothing but the ball is known
    of_part = validated(tmp_path, seen, ignore_value=9)
    assert of_part(state) == {"score": 1.0, "dice_ball": 1.0}
    ball, box = of_part.rows()
    assert (ball.dice, ball.hd_mm, ball.assd_mm, box.dice) == (1.0, None, None, None)
    of_box = validated(tmp_path, labels, drawn=("box",))(state)
    assert of_box == {"score": 0.0, "dice_box": 0.0}


@pytest.mark.slow
@pytest.mark.usefixtures("blank_pictures")
def test_a_network_learns_from_nnunets_sparse_slices(tmp_path):
    for number in range(5):
        image, labels = ball_and_box(number)
        labels[np.arange(14) % 3 != 1] = 3
        write(tmp_path / "set" / "imagesTr" / f"c{number}_0000.nii.gz", image)
        write(tmp_path / "set" / "labelsTr" / f"c{number}.nii.gz", labels)
    labels = {"background": 0, "ball": 1, "box": 2, "ignore": 3}
    content = {"channel_names": {"0": "CT"}, "labels": labels, "file_ending": ".nii.gz"}
    (tmp_path / "set" / "dataset.json").write_text(json.dumps(content))
    best = train(tmp_path, data={"folder": "set", "validation": ["c4"]}, schedule=LEARNING)
    data = read_log(tmp_path / "out")[0][0]["data"]
    assert data["classes"] == {"ball": 1, "box": 2}
    assert "c0 (36 % known)" in data["warnings"][-1]
    image, truth = ball_and_box(9)
    answer = load_automatic(best, "cpu").segment(Volume(image, SPACING)).labels
    assert dice_of(answer == 1, truth == 1) > 0.7
