"""Fit of the scale of `pumit.inference.tokenizer.familiarity` to measured images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pumit.inference.tokenizer.familiarity import SAYINGS, FamiliarityScale, distances, floored
from pumit.inference.tokenizer.token_use import TokenUse
from scipy.optimize import minimize

# L1 penalty; weights of figures that hardly help become zero.
SPARSITY = 0.01
FOLDS = 6
# Least distance of the outer percentiles from the median: with few or similar known images a
# smaller one is chance.
LEAST_SPREAD = {"colour": 0.05, "axis_order": 0.4, "slice_step": 0.5, "row_step": 0.3}
# Noise is what a broken file looks like; with the weight of the others it was not unfamiliar.
EMPHASIS = {"white noise": 2}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Row:
    """One measured image.

    `role`, `kind` and `source` are those of `familiarity_images.Sample`.

    Attributes:
        figures: Values by name, without those that depend on the usual token use.
        shares: Frequencies of the tokens.
        psnr_db: PSNR of the reconstruction.
    """

    role: str
    kind: str
    source: str
    figures: dict[str, float]
    shares: Floats
    psnr_db: float


def reference_of(rows: Sequence[Row], names: Sequence[str] = tuple(SAYINGS)) -> dict[str, Any]:
    """Fit the content of a recipe's `reference`, with equal weight per kind of images."""
    known = [row for row in rows if row.role == "known"]
    usual = usual_shares(known)
    figures = [all_figures(row, usual) for row in rows if row.role in ("known", "odd")]
    used = [row for row in rows if row.role in ("known", "odd")]
    is_known = np.array([row.role == "known" for row in used])
    ranges = {}
    for name in names:
        values = [f[name] for f, k in zip(figures, is_known, strict=True) if k and name in f]
        low, middle, high = np.percentile(values, (5, 50, 95)).tolist()
        spread = LEAST_SPREAD.get(name, 0.01)
        low, high = min(low, middle - spread), max(high, middle + spread)
        ranges[name] = (round(low, 5), round(middle, 5), round(high, 5))
    x = np.array(
        [
            [d for name in names for d in (
                distances(f[name], ranges[name]) if name in f else (0.0, 0.0))]
            for f in figures
        ]
    )  # fmt: skip
    bias, weights = _logistic(x, is_known, _weights(used))
    pairs = weights.reshape(-1, 2)
    psnr = np.percentile([row.psnr_db for row in known if row.kind != "generated"], (5, 50))
    return {
        "psnr_db": np.round(psnr, 2).tolist(),
        "usual_shares": [float(f"{share:.4g}") for share in usual],
        "familiarity": {
            "bias": round(bias, 4),
            "figures": {
                name: {"usual": list(ranges[name]), "weight": np.round(pair, 4).tolist()}
                for name, pair in zip(names, pairs, strict=True)
                if pair.max() > 1e-3
            },
            "known": int(is_known.sum()),
            "odd": int((~is_known).sum()),
        },
    }


def scores(reference: dict[str, Any], rows: Sequence[Row]) -> Floats:
    """Return the scores of images by a fitted scale, %."""
    scale = FamiliarityScale.from_reference(reference, len(rows[0].shares))
    assert scale is not None
    return np.array([scale.rate(all_figures(row, scale.usual_shares)).score for row in rows])


def cross_validated(rows: Sequence[Row], names: Sequence[str] = tuple(SAYINGS)) -> Floats:
    """Return scores by scales that were fitted without images of the same source."""
    sources = sorted({row.source for row in rows})
    out = np.zeros(len(rows))
    for fold in range(FOLDS):
        own = set(sources[fold::FOLDS])
        reference = reference_of([row for row in rows if row.source not in own], names)
        chosen = [i for i, row in enumerate(rows) if row.source in own]
        out[chosen] = scores(reference, [rows[i] for i in chosen])
    return out


def without_kind(rows: Sequence[Row], kind: str, names: Sequence[str] = tuple(SAYINGS)) -> Floats:
    """Return the scores of one odd kind by a scale that was fitted without it."""
    reference = reference_of([row for row in rows if row.kind != kind], names)
    return scores(reference, [row for row in rows if row.kind == kind])


def area_under_curve(known: Floats, odd: Floats) -> float:
    """Return how often a known image scores higher than an odd one; equal scores count half."""
    higher, alike = known[:, None] > odd, known[:, None] == odd
    return float(higher.mean() + alike.mean() / 2)


def usual_shares(known: Sequence[Row]) -> Floats:
    """Return the mean token frequencies of the known images, with equal weight per kind."""
    kinds = sorted({row.kind for row in known})
    means = [np.mean([row.shares for row in known if row.kind == kind], axis=0) for kind in kinds]
    return np.asarray(np.mean(means, axis=0))


def all_figures(row: Row, usual: Floats) -> dict[str, float]:
    """Return the figures of an image, with those that depend on the usual token use."""
    rarity = float(-(row.shares * np.log(floored(usual))).sum())
    mix = rarity - TokenUse(row.shares, 0.0).entropy
    return {**row.figures, "token_rarity_nats": rarity, "token_mix_nats": mix}


def _weights(rows: Sequence[Row]) -> Floats:
    """Return weights of images: one half per role, equal for its kinds but for `EMPHASIS`."""
    count = {}
    for row in rows:
        count[row.role, row.kind] = count.get((row.role, row.kind), 0) + 1
    kinds = {
        role: sum(EMPHASIS.get(kind, 1) for r, kind in count if r == role) for role, _ in count
    }
    return np.array(
        [
            0.5 * EMPHASIS.get(row.kind, 1) / kinds[row.role] / count[row.role, row.kind]
            for row in rows
        ]
    )


def _logistic(x: Floats, is_known: npt.NDArray[np.bool_], weight: Floats) -> tuple[float, Floats]:
    """Fit an L1-penalised logistic regression; return bias and non-negative costs."""
    sign = np.where(is_known, 1.0, -1.0)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        odds = parameters[0] - x @ parameters[1:]
        slope = -sign * weight / (1 + np.exp(np.clip(sign * odds, -500, 500)))
        value = float((weight * np.logaddexp(0, -sign * odds)).sum())
        gradient = np.concatenate([[slope.sum()], -x.T @ slope + SPARSITY])
        return value + SPARSITY * float(parameters[1:].sum()), gradient

    start = np.concatenate([[1.0], np.full(x.shape[1], 0.3)])
    bounds = [(None, None)] + [(0, None)] * x.shape[1]
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return float(found[0]), np.asarray(found[1:])
