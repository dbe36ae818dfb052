"""The objective of the promptable network: answer prompts, then corrections of its own errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.promptable.prompt_encoder import NEGATIVE, NO_LABEL, POSITIVE, PromptBatch
from pumit.networks.pumit import Anisotropy
from pumit.preprocessing.intensity import field_channels
from pumit.training.clicks import PromptState, correct, first_prompts
from pumit.training.real_scans import RealScans
from pumit.training.synthesis.scene import Scene, draw_scene

DEGREES = (0, 1, 2, 3, 4, 5)
DEGREE_SHARES = (0.22, 0.24, 0.32, 0.10, 0.04, 0.08)
# Answers per target: the first, and one after each correction.
ROUNDS, ROUND_SHARES = (2, 3, 5, 7), (0.35, 0.35, 0.2, 0.1)


@dataclass
class FieldBatch:
    """Fields of one degree of anisotropy with a target each.

    Attributes:
        image: (B, 3, D, H, W).
        target: (B, D, H, W) bool.
        ratio: (B,) slice ratio, 0 in 2D.
        da0: Degree of anisotropy.
        rounds: How often the user is answered.
        rng: Randomness of the simulated user.
    """

    image: Tensor
    target: Tensor
    ratio: Tensor
    da0: int
    rounds: int
    rng: np.random.Generator


class PromptableTask(nn.Module):
    """Draw fields, simulate a user on them, and score the answers.

    Args:
        network: The network to train.
        scans: Real scans to mix in, or None for generated ones only.
        real_share: Share of fields that come from real scans.
        batch_size: Fields per step.
        targets_per_field: Targets asked for in one field.
    """

    def __init__(
        self,
        network: PromptableNetwork,
        *,
        scans: RealScans | None = None,
        real_share: float = 0.35,
        batch_size: int = 4,
        targets_per_field: int = 2,
    ) -> None:
        super().__init__()
        self.network = network
        self.scans = scans
        self.real_share = real_share
        self.batch_size = batch_size
        self.targets_per_field = targets_per_field

    def _scene(self, da0: int, generator: torch.Generator) -> Scene:
        size = self.network.field_size
        if self.scans is not None and torch.rand((), generator=generator) < self.real_share:
            for _ in range(4):
                scene = self.scans.draw(da0, size, generator)
                if scene is not None:
                    return scene
        return draw_scene(da0, size, generator)

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> FieldBatch:
        """Draw a batch of one degree; thinner fields come in larger batches.

        Args:
            da0: Degree of anisotropy.
            generator: Of this process.
            shared: In the same state in every process, for what decides how long a step takes.
        """
        count = self.batch_size * {0: 1, 1: 1, 2: 2, 3: 3, 4: 4, 5: 8}[da0]
        images, targets, ratios = [], [], []
        depth = draw_depth(da0, self.network.field_size, shared)
        for _ in range(count):
            scene = self._scene(da0, generator)
            order = torch.randperm(len(scene.targets), generator=generator)
            stack = torch.stack([scene.image, *(scene.targets[int(i)] for i in order)])
            image = _flip_and_turn(stack, generator)
            inside, image = cut_out(image, depth, generator)
            images.append(field_channels(image[0], inside))
            masks = [t > 0.5 for t in image[1:]]
            usable = [m for m in masks if int(m.sum()) >= 8] or masks[:1]
            pick = torch.randint(len(usable), (self.targets_per_field,), generator=generator)
            targets += [usable[int(i)] for i in pick]
            ratios += [0.0 if da0 == 5 else scene.slice_ratio] * self.targets_per_field
        seed = int(torch.randint(2**31, (), generator=generator))
        return FieldBatch(
            torch.stack(images),
            torch.stack(targets),
            torch.tensor(ratios),
            da0,
            ROUNDS[int(torch.multinomial(torch.tensor(ROUND_SHARES), 1, generator=shared))],
            np.random.default_rng(seed),
        )

    def forward(self, batch: FieldBatch) -> dict[str, Tensor]:
        """Loss over the first answer and the corrections.

        Returns:
            `loss`, and for the log `dice_first`, `dice_last`, `iou_error`.
        """
        rng = batch.rng
        embedding = self.network.embed(batch.image, Anisotropy(batch.da0))
        embedding = embedding.repeat(self.targets_per_field)
        targets = batch.target.numpy()
        ratios = batch.ratio.tolist()
        states = [first_prompts(t, r, rng) for t, r in zip(targets, ratios, strict=True)]
        rounds = batch.rounds
        # Gradients through the first answer and the last two; the ones between only make errors.
        graded = {0, rounds - 1, *([rounds - 2] if rounds > 2 else [])}
        losses, first, last, iou_error = [], None, None, []
        for i in range(rounds):
            prompts = prompt_batch(states, batch.ratio, batch.target.shape[1:])
            with torch.set_grad_enabled(torch.is_grad_enabled() and i in graded):
                logits, iou = self.network.decode(embedding, prompts)
                ambiguous = torch.tensor([s.is_ambiguous for s in states])
                loss, chosen, error = score(logits, iou, batch.target, ambiguous)
            if i in graded:
                losses.append(loss)
                iou_error.append(error.detach())
            answer = logits.detach()[torch.arange(len(logits)), chosen]
            dice = hard_dice(answer, batch.target)
            first, last = (dice if first is None else first), dice
            if i + 1 < rounds:
                probability = answer.sigmoid().numpy()
                for s, t, p, r in zip(states, targets, probability, ratios, strict=True):
                    correct(s, t, p, r, rng)
        assert first is not None
        assert last is not None
        return {
            "loss": torch.stack(losses).mean(),
            "dice_first": first.mean(),
            "dice_last": last.mean(),
            "iou_error": torch.stack(iou_error).mean(),
        }


def _flip_and_turn(stack: Tensor, generator: torch.Generator) -> Tensor:
    """The same random flips and quarter turns for every channel of (C, D, H, W)."""
    for axis in (1, 2, 3):
        if torch.rand((), generator=generator) < 0.5:
            stack = stack.flip(axis)
    turns = int(torch.randint(4, (), generator=generator))
    return torch.rot90(stack.float(), turns, dims=(2, 3))


def draw_depth(da0: int, size: int, shared: torch.Generator) -> int:
    """Slices of the fields of a step: mostly all, else as few as a thin stack has."""
    whole = max(size >> da0, 1)
    unit = max(8 >> da0, 1)  # what three halvings need
    if da0 >= 4 or torch.rand((), generator=shared) < 0.5:
        return whole
    # Not below two units: with two slices at 1/4, bfloat16 weight gradients of oneDNN's 3^3
    # convolution are sometimes garbage (torch 2.13, CPU).
    return unit * int(torch.randint(2, whole // unit + 1, (), generator=shared))


def cut_out(stack: Tensor, depth: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Cut a field to fewer slices around its first target, and let the scan end inside of it.

    Args:
        stack: Image and targets, (1 + T, D, H, W).
        depth: Slices to keep.
        generator: Source of randomness.

    Returns:
        Inside mask (depth, H, W) and the stack (1 + T, depth, H, W), targets only inside.
    """
    whole = stack.shape[1]
    slices = torch.nonzero(stack[1].any(-1).any(-1)).flatten()
    middle = int(slices[int(torch.randint(len(slices), (), generator=generator))])
    low, high = max(0, middle - depth + 1), min(middle, whole - depth)
    start = int(torch.randint(low, high + 1, (), generator=generator))
    stack = stack[:, start : start + depth]
    inside = torch.ones(stack.shape[1:])
    if torch.rand((), generator=generator) < 0.3:
        at = torch.nonzero(stack[1])
        place = at[int(torch.randint(len(at), (), generator=generator))]
        for axis, n in enumerate(stack.shape[1:]):
            if n == 1 or torch.rand((), generator=generator) < 0.5:
                continue
            # The border passes anywhere between the target and the field's face.
            before = int(torch.randint(0, int(place[axis]) + 1, (), generator=generator))
            after = int(torch.randint(int(place[axis]) + 1, n + 1, (), generator=generator))
            cut = torch.ones(n)
            if torch.rand((), generator=generator) < 0.5:
                cut[:before] = 0
            else:
                cut[after:] = 0
            if int(cut.sum()) >= min(4, n):
                inside = inside * cut.view([-1 if a == axis else 1 for a in range(3)])
    return inside, torch.cat((stack[:1], stack[1:] * inside))


