"""Automatic segmentation of a whole scan, or a region of it, by a trained multi-class network.

A network with mutually exclusive classes has the background as channel 0; each voxel gets the most
probable class. A network with regions (recipe key `regions`) has one sigmoid output per region, and
a voxel belongs to all regions above 0.5. Its result has every complete region, and a label map in
which later regions overwrite earlier ones, as in nnU-Net.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pumit.errors import CheckpointError, VolumeError
from pumit.inference.automatic.components import keep_largest
from pumit.inference.automatic.openvino_network import (
    FEWEST_WINDOWS,
    CompiledNetwork,
    compiled,
    suits_openvino,
)
from pumit.inference.automatic.region import Region
from pumit.inference.automatic.sliding_window import SlidingWindow, class_scores
from pumit.inference.loading import build_from, computing_in, open_model, pick_precision
from pumit.models.card import classes_of
from pumit.models.ensemble import members_of
from pumit.models.overlap import is_doubtful, usual_dice
from pumit.preprocessing.channels import ANY_CHANNELS, ExpectedChannels, image_channels
from pumit.preprocessing.network_axes import NetworkAxes, Orientation
from pumit.preprocessing.normalization import Normalization
from pumit.preprocessing.resize import resize, resize_plane, resized_shape, slice_positions
from pumit.segmentation import ClassLabel, LabelMap, region_type
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume

# Beyond this many voxels the image alone would take gigabytes.
MAX_GRID_VOXELS = 1 << 29


@dataclass(frozen=True)
class NetworkPlan:
    """Pre-processing plan of an automatic network: grid, patch and normalisation.

    Attributes:
        spacing_mm: Voxel size (d, h, w), depth first, mm.
        patch: Patch size (d, h, w), voxels.
        normalizations: Intensity normalisation, one for all channels or one per channel.
    """

    spacing_mm: tuple[float, float, float]
    patch: tuple[int, int, int]
    channels: int
    normalizations: tuple[Normalization, ...]
    orientation: Orientation = "anatomical"

    @staticmethod
    def from_recipe(recipe: Mapping[str, Any]) -> NetworkPlan:
        """Read the `plan` of a recipe.

        Its keys are `spacing_mm`, `patch_size`, `intensity` (see `Normalization.from_recipe`; a
        list has one per channel), and optionally `channels` (default 1) and `orientation` (default
        "anatomical").

        Raises:
            CheckpointError: If something is missing or cannot be used.
        """
        try:
            plan = recipe["plan"]
            spacing = tuple(float(s) for s in plan["spacing_mm"])
            patch = tuple(int(n) for n in plan["patch_size"])
            channels = int(plan.get("channels", 1))
            orientation = plan.get("orientation", "anatomical")
            intensity = plan["intensity"]
            rules = intensity if isinstance(intensity, list) else [intensity]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"The model's recipe lacks a complete plan ({type(error).__name__}: {error}) "
                "with spacing_mm, patch_size and intensity; train or fetch it again."
            ) from None
        if not (
            len(spacing) == len(patch) == 3
            and min(*patch, channels) >= 1
            and all(0 < s < math.inf for s in spacing)
            and len(rules) in (1, channels)
            and orientation in get_args(Orientation)
        ):
            raise CheckpointError(
                f"The model's plan cannot be used: spacing {spacing} mm, patch {patch}, "
                f"{channels} channels, {len(rules)} of them with an intensity, orientation "
                f"{orientation!r}."
            )
        return NetworkPlan(
            (spacing[0], spacing[1], spacing[2]),
            (patch[0], patch[1], patch[2]),
            channels,
            tuple(Normalization.from_recipe(rule) for rule in rules),
            cast(Orientation, orientation),
        )


@dataclass(frozen=True)
class Member:
    """A network of an ensemble."""

    network: nn.Module
    plan: NetworkPlan


@dataclass
class AutomaticSegmenter:
    """An automatic model ready for inference.

    Attributes:
        network: Network in evaluation mode on its device.
        classes: Meaning of the output channels from 1 on (0 is background); with regions, from 0.
        channels: Channels that a scan must have; see `preprocessing.channels`.
        single_piece: Values of classes reduced to their largest component; see
            `components.keep_largest`. Not applied if classes may overlap.
        others: Further members of an ensemble; probabilities are averaged.
        usual_dice: Expected Dice of each class in scans that suit the model; empty if unknown.
        is_final: Whether the weights no longer change, so that the networks may be compiled.
    """

    network: nn.Module
    plan: NetworkPlan
    classes: tuple[ClassLabel, ...]
    name: str
    version: str
    torch_device: torch.device
    precision: torch.dtype
    has_regions: bool = False
    channels: ExpectedChannels = ANY_CHANNELS
    single_piece: tuple[int, ...] = ()
    others: tuple[Member, ...] = ()
    usual_dice: Sequence[float | None] = ()
    is_final: bool = False
    _compiled: dict[tuple[int, ...], CompiledNetwork | None] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def members(self) -> tuple[Member, ...]:
        """All networks of the ensemble."""
        return (Member(self.network, self.plan), *self.others)

    def segment(
        self,
        volume: Volume,
        *,
        channel: int = 0,
        roi_corners_lps: Sequence[Sequence[float]] | None = None,
        overlap: float = 0.75,
        averages_flips: bool = False,
        tells_doubt: bool = False,
        watch: Watch = UNWATCHED,
    ) -> LabelMap:
        """Segment a volume, or a region of it.

        Args:
            channel: Channel to use if the volume has more channels than the network.
            roi_corners_lps: Eight corners of a region, rotated or not, LPS mm; outside stays
                background. Intensity statistics are still those of the whole volume.
            overlap: Overlap of neighbouring windows, in [0, 1).
            averages_flips: Whether to average eight reflections: slower, slightly better.
            tells_doubt: Whether to return each voxel's probability of a wrong label.

        Returns:
            Label map on the volume's grid, with regions if the network has them.

        Raises:
            Cancelled: If the caller cancelled it.
            PromptError: If the region is outside the volume.
            VolumeError: If the volume is too large at the network's spacing, or lacks a channel.
            CheckpointError: If the network's outputs do not match its recipe.
        """
        # 1. The network's axis order, and the part of the volume to compute.
        self.channels.check(volume.channels, self.plan.channels)
        axes = NetworkAxes.of(volume, self.plan.orientation)
        start, stop = np.zeros(3, dtype=np.int64), np.asarray(volume.shape, dtype=np.int64)
        region: Region | None = None
        if roi_corners_lps is not None:
            region = Region.between(roi_corners_lps, volume)
            plans = [member.plan for member in self.members]
            half_mm = np.max([np.array(p.patch) * np.array(p.spacing_mm) for p in plans], 0) / 2
            margin = half_mm[np.argsort(axes.order)] / np.asarray(volume.spacing_mm)
            more = np.ceil(margin).astype(np.int64)
            start, stop = np.maximum(region.start - more, 0), np.minimum(region.stop + more, stop)

        # 2. Probabilities of each network on the volume's grid, slice by slice.
        done = [0.0] * len(self.members)

        def step(number: int, share: float) -> None:
            done[number] = share
            watch.check()
            watch.report(sum(done) / len(done))

        step(0, 0.0)
        box = axes.bounds(start, stop, volume.shape)
        found = np.zeros(volume.shape, dtype=self._dtype)
        target = axes.apply(found)[box]
        answers = [
            self._shares(
                number,
                network_image(volume, member.plan, axes, box=box, channel=channel),
                SlidingWindow(member.plan.patch, overlap, averages_flips),
                partial(step, number),
            )
            for number, member in enumerate(self.members)
        ]
        # 3. Labels from the mean probabilities; what is outside the region is background.
        inside: Tensor | None = None
        if region is not None:
            whole = np.zeros(volume.shape, dtype=bool)
            whole[region.window] = region.inside
            inside = torch.from_numpy(axes.apply(whole)[box].copy())
        outside = torch.zeros(len(self.classes) + (not self.has_regions), 1, 1)
        outside[0] = not self.has_regions
        label = _region_plane if self.has_regions else _label_plane
        sums = _OverlapSums(len(self.classes))
        doubt = np.zeros(volume.shape, dtype=np.uint8) if tells_doubt else None
        doubt_target = None if doubt is None else axes.apply(doubt)[box]
        try:
            for planes in zip(*answers, strict=True):
                at, shares = planes[0]
                if len(planes) > 1:
                    shares = torch.stack([plane for _, plane in planes]).mean(0)
                if inside is not None:
                    shares = torch.where(inside[at], shares, outside)
                target[at] = label(shares, sums)
                if doubt_target is not None:
                    doubt_target[at] = _doubt_plane(shares, self.has_regions)
        finally:
            for fast in self._compiled.values():
                if fast is not None:
                    fast.release()
        # 4. Rate the answer, and keep the largest components.
        expected = sums.expected_dice()
        remark = ""
        # A region may cut structures, which makes every model less certain.
        if region is None and is_doubtful(expected, self.usual_dice, sums.volumes_ml(volume)):
            remark = (
                f"{self.name} is less certain in this scan than in those it was tested on: the "
                "scan may show something else. Check every structure."
            )
        if self.has_regions:
            made = LabelMap.of_regions(found, self.classes, expected)
            return replace(made, doubt=doubt, remark=remark)
        keep_largest(found, self.single_piece)
        return LabelMap(found, self.classes, expected_dice=expected, doubt=doubt, remark=remark)

    def _shares(
        self,
        number: int,
        image: tuple[Tensor, tuple[int, int, int]],
        window: SlidingWindow,
        step: Callable[[float], None],
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield one network's probabilities (K, H, W) of each slice; see `_planes`."""
        seen, shape = image
        scores = class_scores(
            lambda x: self._network(number, window, seen)(x),
            seen,
            classes=len(self.classes) + (not self.has_regions),
            window=window,
            device=self.torch_device,
            cast=lambda: computing_in(self.precision, self.torch_device),
            step=step,
            activation=torch.sigmoid if self.has_regions else None,
        )
        planes = (plane for part in scores for plane in part.unbind(1))
        shares = planes if self.has_regions else (plane.softmax(0) for plane in planes)
        return _planes(shares, seen.shape[1], shape)

    def _network(
        self, number: int, window: SlidingWindow, seen: Tensor
    ) -> Callable[[Tensor], Tensor]:
        """Return the function that computes a member, compiled if that is faster."""
        network = self.members[number].network
        windows = window.count(seen.shape[1:]) * (8 if window.averages_flips else 1)
        is_worth_it = self.is_final and windows >= FEWEST_WINDOWS
        if not is_worth_it or not suits_openvino(self.torch_device, self.precision):
            return network
        key = (number, len(seen), *window.patch)
        if key not in self._compiled:
            self._compiled[key] = compiled(network, (1, len(seen), *window.patch))
        return self._compiled[key] or network

    @property
    def _dtype(self) -> type[np.unsignedinteger[Any]]:
        """Data type of the labels, or of the bit masks of regions."""
        if self.has_regions:
            return region_type(len(self.classes))
        return np.uint8 if len(self.classes) < 256 else np.uint16


