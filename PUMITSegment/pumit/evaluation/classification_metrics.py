"""Classification metrics: AUC and accuracy as defined by MedMNIST, and cross-entropy."""

import numpy as np
import numpy.typing as npt

from pumit.errors import PumitError

Labels = npt.NDArray[np.int64]
Scores = npt.NDArray[np.floating]


def binary_auc(scores: Scores, is_positive: npt.NDArray[np.bool_]) -> float:
    """Compute the area under the ROC curve of a binary classifier.

    Args:
        scores: One per case, (N,); ties count half.
        is_positive: Ground truth, (N,).

    Returns:
        0 to 1; NaN if all cases are positive or none is.
    """
    positives = int(is_positive.sum())
    negatives = len(is_positive) - positives
    if positives == 0 or negatives == 0:
        return float("nan")
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]  # from 1; ties share the mean rank
    above = rank[is_positive].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def auc(probabilities: Scores, labels: Labels) -> float:
    """Compute the AUC of a set of cases.

    For two classes, that of class 1; for more, the one-vs-rest mean; for multi-label cases, the
    mean over labels. Classes that none or all of the cases have are left out of the mean.

    Args:
        probabilities: (N, classes).
        labels: Class numbers (N,), or binary labels (N, classes).

    Raises:
        PumitError: If no class has an AUC.

    Source:
        Yang et al., MedMNIST v2, 2023 (the package's `getAUC`).
    """
    classes = probabilities.shape[1]
    truth = labels > 0 if labels.ndim == 2 else labels[:, None] == np.arange(classes)
    counted = [1] if labels.ndim == 1 and classes == 2 else range(classes)
    each = np.array([binary_auc(probabilities[:, k], truth[:, k]) for k in counted])
    if np.isnan(each).all():
        raise PumitError("An AUC needs cases of at least two classes, but there is only one.")
    return float(np.nanmean(each))


def accuracy(probabilities: Scores, labels: Labels) -> float:
    """Compute the accuracy of the most probable class, or of each label thresholded at 0.5.

    Args:
        probabilities: (N, classes).
        labels: Class numbers (N,), or binary labels (N, classes).
    """
    if labels.ndim == 2:
        return float(np.mean((probabilities > 0.5) == (labels > 0)))
    return float(np.mean(probabilities.argmax(1) == labels))


def cross_entropy(probabilities: Scores, labels: Labels) -> float:
    """Compute the mean negative log probability of the true class, nats.

    Args:
        probabilities: (N, classes).
        labels: Class numbers (N,), or binary labels (N, classes).
    """
    if labels.ndim == 2:
        of_truth = np.where(labels > 0, probabilities, 1 - probabilities)
    else:
        of_truth = probabilities[np.arange(len(labels)), labels]
    smallest = np.finfo(np.float32).tiny
    return float(-np.mean(np.log(np.maximum(of_truth.astype(np.float64), smallest))))
