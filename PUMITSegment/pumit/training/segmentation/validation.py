"""Predict whole cases as a user would, and compare the answers with their labels."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pumit.evaluation.metrics import dice
from pumit.evaluation.segmentation_metrics import MetricRow, mask_metrics
from pumit.inference.automatic.components import TOGETHER, keep_largest
from pumit.inference.automatic.segmentation import AutomaticSegmenter, NetworkPlan
from pumit.inference.loading import pick_precision
from pumit.segmentation import LabelMap, Mask
from pumit.system.watch import Watch
from pumit.training.data.case import KeptCases, LabelledVolume
from pumit.training.data.classes import UNKNOWN, ClassValue, has_regions, lookup_table
from pumit.training.data.labelled_set import LabelledCase

WORSE = 0.005  # Dice that one case may lose where the others gain


class SinglePieceChoice:
    """Compare answers with only their largest pieces.

    Source:
        nnU-Net's post-processing: all classes together first, then each for itself, wherever that
        raises Dice.
    """

    def __init__(self, count: int) -> None:
        self._classes = range(1, count + 1)
        # One row a case and a column a class: Dice of the answer as it is, of its largest piece,
        # of the largest piece of each class, and of both.
        self._scores: dict[tuple[bool, bool], list[list[float]]] = {
            (together, each): [] for together in (False, True) for each in (False, True)
        }

    def add(
        self,
        labels: npt.NDArray[np.unsignedinteger[Any]],
        truths: Sequence[Mask],
        known: Mask | None = None,
    ) -> None:
        """Count a case in.

        Args:
            labels: The answer with all pieces, (D, H, W).
            truths: Mask of each class, bool (D, H, W).
            known: Voxels that count, bool (D, H, W); None for all.
        """
        for (together, each), rows in self._scores.items():
            kept = labels.copy()
            keep_largest(kept, ([TOGETHER] * together) + list(self._classes) * each)
            if known is not None:
                kept[~known] = 0
            rows.append(
                [
                    dice(kept == value, truth) if truth.any() else np.nan
                    for value, truth in zip(self._classes, truths, strict=True)
                ]
            )

    def values(self) -> tuple[int, ...]:
        """Return the argument of `keep_largest`."""
        scores = {key: np.array(rows) for key, rows in self._scores.items()}
        if not scores[False, False].size:
            return ()
        all_together = scores[True, False] - scores[False, False]
        together = _is_gain(all_together.ravel())
        gain = scores[together, True] - scores[together, False]
        single = [value for value in self._classes if _is_gain(gain[:, value - 1])]
        return tuple([TOGETHER] * together + single)


def _is_gain(differences: npt.NDArray[np.floating[Any]]) -> bool:
    """Return whether mean Dice rises and none falls by more than `WORSE`; NaN does not count."""
    known = differences[np.isfinite(differences)]
    return bool(known.size and known.mean() > 0 and known.min() > -WORSE)


Pairs = Iterator[tuple[str, Mask, Mask]]


class SegmentationValidation:
    """Dice of the averaged weights on cases that are not trained on.

    Args:
        network: A network of the same sizes as the one that is trained, on its device.

    Attributes:
        before_window: Callback before each window is computed; what it raises ends the validation.
        on_answer: Callback for each case and, class by class, name, answer and truth.
        took: Seconds that each case's answer for the last `rows` took, and those of the processor.
    """

    def __init__(
        self,
        network: nn.Module,
        plan: NetworkPlan,
        cases: Sequence[LabelledCase],
        classes: Sequence[ClassValue],
        *,
        overlap: float,
        averages_flips: bool,
    ) -> None:
        device = next(network.parameters()).device
        labels = tuple(c.label for c in classes)
        self.segmenter = AutomaticSegmenter(
            network.eval(),
            plan,
            labels,
            "model",
            "0",
            device,
            pick_precision(device),
            has_regions(classes),
        )
        self.classes = list(classes)
        self.cases = KeptCases(cases, self.classes)
        self._members = lookup_table(self.classes)
        self.overlap = overlap
        self.averages_flips = averages_flips
        self.before_window: Callable[[], None] = lambda: None
        self.on_answer: Callable[[LabelledVolume, Pairs], None] = lambda case, pairs: None
        self.took: list[tuple[float, float]] = []

    def __call__(self, state: dict[str, Tensor]) -> dict[str, float]:
        """Score weights.

        Returns:
            `score`, the mean over cases and classes, and the mean Dice of each class; a class
            counts in those cases where it is in the answer or the labels.
        """
        self.segmenter.network.load_state_dict(state)
        found: dict[str, list[float]] = {c.label.name: [] for c in self.classes}
        scores = []
        for case in self.cases:
            answer = self._answer(case)
            self.on_answer(case, self._pairs(answer, case))
            of_case = []
            for name, mask, truth in self._pairs(answer, case):
                if mask.any() or truth.any():
                    of_case.append(dice(mask, truth))
                    found[name].append(of_case[-1])
            scores += [sum(of_case) / len(of_case)] if of_case else []
        means = {f"dice_{name}": sum(v) / len(v) for name, v in found.items() if v}
        return {"score": sum(scores) / len(scores) if scores else float("nan"), **means}

    def rows(self) -> list[MetricRow]:
        """Dice, ASSD, HD and HD95 of every case and class, of the weights that were scored last.

        Classes that gain by it are of one piece from now on, as `segmenter.single_piece` says.
        """
        self.took.clear()
        # 1. Answer every case with all pieces, and keep the label maps, which compress well.
        self.segmenter.single_piece = ()
        choice = SinglePieceChoice(len(self.classes))
        packed: list[bytes] = []
        for case in self.cases:
            began, worked = time.monotonic(), time.process_time()
            answer = self._answer(case)
            self.took.append((time.monotonic() - began, time.process_time() - worked))
            if not self.segmenter.has_regions:
                truths = [truth for _, _, truth in self._pairs(answer, case)]
                choice.add(answer.labels, truths, _known(case))
            packed.append(zlib.compress(_found(answer).tobytes(), 1))
        # 2. Decide for all cases alike.
        self.segmenter.single_piece = choice.values()
        # 3. Measure what a user gets.
        rows = []
        for case, content in zip(self.cases, packed, strict=True):
            found = np.frombuffer(zlib.decompress(content), _found(answer).dtype).copy()
            result = self._as_answer(found.reshape(case.labels.shape))
            for name, mask, truth in self._pairs(result, case):
                spacing = case.volume.spacing_mm
                row = mask_metrics(mask, truth, spacing, case=case.name, label=name)
                if _known(case) is not None:  # a surface that ends where knowledge does is none
                    row = replace(row, assd_mm=None, hd_mm=None, hd95_mm=None)
                rows.append(row)
        return rows

    def _as_answer(self, found: npt.NDArray[np.unsignedinteger[Any]]) -> LabelMap:
        """Return an answer of its labels, or of the bits of its regions."""
        if self.segmenter.has_regions:
            return LabelMap.of_regions(found, self.segmenter.classes)
        keep_largest(found, self.segmenter.single_piece)
        return LabelMap(found, self.segmenter.classes)

    def _answer(self, case: LabelledVolume) -> LabelMap:
        def go_on() -> bool:
            self.before_window()
            return False

        with torch.inference_mode():
            return self.segmenter.segment(
                case.volume,
                overlap=self.overlap,
                averages_flips=self.averages_flips,
                watch=Watch(go_on),
            )

    def _pairs(self, answer: LabelMap, case: LabelledVolume) -> Pairs:
        """Name, answer and truth of each class; of a region all of it.

        Of a class that was not drawn in the case, and of unknown voxels, there is neither.
        """
        known = _known(case)
        for number, (one, members) in enumerate(
            zip(self.classes, self._members, strict=True), start=1
        ):
            mask, truth = answer.mask(number), members[case.labels]
            if case.drawn is not None and not case.drawn[number - 1]:
                mask, truth = np.zeros_like(mask), np.zeros_like(truth)
            yield one.label.name, mask if known is None else mask & known, truth


def _known(case: LabelledVolume) -> Mask | None:
    """Voxels of which it is known what they are, bool (D, H, W); None for all."""
    known = case.labels != UNKNOWN
    return None if known.all() else known


def _found(answer: LabelMap) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return what an answer can be restored from."""
    return answer.labels if answer.regions is None else answer.regions