def network_image(
    volume: Volume,
    plan: NetworkPlan,
    axes: NetworkAxes,
    *,
    box: tuple[slice, slice, slice] | None = None,
    channel: int = 0,
) -> tuple[Tensor, tuple[int, int, int]]:
    """Pre-process a volume, or a box of it on these axes, for a network in training or inference.

    Args:
        channel: Channel to use if the volume has more channels than the network.

    Returns:
        Channels (C, d, h, w) on the network's grid, and the shape of the box in the volume's
        voxels.

    Raises:
        VolumeError: If they would not fit into memory.
    """
    sources = image_channels(volume, plan.channels, channel=channel)
    box = (slice(None),) * 3 if box is None else box
    spacing = [volume.spacing_mm[a] for a in axes.order]
    d, h, w = axes.apply(sources[0])[box].shape
    shape = resized_shape((d, h, w), spacing, plan.spacing_mm)
    if math.prod(shape) * len(sources) > MAX_GRID_VOXELS:
        raise VolumeError(
            f"At the model's spacing of {plan.spacing_mm} mm the scan would have "
            f"{' x '.join(map(str, shape))} voxels, which exceeds the limit; choose a region."
        )
    rules = plan.normalizations * (len(sources) if len(plan.normalizations) == 1 else 1)
    parts: dict[tuple[int, Normalization], Tensor] = {}  # repeated channels are computed once
    for source, rule in zip(sources, rules, strict=True):
        if (id(source), rule) not in parts:
            scaling = rule.scaling(source)
            x = resize(axes.apply(source)[box], shape).mul_(scaling.factor).add_(scaling.offset)
            parts[id(source), rule] = x.clamp_(*scaling.limits) if scaling.limits else x
    made = [parts[id(source), rule] for source, rule in zip(sources, rules, strict=True)]
    return torch.stack(made), (d, h, w)


