"""Agreement among the answers of several fields, and averaging of those that agree."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.inference.interactive.grid_transfer import Floats
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.solver_state import FieldAnswer, SolverSettings
from pumit.preprocessing.fields import Field, box_of, resampled

POINTS = 4096
ALIKE = 0.6  # IoU from which two answers mean the same structure
DOUBTED = 0.6  # support below which a smaller answer may be meant


def consensus(
    answers: Sequence[tuple[Field, Sequence[Floats]]],
    click: npt.ArrayLike,
    spacing_mm: tuple[float, float, float],
) -> list[list[float]]:
    """Return the support (per field and answer, 0 to 1) of every answer by the other fields.

    A structure found at only one field size is usually not there. Support is the IoU with the most
    similar answer of another field, averaged over the other fields; 0 if there is only one field.
    Answers are compared at random points whose distance from the click is log-uniform, weighted by
    the volume each represents. This works for structures of any size at the cost of a few thousand
    look-ups.
    """
    # 1. Sample points (n, 3) around the click, each with the volume that it represents, (n,).
    fields = [where for where, _ in answers]
    points, weights = _sample_points(fields, np.asarray(click, dtype=np.float64), spacing_mm)
    # 2. Sample the masks of every field there, (n,).
    samples = [_sampled(where, logits, points) for where, logits in answers]
    support = []
    for i, (masks, inside) in enumerate(samples):
        rows = []
        for mask in masks:
            # 3. Best IoU with an answer of each other field, over the points inside both.
            best = [
                max(_iou(mask, other, weights * (inside & other_inside)) for other in others)
                for j, (others, other_inside) in enumerate(samples)
                if j != i
            ]
            # 4. Mean over the other fields.
            rows.append(float(np.mean(best)) if best else 0.0)
        support.append(rows)
    return support


def most_trusted(
    candidates: Sequence[Sequence[FieldAnswer]],
    click: npt.ArrayLike,
    spacing_mm: tuple[float, float, float],
    settings: SolverSettings,
) -> list[FieldAnswer]:
    """Return the best answer of each field, preferring answers that other fields support.

    Args:
        candidates: Answers of each field, the finest field first; their scores and support are
            modified.
    """
    if len(candidates) > 1 and len(candidates[0]) > 1:
        support = consensus(field_logits(candidates), click, spacing_mm)
        for i, (answers, shares) in enumerate(zip(candidates, support, strict=True)):
            coarseness = i / (len(candidates) - 1)  # fields grow
            for view, share in zip(answers, shares, strict=True):
                view.support = share
                view.score += settings.consensus * share
                view.score += settings.coarse * coarseness
    return [max(answers, key=lambda v: v.score) for answers in candidates]


def smaller_answer(
    chosen: FieldAnswer, finest: Sequence[FieldAnswer], prompts: IndexPrompts
) -> FieldAnswer | None:
    """Return a smaller answer of the finest field instead of one that other fields do not support.

    Scores prefer coarse fields, and so large answers. Where no field supports the answer, the
    structure is often small; then only the estimated IoU counts.

    Args:
        chosen: The best-scored answer.
        finest: All answers of the finest field.
    """
    if chosen.support >= DOUBTED:
        return None
    smaller = [
        view
        for view in finest
        if view.iou >= chosen.iou
        and 0 < view.size < chosen.size
        and view.logits is not None
        and prompts.contradicted_by(view.logits > 0, view.field) == 0
    ]
    return max(smaller, key=lambda view: view.iou, default=None)


def field_logits(
    candidates: Sequence[Sequence[FieldAnswer]],
) -> list[tuple[Field, list[Floats]]]:
    """Return each field with the logits of its answers."""
    return [(a[0].field, [v.logits for v in a if v.logits is not None]) for a in candidates]


def averaged(own: Floats, where: Field, others: Sequence[tuple[Field, Sequence[Floats]]]) -> Floats:
    """Average an answer with the most similar answer of each other field, if similar enough.

    A coarse field identifies a structure better, a fine one shows its border better.
    """
    total, count = own.copy(), np.ones_like(own)
    for other, answers in others:
        # 1. Map the answer's voxels into the other field, and find those inside it.
        axes, valid = zip(*(other.along(i, where.places(i)) for i in range(3)), strict=True)
        inside = box_of(valid)
        own_mask = (own > 0) & inside
        # 2. Find the other field's answer with the largest IoU, if it is similar enough.
        best_iou, best = ALIKE, None
        for answer in answers:
            other_logits = resampled(answer, axes)
            iou = _iou(own_mask, (other_logits > 0) & inside, inside)
            if iou > best_iou:
                best_iou, best = iou, other_logits
        # 3. Add it where the other field covers the voxel.
        if best is not None:
            total += np.where(inside, best, 0)
            count += inside
    # 4. Mean over the fields that contribute to a voxel.
    return total / count


def _sample_points(
    fields: Sequence[Field],
    click: npt.NDArray[np.float64],
    spacing_mm: tuple[float, float, float],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return volume indices around a click, (n, 3), and the relative volume of each, (n,)."""
    rng = np.random.default_rng(0)  # fixed seed: equal prompts give equal answers
    spacing = np.asarray(spacing_mm)
    finest = min(f.step[1] * spacing[1] for f in fields)
    widest = max(float((np.asarray(f.shape) * f.step * spacing).max()) for f in fields)
    radius = finest * (max(widest, 2 * finest) / finest) ** rng.random(POINTS)
    direction = rng.normal(size=(POINTS, 3))
    is_flat = all(f.shape[0] == 1 for f in fields)
    if is_flat:
        direction[:, 0] = 0.0
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return click + direction * radius[:, None] / spacing, radius ** (2 if is_flat else 3)


def _sampled(
    where: Field, logits: Sequence[Floats], points: npt.NDArray[np.float64]
) -> tuple[list[npt.NDArray[np.bool_]], npt.NDArray[np.bool_]]:
    """Return each answer's mask at points (n, 3), (n,), and whether the field has them, (n,)."""
    index = where.to_field(points)
    size = np.asarray(where.shape)
    inside = np.asarray(((index > -0.5) & (index < size - 0.5)).all(1))
    values = (ndimage.map_coordinates(v, index.T, order=1, mode="nearest") for v in logits)
    return [(v > 0) & inside for v in values], inside


def _iou(
    a: npt.NDArray[np.bool_], b: npt.NDArray[np.bool_], weights: npt.NDArray[np.generic]
) -> float:
    union = float(weights[a | b].sum())
    return float(weights[a & b].sum()) / union if union > 0 else 0.0
