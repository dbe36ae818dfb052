"""A classifier's answers for cases it was not trained on: measured, and case by case."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pumit.evaluation.classification_metrics import Labels, accuracy, auc, cross_entropy
from pumit.system.atomic import atomic_path
from pumit.training.classification.cases import ClassificationData

Probabilities = npt.NDArray[np.float32]


def measures(probabilities: Probabilities, labels: Labels) -> dict[str, float]:
    """AUC, accuracy and cross-entropy of a set of cases, to six places."""
    found = {
        "auc": auc(probabilities, labels),
        "accuracy": accuracy(probabilities, labels),
        "cross_entropy": cross_entropy(probabilities, labels),
    }
    return {name: round(value, 6) for name, value in found.items()}


def write_answers(
    target: Path, data: ClassificationData, answers: Mapping[str, Probabilities]
) -> None:
    """Write a row for each case: split, case, true class, probability of each class.

    Args:
        target: `.csv` file.
        data: Cases and their labels.
        answers: Probabilities (N, classes) by split.

    Raises:
        ExportError: If it cannot be written.
    """
    with (
        atomic_path(target) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as handle,
    ):
        table = csv.writer(handle)
        table.writerow(["split", "case", "truth", *data.classes])
        for split, found in answers.items():
            cases = data.splits[split]
            for name, label, row in zip(cases.names, cases.labels, found, strict=True):
                true = np.flatnonzero(label) if label.ndim else [label]
                truth = ";".join(data.classes[k] for k in true)
                table.writerow([split, name, truth, *(f"{p:.6f}" for p in row)])
