"""Training sees a case exactly as prediction does, and its labels lie where they lay."""

from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from labelled_scans import SPACING, ball_and_box, write_pairs
from pumit.inference.automatic.segmentation import AutomaticSegmenter, NetworkPlan
from pumit.preprocessing.normalization import Normalization
from pumit.segmentation import ClassLabel
from pumit.training.data.case import LabelledVolume
from pumit.training.data.classes import classes_from
from pumit.training.data.found_cases import LabelledCase
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.recipes.labelled import LabelledData
from pumit.training.segmentation import prepared_cases
from pumit.training.segmentation.prepared_cases import prepare, prepare_all, resize_labels
from pumit.volume import Volume
from torch import Tensor, nn

PLAN = NetworkPlan((1.5, 1.0, 1.0), (16, 32, 32), 1, (Normalization("zscore"),))


class Remembers(nn.Module):
    """Answers with the image, and keeps what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.clone())
        return torch.cat((0.5 - x, x - 0.5), dim=1)


def test_training_and_prediction_see_the_same():
    # Stored with its coarsest axis last and one axis turned round.
    image, labels = (x.transpose(1, 2, 0)[:, ::-1] for x in ball_and_box(3))
    volume = Volume(image, (1.0, 1.0, 2.0), direction=np.diag([1.0, -1.0, 1.0]))
    prepared = prepare(LabelledVolume("a", volume, labels), PLAN)
    network = Remembers()
    segmenter = AutomaticSegmenter(
        network, PLAN, (ClassLabel("x"),), "m", "0", torch.device("cpu"), torch.float32
    )
    segmenter.segment(volume, overlap=0.0)
    shape = np.array(prepared.labels.shape)
    assert tuple(shape) == (19, 30, 28)
    # The first window, without the padding on either side of axes that are shorter than it.
    before = np.maximum(np.array(PLAN.patch) - shape, 0) // 2
    inside = tuple(
        slice(b, b + min(n, p)) for b, n, p in zip(before, shape, PLAN.patch, strict=True)
    )
    window = network.seen[0][0, 0].numpy()[inside]
    part = tuple(slice(0, n) for n in window.shape)
    np.testing.assert_array_equal(window, prepared.image[0][part])
    medians = [np.median(prepared.image[0][prepared.labels == value]) for value in range(3)]
    assert medians[1] > medians[2] + 1 > medians[0] + 2


@pytest.mark.parametrize("shape", [(14, 30, 28), (28, 60, 56), (9, 21, 33)])
def test_resized_labels_keep_volume_and_place(shape):
    _, labels = ball_and_box(5)
    resized = resize_labels(labels, shape).numpy()
    ratio = np.array(shape) / np.array(labels.shape)
    for value in (1, 2):
        old, new = np.argwhere(labels == value), np.argwhere(resized == value)
        assert len(new) / ratio.prod() == pytest.approx(len(old), rel=0.15)
        centre = (old.mean(0) + 0.5) * ratio - 0.5
        np.testing.assert_allclose(new.mean(0), centre, atol=0.5)


def test_resizing_invents_no_class_between_two_others():
    labels = np.zeros((8, 8, 8), np.uint8)
    labels[:, :, 4:] = 2
    assert set(np.unique(resize_labels(labels, (8, 8, 13)))) == {0, 2}


def test_places_lie_in_their_class_and_those_of_regions_may_be_shared():
    classes = classes_from({"both": [1, 2], "box": 2})
    volume = LabelledVolume("a", Volume(ball_and_box(0)[0], SPACING), ball_and_box(0)[1])
    plain = prepare(volume, PLAN)
    assert sorted(plain.places) == [1, 2]
    assert all((plain.labels[tuple(p.T)] == value).all() for value, p in plain.places.items())
    case = prepare(volume, PLAN, classes)
    assert sorted(case.places) == [1, 2]
    both, box = (case.labels[tuple(case.places[number].T)] for number in (1, 2))
    assert set(np.unique(both)) == {1, 2}
    assert set(np.unique(box)) == {2}
    assert len(both) == (case.labels > 0).sum()


def test_large_data_are_kept_on_disk_and_found_again(tmp_path, monkeypatch):
    data = {"folder": str(write_pairs(tmp_path / "data", 2)), "classes": {"ball": 1, "box": 2}}
    found = find_labelled_set(LabelledData(**data), Path)

    def made() -> list[Any]:
        return prepare_all(
            found.cases, found.classes, PLAN, folder=tmp_path / "kept", voxels=1 << 40
        )

    kept = made()
    files = [*(tmp_path / "kept").rglob("*.npy")]
    assert len(files) == 4
    assert isinstance(kept[0].image, np.memmap)
    # No file stays open: a system allows a process a few hundred.
    opened = {path.path for path in psutil.Process().open_files()}
    assert opened.isdisjoint(map(str, files))
    in_memory = prepare_all(found.cases, found.classes, PLAN, folder=tmp_path, voxels=10)
    for a, b in zip(kept, in_memory, strict=True):
        np.testing.assert_array_equal(a.image, b.image)
        np.testing.assert_array_equal(a.labels, b.labels)
        assert a.lowest == b.lowest
        np.testing.assert_array_equal(a.places[1], b.places[1])
    with monkeypatch.context() as patch:
        patch.setattr(prepared_cases, "read_labelled", None)  # nothing is prepared again
        np.testing.assert_array_equal(made()[1].image, in_memory[1].image)

    # Two segmentations of one scene are two cases.
    scene = tmp_path / "scene.mrb"
    scene.touch()
    cases = [
        LabelledCase(name, (Path(f"{scene}#CT"),), Path(f"{scene}#{name}")) for name in ("a", "b")
    ]
    image, labels = ball_and_box(0)
    reads = {"a": labels, "b": np.zeros_like(labels)}
    monkeypatch.setattr(
        prepared_cases,
        "read_labelled",
        lambda case, _: LabelledVolume(case.name, Volume(image, SPACING), reads[case.name]),
    )
    options: dict[str, Any] = {"folder": tmp_path / "kept", "voxels": 1 << 40}
    first, second = prepare_all(cases, found.classes, PLAN, **options)
    assert first.labels.any()
    assert not second.labels.any()
