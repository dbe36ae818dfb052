"""Batches depend on their generator alone, and the loss is that of the labels."""

import numpy as np
import pytest
import torch
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.preprocessing.normalization import Normalization
from pumit.training.classification.cases import Cases
from pumit.training.classification.task import (
    CaseDraw,
    ClassificationTask,
    LabelledImages,
    PreparedImages,
    probabilities_of,
)
from pumit.training.recipes.schedule import Schedule
from pumit.volume import Volume
from torch import Tensor, nn

FORM = ClassifierInput((2, 2, 2), 3, Normalization("range", (0, 1), (0, 1)), "stored", 0.5)
LABELS = np.arange(8) % 2


def image(index: int) -> Volume:
    return Volume(np.full((2, 2, 2), index / 10))


def images() -> PreparedImages:
    return PreparedImages(Cases([f"case {i}" for i in range(8)], LABELS, image), FORM)


class Mean(nn.Module):
    """Logits 0 and the mean of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        nn.init.zeros_(self.layer.bias)
        self.layer.weight.data = torch.tensor([[0.0] * 3, [1.0] * 3])

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.mean((2, 3, 4)))


def drawn(draw: CaseDraw, seed: int) -> LabelledImages:
    return draw.draw(0, torch.Generator().manual_seed(seed), torch.Generator())


def test_a_batch_holds_cases_with_their_labels():
    batch = drawn(CaseDraw(images(), 5), 0)
    assert len(batch) == 5
    assert batch.images.shape == (5, 1, 2, 2, 2)
    chosen = [int(name.removeprefix("case ")) for name in batch.cases]
    np.testing.assert_allclose(batch.images[:, 0, 0, 0, 0].numpy(), np.array(chosen) / 10)
    assert batch.labels.tolist() == [int(LABELS[i]) for i in chosen]
    draw = CaseDraw(images(), 6, random_intensity=True, flips=True)
    torch.testing.assert_close(drawn(draw, 3).images, drawn(draw, 3).images, rtol=0, atol=0)
    assert drawn(draw, 3).cases != drawn(draw, 4).cases
    task = ClassificationTask(Mean(), draw)  # workers get no network
    assert not [v for v in vars(task.source).values() if isinstance(v, nn.Module)]


def test_random_intensity_is_uniform_from_nothing_to_all():
    draw = CaseDraw(images(), 400, random_intensity=True)
    batch = drawn(draw, 0)
    whole = np.array([int(name.removeprefix("case ")) / 10 for name in batch.cases])
    factors = (batch.images[:, 0, 0, 0, 0].numpy() / np.maximum(whole, 1e-9))[whole > 0]
    assert 0 <= factors.min() < 0.05
    assert 0.95 < factors.max() <= 1
    assert factors.mean() == pytest.approx(0.5, abs=0.05)


def test_flips_reflect_each_axis_half_of_the_time(rng):
    array = rng.random((2, 2, 2))
    source = PreparedImages(Cases(["x"], np.array([0]), lambda i: Volume(array)), FORM)
    batch = drawn(CaseDraw(source, 200, flips=True), 0)
    kinds = {tuple(x.flatten().tolist()) for x in batch.images}
    assert len(kinds) == 8


def test_the_loss_is_the_cross_entropy_of_the_labels():
    task = ClassificationTask(Mean(), CaseDraw(images(), 4))
    x = torch.tensor([0.2, -0.4])
    batch = LabelledImages(x.reshape(2, 1, 1, 1, 1), torch.tensor([1, 1]), ["a", "b"])
    result = task(batch)
    assert result["loss"].item() == pytest.approx(-torch.log(torch.sigmoid(3 * x)).mean().item())
    assert result["accuracy"].item() == 0.5

    # Several labels of a case are judged one by one.
    batch = LabelledImages(torch.full((1, 1, 1, 1, 1), 0.5), torch.tensor([[1, 1]]), ["a"])
    result = task(batch)
    one, other = torch.sigmoid(torch.tensor([0.0, 1.5])).log()
    assert result["loss"].item() == pytest.approx(-float(one + other) / 2)
    assert result["accuracy"].item() == 0.5


def test_answers_see_the_images_darkened_as_the_form_says():
    found = probabilities_of(Mean(), images(), batch_size=3, is_multi_label=False)
    expected = 1 / (1 + np.exp(-3 * 0.5 * np.arange(8) / 10))
    np.testing.assert_allclose(found[:, 1], expected, atol=5e-3)  # bfloat16
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)


def test_vectors_are_spared_from_weight_decay():
    task = ClassificationTask(Mean(), CaseDraw(images(), 4))
    decayed, spared = task.parameter_groups(Schedule(weight_decay=0.01))
    assert [p.ndim for p in decayed["params"]] == [2]
    assert decayed["weight_decay"] == 0.01
    assert [p.ndim for p in spared["params"]] == [1]
    assert spared["weight_decay"] == 0