class _OverlapSums:
    """Running sums for the expected Dice of a network's probabilities."""

    def __init__(self, classes: int) -> None:
        self._inside, self._all = torch.zeros(classes), torch.zeros(classes)
        self._voxels = torch.zeros(classes)

    def add(self, shares: Tensor, inside: Tensor, voxels: Tensor) -> None:
        """Add a slice: probabilities (K, H, W), their sum in each mask, and its voxels, (K,)."""
        self._all += shares.sum((1, 2))
        self._inside += inside
        self._voxels += voxels

    def expected_dice(self) -> tuple[float | None, ...]:
        """Return the expected Dice of each class; None if its mask is empty."""
        found = 2 * self._inside / (self._voxels + self._all).clamp_min(1e-6)
        return tuple(
            round(float(d), 4) if n else None for d, n in zip(found, self._voxels, strict=True)
        )

    def volumes_ml(self, volume: Volume) -> list[float]:
        """Return the volume of each class's mask."""
        each = math.prod(volume.spacing_mm) / 1000
        return [float(n) * each for n in self._voxels]


def _label_plane(shares: Tensor, sums: _OverlapSums) -> npt.NDArray[Any]:
    """Return the most probable class of each pixel, from probabilities (K, H, W)."""
    highest, labels = shares.max(0)
    flat, count = labels.flatten(), len(shares)
    within = flat.bincount(highest.flatten(), minlength=count)
    sums.add(shares[1:], within[1:], flat.bincount(minlength=count)[1:])
    return np.asarray(labels.numpy())