def prompt_batch(states: list[PromptState], ratio: Tensor, shape: torch.Size) -> PromptBatch:
    """Collate prompt states; see `PromptBatch` for the coordinates."""
    count = max(1, max(len(s.points) for s in states))
    batch = len(states)
    scale = torch.ones(batch, 3)
    scale[:, 0] = ratio
    points = torch.zeros(batch, count, 3)
    labels = torch.full((batch, count), NO_LABEL, dtype=torch.long)
    boxes = torch.zeros(batch, 2, 3)
    prior = torch.zeros(batch, 1, *shape)
    for i, state in enumerate(states):
        for j, (d, h, w, is_positive) in enumerate(state.points):
            points[i, j] = torch.tensor([d, h, w])
            labels[i, j] = POSITIVE if is_positive else NEGATIVE
        if state.box is not None:
            boxes[i] = torch.from_numpy(np.stack(state.box)).float()
        if state.prior is not None:
            prior[i, 0] = torch.from_numpy(state.prior)
    return PromptBatch(
        points * scale[:, None],
        labels,
        boxes * scale[:, None],
        torch.tensor([s.box is not None for s in states]),
        prior,
        torch.tensor([s.prior is not None for s in states]),
        ratio,
    )


def hard_dice(logits: Tensor, target: Tensor) -> Tensor:
    """Dice of logits > 0 with a bool target, per sample, (B,)."""
    mask = (logits > 0).flatten(1)
    truth = target.flatten(1)
    return 2 * (mask & truth).sum(1) / (mask.sum(1) + truth.sum(1)).clamp_min(1)


