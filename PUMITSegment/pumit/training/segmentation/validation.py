"""Validation on whole cases, with the same inference as in use."""

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
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

WORSE = 0.005  # maximum loss of Dice in a single case if the mean rises


class SinglePieceChoice:
    """Choice of the classes for which only the largest connected component is kept.

    Source:
        nnU-Net's post-processing: first all classes together, then each separately, wherever that
        raises Dice.
    """

    def __init__(self, count: int) -> None:
        self._classes = range(1, count + 1)
        # Dice by case (rows) and class (columns): of the full prediction, of its largest component,
        # of the largest component of each class, and of both.
        self._scores: dict[tuple[bool, bool], list[list[float]]] = {
            (together, each): [] for together in (False, True) for each in (False, True)
        }

    def add(
        self,
        labels: npt.NDArray[np.unsignedinteger[Any]],
        truths: Sequence[Mask],
        known: Mask | None = None,
    ) -> None:
        """Add a case: prediction with all components (D, H, W), and the truth of each class.

        Voxels that are not `known`, bool (D, H, W), do not count.
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
        """Return the chosen classes as the argument of `keep_largest`."""
        scores = {key: np.array(rows) for key, rows in self._scores.items()}
        if not scores[False, False].size:
            return ()
        all_together = scores[True, False] - scores[False, False]
        together = _is_gain(all_together.ravel())
        gain = scores[together, True] - scores[together, False]
        single = [value for value in self._classes if _is_gain(gain[:, value - 1])]
        return tuple([TOGETHER] * together + single)


def _is_gain(differences: npt.NDArray[np.floating[Any]]) -> bool:
    """Return whether mean Dice rises and no case falls by `WORSE` or more; NaN is ignored."""
    known = differences[np.isfinite(differences)]
    return bool(known.size and known.mean() > 0 and known.min() > -WORSE)


Pairs = Iterator[tuple[str, Mask, Mask]]


class SegmentationValidation:
    """Dice of the averaged weights on the validation cases.

    Args:
        network: Network of the same sizes as the trained one, on its device.

    Attributes:
        averages_flips: Whether to average the predictions of eight flips.
        before_window: Called before each window; an exception ends the validation.
        on_answer: Called with each case and the name, prediction and ground truth of each class.
        took: Wall time and CPU time of each case's prediction in the last `rows`, s.
        expected_dice: Mean expected Dice of each class in the last `rows`; None if never found.
    """

    def __init__(
        self,
        network: nn.Module,
        plan: NetworkPlan,
        cases: Sequence[LabelledCase],
        classes: Sequence[ClassValue],
        *,
        overlap: float,
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
        self.averages_flips = False
        self.before_window: Callable[[], None] = lambda: None
        self.on_answer: Callable[[LabelledVolume, Pairs], None] = lambda case, pairs: None
        self.took: list[tuple[float, float]] = []
        self.expected_dice: list[float | None] = []

    def __call__(self, state: dict[str, Tensor]) -> dict[str, float]:
        """Validate weights.

        Returns:
            `score`, the mean Dice over cases of the mean over classes, and the mean Dice of each
            class. A class counts in cases where it is in prediction or ground truth.
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
        """Return Dice, ASSD, HD and HD95 of every case and class, with the current weights.

        This also sets `segmenter.single_piece` to the classes that gain from keeping only their
        largest component.
        """
        self.took.clear()
        # 1. Predict every case with all components, and keep the compressed label maps.
        self.segmenter.single_piece = ()
        choice = SinglePieceChoice(len(self.classes))
        packed: list[bytes] = []
        expected: list[tuple[float | None, ...]] = []
        for case in self.cases:
            began, worked = time.monotonic(), time.process_time()
            answer = self._answer(case)
            self.took.append((time.monotonic() - began, time.process_time() - worked))
            if not self.segmenter.has_regions:
                truths = [truth for _, _, truth in self._pairs(answer, case)]
                choice.add(answer.labels, truths, _known(case))
            expected.append(answer.expected_dice)
            packed.append(zlib.compress(_found(answer).tobytes(), 1))
        # 2. Choose the classes for all cases.
        self.segmenter.single_piece = choice.values()
        self.expected_dice = [_mean(found) for found in zip(*expected, strict=True)]
        # 3. Measure the final predictions.
        rows = []
        for case, content in zip(self.cases, packed, strict=True):
            found = np.frombuffer(zlib.decompress(content), _found(answer).dtype).copy()
            result = self._as_answer(found.reshape(case.labels.shape))
            for name, mask, truth in self._pairs(result, case):
                spacing = case.volume.spacing_mm
                row = mask_metrics(mask, truth, spacing, case=case.name, label=name)
                if _known(case) is not None:  # surfaces are cut off at unknown voxels
                    row = replace(row, assd_mm=None, hd_mm=None, hd95_mm=None)
                rows.append(row)
        return rows

    def _as_answer(self, found: npt.NDArray[np.unsignedinteger[Any]]) -> LabelMap:
        """Return a prediction from its labels, or from the bits of its regions."""
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
        """Yield name, prediction and ground truth of each class or region.

        Both masks are empty for unannotated classes and in unknown voxels.
        """
        known = _known(case)
        for number, (one, members) in enumerate(
            zip(self.classes, self._members, strict=True), start=1
        ):
            mask, truth = answer.mask(number), members[case.labels]
            if case.drawn is not None and not case.drawn[number - 1]:
                mask, truth = np.zeros_like(mask), np.zeros_like(truth)
            yield one.label.name, mask if known is None else mask & known, truth


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


def _known(case: LabelledVolume) -> Mask | None:
    """Return the mask of annotated voxels, bool (D, H, W); None if all are."""
    known = case.labels != UNKNOWN
    return None if known.all() else known


def _found(answer: LabelMap) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return the array from which a prediction can be restored."""
    return answer.labels if answer.regions is None else answer.regions
