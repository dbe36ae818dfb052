"""AUC and accuracy agree with counting pair by pair, and with MONAI."""

import numpy as np
import pytest
import torch
from monai.metrics import compute_roc_auc
from pumit.errors import PumitError
from pumit.evaluation.classification_metrics import accuracy, auc, binary_auc, cross_entropy
from torch.nn import functional


def counted_auc(scores: np.ndarray, is_positive: np.ndarray) -> float:
    """The definition: pairs of a positive and a negative case that are in the right order."""
    pairs = [(p, n) for p in scores[is_positive] for n in scores[~is_positive]]
    return float(np.mean([(p > n) + 0.5 * (p == n) for p, n in pairs]))


@pytest.mark.parametrize("levels", [3, 1000])
def test_auc_is_the_share_of_pairs_in_the_right_order(levels, rng):
    scores = rng.integers(0, levels, 40) / levels  # few levels: many are equal
    truth = rng.random(40) < 0.3
    assert binary_auc(scores, truth) == pytest.approx(counted_auc(scores, truth), abs=1e-12)


def test_two_classes_are_distinguished_by_the_second(rng):
    second = rng.random(30)
    probabilities = np.stack((1 - second, second), 1)
    labels = rng.integers(0, 2, 30)
    assert auc(probabilities, labels) == pytest.approx(counted_auc(second, labels == 1))
    assert accuracy(probabilities, labels) == np.mean((second > 0.5) == (labels == 1))


def test_several_classes_are_averaged_each_against_the_rest(rng):
    probabilities = rng.dirichlet(np.ones(4), 60)
    labels = rng.integers(0, 4, 60)
    truth = np.eye(4)[labels]
    expected = compute_roc_auc(torch.tensor(probabilities), torch.tensor(truth), average="macro")
    assert auc(probabilities, labels) == pytest.approx(float(expected), abs=1e-9)
    assert accuracy(probabilities, labels) == np.mean(probabilities.argmax(1) == labels)


def test_several_labels_per_case_are_averaged(rng):
    probabilities, labels = rng.random((50, 3)), rng.integers(0, 2, (50, 3))
    each = [counted_auc(probabilities[:, k], labels[:, k] == 1) for k in range(3)]
    assert auc(probabilities, labels) == pytest.approx(np.mean(each))
    assert accuracy(probabilities, labels) == np.mean((probabilities > 0.5) == labels)


def test_a_class_that_no_case_has_is_left_out(rng):
    probabilities = rng.dirichlet(np.ones(3), 20)
    labels = np.arange(20) % 2
    each = [counted_auc(probabilities[:, k], labels == k) for k in range(2)]
    assert auc(probabilities, labels) == pytest.approx(np.mean(each))


def test_one_class_alone_has_no_auc(rng):
    with pytest.raises(PumitError, match="at least two classes"):
        auc(rng.dirichlet(np.ones(2), 5), np.zeros(5, dtype=np.int64))


def test_cross_entropy_is_torch_s(rng):
    probabilities, labels = rng.dirichlet(np.ones(3), 9), rng.integers(0, 3, 9)
    expected = functional.nll_loss(torch.tensor(probabilities).log(), torch.tensor(labels))
    assert cross_entropy(probabilities, labels) == pytest.approx(float(expected))
    several = rng.integers(0, 2, (9, 3))
    expected = functional.binary_cross_entropy(
        torch.tensor(probabilities), torch.tensor(several, dtype=torch.float64)
    )
    assert cross_entropy(probabilities, several) == pytest.approx(float(expected))
    assert np.isfinite(cross_entropy(np.eye(2), np.array([1, 0])))
