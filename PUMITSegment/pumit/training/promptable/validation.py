"""Validation with simulated clicks on held-out cases and on generated scans."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import dice_after_clicks, simulate_clicks
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.inference.engine.torch_engine import TorchEngine
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.training.data.case import CaseFacts, KeptCases, LabelledVolume
from pumit.training.data.classes import ClassValue, lookup_table
from pumit.training.data.labelled_set import LabelledCase
from pumit.training.promptable.real_scan import FEWEST_VOXELS
from pumit.training.synthesis.scene import draw_scene
from pumit.volume import Volume

CLICKS = 3
# Generated scans are larger than one field, like real ones, and cover the usual degrees.
SCENE_SIZE = 80
SCENE_DEGREES = (0, 2, 1, 5, 2, 3)
SCENE_SEED = 70_000  # far from the seeds of training
OUTSIDE = 0.0002  # share of a layer's inputs on either side of their range
MOST_VALUES = 1 << 14  # per call; sorting more would slow a validation down

Mask = npt.NDArray[np.bool_]
Pairs = Iterable[tuple[str, Mask, Mask]]  # name, prediction and ground truth of each class


@dataclass(frozen=True)
class ClickRow:
    """Dice of a structure of a case after each click."""

    case: str
    label: str
    clicks: tuple[float, ...]


def validated_structures(
    facts: Mapping[str, CaseFacts], cases: Sequence[str], classes: Sequence[ClassValue], most: int
) -> dict[str, list[int]]:
    """Choose which classes to click on in which cases, cycling through classes and cases.

    Returns:
        Class numbers, from 0, by case, `most` in total; cases without any are left out.
    """
    having = [
        [
            c
            for c in cases
            if facts[c].class_voxels[i + 1] >= FEWEST_VOXELS and i + 1 not in facts[c].cut
        ]
        for i in range(len(classes))
    ]
    turns: list[tuple[str, int]] = []
    for turn in range(len(cases)):
        for i, names in enumerate(having):
            if turn < len(names):
                # Each class starts at another case, so that few structures cover many cases.
                turns.append((names[(turn + i) % len(names)], i))
    chosen = turns[:most]
    return {c: sorted(i for name, i in chosen if name == c) for c in cases if c in dict(chosen)}


class ClickValidation:
    """Validation by Dice after one and after three clicks in an `InteractiveSession`.

    Args:
        segmenter: Model of the same sizes as the trained one; its weights are replaced.
        structures: Classes to click on in each case, from `validated_structures`.
        known_ranges: Ranges of the initial model's layers; empty for none.

    Attributes:
        before_click: Callback before each structure; may raise.
        on_answer: Callback for each case and its masks after one click.
        ranges: Ranges of the layers' inputs in the last evaluation; see `measured_ranges`.
    """

    def __init__(
        self,
        segmenter: Segmenter,
        cases: Sequence[LabelledCase],
        structures: Mapping[str, Sequence[int]],
        classes: Sequence[ClassValue],
        *,
        scenes: int,
        known_ranges: Mapping[str, Sequence[float]],
    ) -> None:
        # The IoU calibration was measured with other weights and does not hold for these.
        recipe = {k: v for k, v in segmenter.recipe.items() if k != "calibration"}
        self.segmenter = replace(segmenter, recipe=recipe)
        assert isinstance(segmenter.engine, TorchEngine)
        self.network = segmenter.engine.network
        self.structures = dict(structures)
        self.classes = list(classes)
        self.cases = KeptCases([c for c in cases if c.name in structures], self.classes)
        self.scenes = scenes
        self.rows: list[ClickRow] = []
        self._known = known_ranges
        self.ranges: dict[str, list[float]] = {}
        self.before_click: Callable[[], None] = lambda: None
        self.on_answer: Callable[[LabelledVolume, Pairs], None] = lambda case, pairs: None
        self._before: list[float] | None = None

    def begin(self, state: Mapping[str, Tensor]) -> dict[str, float]:
        """Evaluate the initial weights, the baseline for `forgotten`."""
        self._before = None
        found = self(dict(state))
        self._before = self._scene_scores
        return found

    def __call__(self, state: dict[str, Tensor]) -> dict[str, float]:
        """Evaluate weights.

        Returns:
            `dice_1` and `dice_3`: means over classes. `dice_<class>`: after the first click.
            `dice_generated`: after the first click on generated scans. `forgotten`: its decrease
            since `begin`. `score`: `dice_1` minus `forgotten` if positive.
        """
        self.network.load_state_dict(state)
        with (
            torch.inference_mode(),
            measured_ranges(self.network, self._known) as self.ranges,
        ):
            self.rows = list(self._rows())
            self._scene_scores = list(self._generated())
        of_class: dict[str, list[tuple[float, ...]]] = {}
        for row in self.rows:
            of_class.setdefault(row.label, []).append(row.clicks)
        means = {name: np.mean(clicks, axis=0) for name, clicks in of_class.items()}
        found: dict[str, float] = {}
        if means:
            found["dice_1"] = float(np.mean([m[0] for m in means.values()]))
            found[f"dice_{CLICKS}"] = float(np.mean([m[-1] for m in means.values()]))
        lost = 0.0
        if self._scene_scores:
            found["dice_generated"] = float(np.mean(self._scene_scores))
            if self._before is not None:
                lost = float(np.mean(self._before)) - found["dice_generated"]
                found["forgotten"] = lost
        score = found.get("dice_1", float("nan")) - max(0.0, lost)
        return {"score": score, **found, **{f"dice_{k}": float(m[0]) for k, m in means.items()}}

    def _rows(self) -> Iterator[ClickRow]:
        table = lookup_table(self.classes)
        for case in self.cases:
            session = InteractiveSession(self.segmenter)
            session.set_volume(case.volume)
            first: dict[int, Mask] = {}
            for i in self.structures[case.name]:
                self.before_click()
                session.reset()
                target, scores = table[i][case.labels], []
                for mask, _ in simulate_clicks(session, target, CLICKS):
                    first.setdefault(i, mask)
                    scores.append(dice(mask, target))
                scores += [1.0] * (CLICKS - len(scores))  # no error left to click on
                yield ClickRow(case.name, self.classes[i].label.name, tuple(scores))
            nothing = np.zeros(case.labels.shape, dtype=bool)
            self.on_answer(
                case,
                (
                    (c.label.name, first[i], table[i][case.labels])
                    if i in first
                    else (c.label.name, nothing, nothing)
                    for i, c in enumerate(self.classes)
                ),
            )

    def _generated(self) -> Iterator[float]:
        for number in range(self.scenes):
            self.before_click()
            volume, target = generated_scan(number)
            session = InteractiveSession(self.segmenter)
            session.set_volume(volume)
            scores, _ = dice_after_clicks(session, target, 1)
            yield scores[0]


def generated_scan(number: int) -> tuple[Volume, Mask]:
    """Generate a scan and a target mask, deterministic for each number."""
    generator = torch.Generator().manual_seed(SCENE_SEED + number)
    da0 = SCENE_DEGREES[number % len(SCENE_DEGREES)]
    scene = draw_scene(da0, SCENE_SIZE, generator)
    slices_mm = PLANAR_SLICE_SPACING_MM if da0 == 5 else scene.slice_ratio
    order = int(torch.randint(len(scene.targets), (), generator=generator))
    target: Any = scene.targets[order].numpy()
    return Volume(scene.image.numpy(), (slices_mm, 1.0, 1.0)), target > 0.5


@contextmanager
def measured_ranges(
    network: nn.Module, known: Mapping[str, Sequence[float]]
) -> Iterator[dict[str, list[float]]]:
    """Measure the inputs of a network's layers, for models that multiply in eight bits on CPUs.

    Args:
        known: Ranges of the initial weights, by the names of `GraphLayers`; they become wider only.

    Yields:
        The ranges, which grow with each call of the network.
    """
    modules = dict(network.named_modules())
    ranges = {name: [float(end) for end in ends] for name, ends in known.items()}
    # A convolution of joined channels has a range for each part, by its first channel.
    layers: dict[str, list[int]] = {}
    for name in ranges:
        layer, _, first = name.rpartition(".")
        if first.isdigit() and isinstance(modules.get(layer), nn.Conv3d):
            layers.setdefault(layer, []).append(int(first))
        else:
            layers[name] = []
    handles = [
        modules[layer].register_forward_pre_hook(_hook(ranges, layer, sorted(starts)))
        for layer, starts in layers.items()
        if layer in modules
    ]
    try:
        yield ranges
    finally:
        for handle in handles:
            handle.remove()


def _hook(ranges: dict[str, list[float]], layer: str, starts: Sequence[int]) -> Any:
    def note(_: nn.Module, given: tuple[Any, ...]) -> None:
        x: Tensor = given[0].detach()
        if not starts:
            _widen(ranges[layer], x)
        for start, stop in pairwise([*starts, None] if starts else []):
            _widen(ranges[f"{layer}.{start}"], x[:, start:stop])

    return note


def _widen(ends: list[float], x: Tensor) -> None:
    values = x.reshape(-1)
    # An odd step, so that all places of a grid are drawn.
    values = values[:: (len(values) // MOST_VALUES) | 1].float()
    both = torch.quantile(values, values.new_tensor([OUTSIDE, 1 - OUTSIDE]))
    least, most = (round(end, 4) for end in both.tolist())
    ends[:] = [min(ends[0], least), max(ends[1], most)]