def _region_plane(shares: Tensor, sums: _OverlapSums) -> npt.NDArray[Any]:
    """Return each pixel's bit mask of regions (bit i for region i), from (K, H, W)."""
    masks = shares > 0.5
    sums.add(shares, (shares * masks).sum((1, 2)), masks.sum((1, 2)))
    inside = masks.numpy()
    bits = np.zeros(inside.shape[1:], dtype=region_type(len(inside)))
    for number, mask in enumerate(inside):
        bits[mask] |= bits.dtype.type(1 << number)
    return bits


def _doubt_plane(shares: Tensor, has_regions: bool) -> npt.NDArray[np.uint8]:
    """Return the probability of a wrong label, scaled to 0 to 255, from (K, H, W)."""
    wrong = torch.minimum(shares, 1 - shares).amax(0) if has_regions else 1 - shares.amax(0)
    return np.asarray((255 * wrong).round().to(torch.uint8).numpy())


def _planes(
    shares: Iterable[Tensor], depth: int, shape: tuple[int, int, int]
) -> Iterator[tuple[int, Tensor]]:
    """Resample probabilities (K, h, w) of consecutive slices to the scan's grid, slice by slice."""
    positions = slice_positions(shape[0], depth)
    planes: dict[int, Tensor] = {}
    i = 0
    for newest, plane in enumerate(shares):
        planes[newest] = plane
        while i < shape[0] and math.ceil(positions[i]) <= newest:
            low, high = math.floor(positions[i]), math.ceil(positions[i])
            mixed = torch.lerp(planes[low], planes[high], float(positions[i] - low))
            yield i, resize_plane(mixed, (shape[1], shape[2]))
            i += 1
        oldest = math.floor(positions[i]) if i < shape[0] else depth
        planes = {k: plane for k, plane in planes.items() if k >= oldest}


def load_automatic(model: str | Path, device: str = "auto") -> AutomaticSegmenter:
    """Load an automatic model.

    Args:
        model: A name from the model index, or a checkpoint file.

    Raises:
        CheckpointError: If the model is unknown, damaged, or of another kind, or its licence was
            not accepted.
        PumitError: If the device is absent.
    """
    path, checkpoint, target = open_model(model, "automatic", device)
    recipe, header = checkpoint.recipe, checkpoint.header
    classes = classes_of(recipe)
    first, *others = (
        Member(build_from(member, path, target), NetworkPlan.from_recipe(member.recipe))
        for member in members_of(checkpoint)
    )
    return AutomaticSegmenter(
        first.network,
        first.plan,
        classes,
        header.name or path.stem,
        header.version,
        target,
        pick_precision(target),
        bool(recipe.get("regions")),
        ExpectedChannels.from_recipe(recipe),
        _single_piece(recipe, len(classes)),
        tuple(others),
        usual_dice(checkpoint),
        is_final=True,
    )


def _single_piece(recipe: Mapping[str, Any], classes: int) -> tuple[int, ...]:
    """Read the values of single-component classes from a recipe."""
    values = recipe.get("single_piece", [])
    if not isinstance(values, list) or not all(
        isinstance(v, int) and 0 <= v <= classes for v in values
    ):
        raise CheckpointError(
            f"The model's recipe keeps the largest component of classes {values!r}, but has only "
            f"{classes} classes; train or fetch it again."
        )
    return tuple(values)
