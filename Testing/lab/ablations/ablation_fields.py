"""Validation fields, and Dice for a simulated user's prompts on them.

The fields are generated (isotropic, thick slices, 2D) or from real scans of patients left out of
the training. The user is that of the training, made deterministic: the first click at the deepest
point of the target, each further click at the deepest point of the largest error, or one tight box.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from pumit.inference.interactive.field_planner import FieldPlanner
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.pumit import Anisotropy
from pumit.preprocessing.normalization import field_channels
from pumit.training.promptable import simulated_prompts as clicks
from pumit.training.promptable.real_scan import RealScan, load_scan
from pumit.training.promptable.simulated_prompts import PromptState
from pumit.training.promptable.task import hard_dice, prompt_batch
from pumit.training.synthesis.scene import MAX_SHARE, MIN_SHARE, draw_scene
from torch import Tensor

CLICKS = 5
SMALLEST = 8  # voxels of a target
SEED = 900_001  # far from any seed of a training
# Degrees of anisotropy by kind.
KINDS = {"isotropic": (0,), "thick slices": (1, 2, 3, 4), "2D": (5,)}


@dataclass
class ValidationField:
    """A field with one target.

    Attributes:
        name: `kind/number`; the same at every field size.
        image: Network input, (3, D, H, W).
        target: Bool (D, H, W).
        ratio: Slice spacing over in-plane spacing; 0 in 2D.
        da0: Degree of anisotropy.
    """

    name: str
    image: Tensor
    target: Tensor
    ratio: float
    da0: int

    @property
    def kind(self) -> str:
        return self.name.split("/")[0]


def generated_fields(size: int, per_kind: int) -> list[ValidationField]:
    """Draw `per_kind` fields of each kind from the training's generator, with another seed."""
    fields = []
    for kind, degrees in KINDS.items():
        for i in range(per_kind):
            da0 = degrees[i % len(degrees)]
            seed = SEED + 1000 * (1 + list(KINDS).index(kind)) + i
            generator = torch.Generator().manual_seed(seed)
            scene = draw_scene(da0, size, generator)
            image = scene.image.numpy()
            pick = int(torch.randint(len(scene.targets), (), generator=generator))
            fields.append(
                ValidationField(
                    f"{kind}/{i}",
                    torch.from_numpy(field_channels(image, np.ones_like(image))),
                    scene.targets[pick],
                    0.0 if da0 == 5 else scene.slice_ratio,
                    da0,
                )
            )
    return fields


def real_fields(
    folder: Path, cases: list[str], size: int, per_case: int, *, base_size: int
) -> list[ValidationField]:
    """Cut fields around labelled structures, planned as for a box.

    Args:
        folder: Folder of cases.
        cases: Names of the cases to use.
        size: In-plane voxels of a field.
        per_case: Fields per case.
        base_size: Field size for which the positions are drawn; another `size` shows the same
            positions at another resolution.
    """
    fields = []
    for case in cases:
        scan = load_scan(folder / case / "image.nii.gz", folder / case / "label.nii.gz")
        rng = np.random.default_rng(SEED)
        found, tries = 0, 0
        while found < per_case and tries < 20 * per_case:
            tries += 1
            value = int(rng.choice(list(scan.places)))
            fill, place = rng.uniform(0.3, 0.9), rng.random()
            made = _cut(scan, value, base_size, base_size, fill, place)
            if made is None:
                continue
            if size != base_size:
                made = _cut(scan, value, size, base_size, fill, place) or made
            image, target, ratio, da0 = made
            fields.append(
                ValidationField(f"real {_plane(da0)}/{case}-{found}", image, target, ratio, da0)
            )
            found += 1
    return fields


def _plane(da0: int) -> str:
    return "isotropic" if da0 == 0 else "thick slices"


def _cut(
    scan: RealScan, value: int, size: int, base_size: int, fill: float, place: float
) -> tuple[Tensor, Tensor, float, int] | None:
    """Return image, target, ratio and degree of a field that the structure fills by `fill`."""
    voxels, extent_mm = scan.places[value]
    planner = FieldPlanner(scan.image.array.shape, scan.image.spacing_mm, size)
    centre = (voxels.mean(0) + voxels[int(place * len(voxels))]) / 2
    field = planner.field(centre, extent_mm / (fill * base_size) * base_size / size)
    if field.da0 >= 5:  # a single slice
        return None
    image, inside = scan.image.sample(field)
    target = scan.labels.sample_nearest(field) == value
    share = float(target.float().mean())
    if not MIN_SHARE <= share <= MAX_SHARE or int(target.sum()) < SMALLEST:
        return None
    return field_channels(image, inside), target, field.slice_ratio, field.da0


@torch.no_grad()
def measure(
    network: PromptableNetwork, fields: list[ValidationField], batch_size: int = 8
) -> dict[str, list[float]]:
    """Return Dice per field: `[1 click, ..., 5 clicks, box]`."""
    network.eval()
    groups: dict[tuple[int, ...], list[ValidationField]] = {}
    for field in fields:
        groups.setdefault((field.da0, *field.target.shape), []).append(field)
    scores = {}
    for group in groups.values():
        for start in range(0, len(group), batch_size):
            chunk = group[start : start + batch_size]
            for field, row in zip(chunk, _answers(network, chunk), strict=True):
                scores[field.name] = [round(float(d), 4) for d in row]
    return scores


def _answers(network: PromptableNetwork, fields: list[ValidationField]) -> Tensor:
    """Return Dice of a batch of fields of one shape, (B, CLICKS + 1)."""
    rng = np.random.default_rng(0)
    ratio = torch.tensor([f.ratio for f in fields])
    targets = torch.stack([f.target for f in fields])
    embedding = network.embed(torch.stack([f.image for f in fields]), Anisotropy(fields[0].da0))

    def shown(states: list[PromptState]) -> Tensor:
        """Return the logits that a user would see, (B, D, H, W)."""
        prompts = prompt_batch(states, ratio, targets.shape[1:])
        logits, iou = network.decode(embedding, prompts)
        ambiguous = torch.tensor([s.is_ambiguous for s in states])
        chosen = torch.where(ambiguous, iou.argmax(1), torch.zeros(len(states), dtype=torch.long))
        return logits[torch.arange(len(logits)), chosen]

    columns = []
    # Always click at the deepest point; the training sometimes draws a random one.
    with mock.patch.object(clicks, "click_in", partial(clicks.click_in, deepest=1.0)):
        states = [
            PromptState([(*clicks.click_in(f.target.numpy(), f.ratio, rng), True)]) for f in fields
        ]
        for i in range(CLICKS):
            logits = shown(states)
            columns.append(hard_dice(logits, targets))
            if i + 1 < CLICKS:
                answers = logits.sigmoid().numpy()
                for s, f, answer in zip(states, fields, answers, strict=True):
                    clicks.correct(s, f.target.numpy(), answer, f.ratio, rng)
    boxes = [PromptState(box=_tight_box(f.target)) for f in fields]
    columns.append(hard_dice(shown(boxes), targets))
    return torch.stack(columns, dim=1)


def _tight_box(target: Tensor) -> tuple[np.ndarray, np.ndarray]:
    voxels = torch.nonzero(target).double()
    low, high = voxels.amin(0).numpy(), voxels.amax(0).numpy()
    return np.minimum(low, high - 0.5), np.maximum(high, low + 0.5)