def mask_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Soft Dice plus cross-entropy, per sample and mask, (B, M)."""
    truth = target[:, None].expand_as(logits).to(logits.dtype).flatten(2)
    x = logits.flatten(2)
    p = x.sigmoid()
    smooth = 10.0
    dice = 1 - (2 * (p * truth).sum(-1) + smooth) / (p.sum(-1) + truth.sum(-1) + smooth)
    cross = F.binary_cross_entropy_with_logits(x, truth, reduction="none")
    # Small targets weigh nearly as much as large ones.
    share = truth.mean(-1).clamp_min(0.01)
    return dice + 0.5 * cross.mean(-1) / share.sqrt()


def score(
    logits: Tensor, iou: Tensor, target: Tensor, ambiguous: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss of the masks and of the IoU estimate.

    An ambiguous prompt (one click, or a box alone) trains the first mask and the best of the
    others, and these a little all, so that none is left behind; any other prompt trains the first
    mask.

    Returns:
        Loss, index of the mask that a user would be shown (B,), error of the IoU estimate.
    """
    losses = mask_loss(logits, target)  # (B, M)
    single, others = losses[:, 0], losses[:, 1:]
    several = 0.5 * single + 0.45 * others.min(1).values + 0.05 * others.mean(1)
    mask = torch.where(ambiguous, several, single)
    hard = (logits.detach() > 0).flatten(2)
    truth = target[:, None].flatten(2)
    true_iou = (hard & truth).sum(-1) / (hard | truth).sum(-1).clamp_min(1)
    wanted = torch.ones_like(iou)
    wanted[:, 1:] = ambiguous[:, None].to(iou.dtype)
    error = ((iou - true_iou).abs() * wanted).sum() / wanted.sum()
    # Cross-entropy rather than squares: its gradient does not fade where the estimate saturates.
    cross = F.binary_cross_entropy(iou.clamp(1e-4, 1 - 1e-4), true_iou, reduction="none")
    estimate = (cross * wanted).sum() / wanted.sum()
    best = iou.detach().argmax(1)
    chosen = torch.where(ambiguous, best, torch.zeros_like(best))
    return mask.mean() + estimate, chosen, error
