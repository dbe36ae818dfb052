"""Random batches of fields with targets and a simulated user's first prompts."""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pumit.preprocessing.fields import field_channels, field_shape
from pumit.training.loop.task import Batch
from pumit.training.promptable.label_maps import LabelMaps
from pumit.training.promptable.real_scan import RealScan
from pumit.training.promptable.simulated_prompts import PromptState, first_prompts, one_click
from pumit.training.synthesis.grid import flip_and_turn, pick
from pumit.training.synthesis.layout import USUAL_SHARES, SceneShares
from pumit.training.synthesis.scene import UNKNOWN, Scene, draw_scene

ENDS = 0.3  # share of fields that contain an edge of the scan
# Batch size multiplier of each degree of anisotropy: thinner fields come in larger batches.
FIELDS = {0: 1, 1: 1, 2: 2, 3: 3, 4: 4, 5: 8}
TRIES = 4  # attempts to draw a scene
# Predictions per target (the first, and one after each correction) and their shares.
ROUNDS: Mapping[int, float] = {2: 0.34, 3: 0.33, 5: 0.19, 7: 0.09, 10: 0.05}


def draw_depth(da0: int, size: int, shared: torch.Generator) -> int:
    """Draw the number of slices of a step's fields: often all, else fewer, as in a thin stack."""
    whole = field_shape(da0, size)[0]
    unit = max(8 >> da0, 1)  # three downsampling steps need multiples of this
    if da0 >= 4 or torch.rand((), generator=shared) < 0.5:
        return whole
    # At least two units: with two slices at 1/4, bfloat16 weight gradients of oneDNN's 3^3
    # convolution are sometimes garbage (torch 2.13, CPU).
    return unit * int(torch.randint(2, whole // unit + 1, (), generator=shared))


def cut_out(
    stack: Tensor, depth: int, generator: torch.Generator, ends: float = ENDS
) -> tuple[Tensor, Tensor]:
    """Crop a field to fewer slices around its first target, and sometimes simulate a scan edge.

    Args:
        stack: Image and targets, (1 + T, D, H, W).

    Returns:
        Inside mask (depth, H, W), 0 outside the scan, and the stack (1 + T, depth, H, W).
    """
    # 1. Keep fewer slices, at least one of which shows the first target.
    whole = stack.shape[1]
    slices = torch.nonzero(stack[1].any(-1).any(-1)).flatten()
    middle = int(slices[int(torch.randint(len(slices), (), generator=generator))])
    low, high = max(0, middle - depth + 1), min(middle, whole - depth)
    start = int(torch.randint(low, high + 1, (), generator=generator))
    stack = stack[:, start : start + depth]
    # 2. In some fields the scan ends before or after a voxel of that target.
    inside = torch.ones(stack.shape[1:], device=stack.device)
    if torch.rand((), generator=generator) < ends:
        at = torch.nonzero(stack[1])
        place = at[int(torch.randint(len(at), (), generator=generator))]
        for axis, n in enumerate(stack.shape[1:]):
            if n == 1 or torch.rand((), generator=generator) < 0.5:
                continue
            # The edge lies anywhere between that voxel and the face of the field.
            before = int(torch.randint(0, int(place[axis]) + 1, (), generator=generator))
            after = int(torch.randint(int(place[axis]) + 1, n + 1, (), generator=generator))
            cut = torch.ones(n, device=stack.device)
            if torch.rand((), generator=generator) < 0.5:
                cut[:before] = 0
            else:
                cut[after:] = 0
            if int(cut.sum()) >= min(4, n):
                inside = inside * cut.view([-1 if a == axis else 1 for a in range(3)])
    return inside, stack.clone()


class Scans(Protocol):
    """Scans to cut scenes from; a wide one has classes and covers much of its scan."""

    scans: list[RealScan]

    def draw(
        self, da0: int, size: int, generator: torch.Generator, *, is_wide: bool = False
    ) -> Scene | None:
        """Return a scene of a degree of anisotropy, or None if it has no usable target."""


@dataclass
class DrawnField:
    """One training field with its targets and the voxels of each outside it; see `FieldBatch`."""

    image: Tensor
    masks: list[Tensor]
    hidden: list[float]
    classes: Tensor
    regions: Tensor


@dataclass
class FieldBatch(Batch):
    """Fields of one degree of anisotropy, each with the same number of targets.

    Attributes:
        image: (B, 3, D, H, W).
        target: (T, D, H, W) bool; the targets of one field are adjacent.
        ratio: (T,) slice ratio, 0 in 2D.
        states: Simulated first prompts, per target.
        is_real: (T,) bool, whether the scene is from a real scan and `is_labelled`.
        beyond: (T,) number of voxels of the target outside its field; NaN if unknown.
        classes: Class of each voxel, (B, D, H, W); `UNKNOWN` if not annotated.
        regions: Region of each voxel within its field, (B, D, H, W); `UNKNOWN` if not annotated.
        more: Additional images (M, 3, D, H, W) with classes but no targets.
        more_classes: Classes of `more`, (M, D, H, W).
    """

    image: Tensor
    target: Tensor
    ratio: Tensor
    da0: int
    rounds: int
    rng: np.random.Generator
    states: list[PromptState]
    is_real: Tensor
    beyond: Tensor
    classes: Tensor
    regions: Tensor
    more: Tensor
    more_classes: Tensor

    def __len__(self) -> int:
        return len(self.image)

    @property
    def voxels(self) -> int:
        """Number of voxels of all fields, for the log."""
        return self.image[:, 0].numel()


@dataclass
class FieldSource:
    """Source of fields from generated and real scans, with simulated first prompts.

    Attributes:
        field_size: In-plane size of a field, voxels.
        scans: Real scans to mix in, or None for generated ones only.
        real_share: Share of fields from real scans, for all degrees of anisotropy or by degree.
        field_sizes: In-plane field sizes, each with its share of the steps; None means always
            `field_size`. The batch size is scaled to keep the voxel count about constant.
        batch_size: Fields per step, before the factor in `FIELDS`.
        rounds: Numbers of predictions per target, each with its share of the steps.
        one_click: Share of real targets that start from a single click; the others draw from
            `first_prompts`, like generated ones.
        more_fields: Number of fields for the class loss only, per field with targets.
        generated_from: Number of the first class of generated scenes; None gives them no classes.
    """

    field_size: int
    _: KW_ONLY
    scans: Scans | None = None
    real_share: float | Mapping[int, float] = 0.35
    label_maps: LabelMaps | None = None
    map_share: float = 0.0
    field_sizes: Mapping[int, float] | None = None
    batch_size: int = 4
    targets_per_field: int = 2
    device: torch.device = torch.device("cpu")  # noqa: RUF009 - never changed
    rounds: Mapping[int, float] = field(default_factory=lambda: ROUNDS)
    one_click: float = 0.0
    more_fields: float = 0.0
    generated_from: int | None = None
    scene_shares: SceneShares = USUAL_SHARES

    def prepare(self) -> None:
        """Build the image pyramids before workers start, which would each build and hold a copy."""
        for scan in self.scans.scans if self.scans is not None else []:
            _ = scan.image.levels

    def _size(self, shared: torch.Generator) -> int:
        """Draw the in-plane size of this step's fields, voxels."""
        sizes = self.field_sizes or {self.field_size: 1.0}
        return pick(shared, sizes) if len(sizes) > 1 else next(iter(sizes))

    def _scene(self, da0: int, size: int, generator: torch.Generator) -> tuple[Scene, bool]:
        """Return a scene, and whether it is from a real scan and `is_labelled`."""
        share = self._real_share(da0)
        draw = float(torch.rand((), generator=generator))
        for _ in range(TRIES):
            scene = None
            if self.scans is not None and draw < share:
                scene = self.scans.draw(da0, size, generator)
            elif self.label_maps is not None and draw < share + self.map_share:
                scene = self.label_maps.draw(da0, size, generator, self.device)
            if scene is not None:
                return scene, scene.is_labelled and draw < share
        return self._generated(da0, size, generator), False

    def _real_share(self, da0: int) -> float:
        share = self.real_share
        return share if isinstance(share, float) else share.get(da0, 0.0)

    def _generated(self, da0: int, size: int, generator: torch.Generator) -> Scene:
        scene = draw_scene(da0, size, generator, self.device, self.scene_shares)
        if self.generated_from is None or scene.classes is None:
            return replace(scene, classes=None)
        return replace(scene, classes=scene.classes + self.generated_from)

    def _wide(self, da0: int, size: int, generator: torch.Generator) -> Scene | None:
        """Draw a scene with classes, or return None; without `generated_from` only from scans."""
        draw, share = -1.0, self._real_share(da0)
        if self.generated_from is not None:
            draw = float(torch.rand((), generator=generator))
        for _ in range(TRIES if draw >= share else 0):
            if draw < share + self.map_share and self.label_maps is not None:
                scene = self.label_maps.draw(da0, size, generator, self.device, is_wide=True)
            else:
                scene = self._generated(da0, size, generator)
            if scene is not None and scene.classes is not None:
                return scene
        if self.scans is None:
            return None
        return self.scans.draw(da0, size, generator, is_wide=True)

    def _field(
        self, scene: Scene, depth: int, generator: torch.Generator, *, ends: float = ENDS
    ) -> DrawnField:
        """Augment a scene, crop it to `depth` slices and sometimes simulate a scan edge."""
        # 1. Image, targets, inside mask, classes and regions as one stack (C, D, H, W).
        order = torch.randperm(len(scene.targets), generator=generator).tolist()
        there = [] if scene.inside is None else [scene.inside]
        unknown = torch.full_like(scene.image, UNKNOWN)
        known = [unknown if x is None else x.to(unknown) for x in (scene.classes, scene.regions)]
        masks = [scene.targets[i] for i in order]
        stack = torch.stack([scene.image, *masks, *there, *known]).to(self.device)
        if not scene.is_upright:
            stack = flip_and_turn(stack.float(), generator)
        wholes = [
            whole_voxels(stack[1 + n]) if scene.wholes is None else scene.wholes[i]
            for n, i in enumerate(order)
        ]
        # 2. Crop, and count the voxels of each target that are cut off.
        inside, stack = cut_out(stack, depth, generator, ends)
        classes, regions = torch.where(inside > 0, stack[-2:], UNKNOWN).round().short()
        stack = stack[:-2]
        hidden = [
            max(whole - float((t > 0.5).sum()), 0.0) if whole == whole else whole
            for whole, t in zip(wholes, stack[1:], strict=False)
        ]
        stack[1:] *= inside
        if there:
            inside, stack = stack[-1], stack[:-1]
        # 3. Input channels of the network, (3, D, H, W).
        shown = field_channels(stack[0].cpu().numpy(), inside.cpu().numpy())
        image = torch.from_numpy(shown).to(inside.device)
        return DrawnField(image, [t > 0.5 for t in stack[1:]], hidden, classes, regions)

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> FieldBatch:
        """Draw a batch of one degree of anisotropy; thinner fields come in larger batches.

        Args:
            generator: CPU generator of this process and step.
            shared: Generator with the same state in every process, for choices that determine
                the duration of a step.
        """
        fields, targets, ratios, real, beyond = [], [], [], [], []
        # 1. Field size, the same in every process, and the number of fields.
        size = self._size(shared)
        depth = draw_depth(da0, size, shared)
        batch_size = max(1, round(self.batch_size * (self.field_size / size) ** 3))
        count = batch_size * FIELDS[da0]
        # 2. Each field (D, H, W) with some of its masks; compact masks are drawn less often.
        for _ in range(count):
            scene, is_real = self._scene(da0, size, generator)
            drawn = self._field(scene, depth, generator)
            fields.append(drawn)
            usable = [i for i, m in enumerate(drawn.masks) if int(m.sum()) >= 8] or [0]
            rarity = torch.tensor([(1.1 - box_fill(drawn.masks[i])) ** 2 for i in usable])
            chosen = torch.multinomial(rarity, self.targets_per_field, True, generator=generator)
            targets += [drawn.masks[usable[int(i)]] for i in chosen]
            beyond += [drawn.hidden[usable[int(i)]] for i in chosen]
            ratios += [0.0 if da0 == 5 else scene.slice_ratio] * self.targets_per_field
            real += [is_real] * self.targets_per_field
        # 3. Fields for the class loss only, then the first prompts of each target.
        wide = [self._wide(da0, size, generator) for _ in range(round(count * self.more_fields))]
        more = [
            self._field(scene, depth, generator, ends=0.0)
            for scene in wide
            if scene is not None and scene.classes is not None
        ]
        rng = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
        target = torch.stack(targets)
        begins = zip(
            target.cpu().numpy(), ratios, spawn_generators(rng, len(targets)), real, strict=True
        )
        states = [
            one_click(mask, ratio, own)
            if is_real and self.one_click and own.random() < self.one_click
            else first_prompts(mask, ratio, own)
            for mask, ratio, own, is_real in begins
        ]
        # 4. Number of prediction rounds, the same in every process.
        rounds = pick(shared, self.rounds)
        return FieldBatch(
            torch.stack([field.image for field in fields]),
            target,
            torch.tensor(ratios),
            da0,
            rounds,
            rng,
            states,
            torch.tensor(real),
            torch.tensor(beyond),
            torch.stack([field.classes for field in fields]),
            torch.stack([field.regions for field in fields]),
            torch.stack([field.image for field in more]) if more else drawn.image.new_empty(0),
            torch.stack([field.classes for field in more]) if more else drawn.classes.new_empty(0),
        )


def spawn_generators(rng: np.random.Generator, count: int) -> list[np.random.Generator]:
    """Return one generator per sample, so that samples do not affect each other's random draws."""
    return [np.random.default_rng(int(seed)) for seed in rng.integers(2**62, size=count)]


def whole_voxels(target: Tensor) -> float:
    """Count the voxels of a target (D, H, W), or return NaN if it may continue outside the scene.

    A target that touches a face may continue beyond it. The depth faces of a single slice do not
    count.
    """
    mask = target > 0.5
    for axis, n in enumerate(mask.shape):
        if n > 1 and bool(mask.select(axis, 0).any() | mask.select(axis, n - 1).any()):
            return math.nan
    return float(mask.sum())


def box_fill(mask: Tensor) -> float:
    """Return the share of its bounding box that a mask (D, H, W) fills, 0 to 1.

    Organs are oblique and bent and fill about a third. Compact shapes, which are easy to generate
    and segment, would teach the network to fill the whole box.
    """
    ends = []
    for axes in ((1, 2), (0, 2), (0, 1)):
        hit = torch.nonzero(mask.any(axes[1]).any(axes[0])).flatten()
        ends.append(int(hit[-1] - hit[0]) + 1 if len(hit) else 1)
    return float(mask.sum()) / (ends[0] * ends[1] * ends[2])
