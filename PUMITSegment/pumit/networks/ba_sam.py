"""BA-SAM's length-dependent attention scale and distance-dependent bias.

For self-attention over N tokens of an image encoder (eq. 9 and 10):

    a_ij = softmax_j(lambda * (q_i . k_j + b_ij)),   lambda = log_{N_train}(N_test) / sqrt(d_k)

`pumit.networks.ba_attention` computes this attention without storing the whole mask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def length_scale(n_test: int, n_train: int) -> float:
    """Return the scaling factor lambda_n = log_{n_train}(n_test), a multiplier of 1 / sqrt(d_k).

    It keeps the entropy of a token's attention about constant when the sequence grows from
    `n_train` to `n_test` tokens. Equal lengths give exactly 1. For n_train = 1, whose logarithm
    does not exist, base 2 is used.

    Args:
        n_test: Number of keys that each query attends to, at least 1. At 1 the factor is 0, which
            is harmless: the softmax over one key is always 1.
        n_train: Number of keys in training, at least 1.

    Returns:
        A finite factor, at least 0.

    Raises:
        ValueError: If a length is below 1.

    Source:
        Song et al., BA-SAM, CVPR 2024, eq. 8 and 9.
    """
    if n_test < 1 or n_train < 1:
        raise ValueError(
            f"Sequence lengths must be at least 1, got {n_test} (test) and {n_train} (train)."
        )
    if n_test == n_train:
        return 1.0
    return math.log(n_test) / math.log(max(n_train, 2))


def slopes_per_head(beta: Tensor | Sequence[float] | float) -> Tensor:
    """Return slopes as a floating tensor of shape (heads,); a single number is one head.

    Raises:
        ValueError: If `beta` has more than one axis.
    """
    slopes = torch.as_tensor(beta)
    if not slopes.is_floating_point():
        slopes = slopes.to(torch.get_default_dtype())
    if slopes.ndim > 1:
        raise ValueError(f"Slopes need shape (heads,), got {tuple(slopes.shape)}.")
    return slopes.reshape(-1)


def grid_distance(queries: Tensor, keys: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Compute Euclidean distances between grid positions.

    Args:
        queries: Positions, shape (Nq, 1..3), in tokens or any other unit.
        keys: Positions, shape (Nk, same), same unit.
        dtype: Floating dtype of the result; the computation uses at least float32.

    Returns:
        Distances, shape (Nq, Nk).
    """
    wide = torch.promote_types(dtype, torch.float32)
    # Not the matrix product form, which loses the exact zeros of the diagonal.
    distance = torch.cdist(
        queries.to(wide), keys.to(wide), compute_mode="donot_use_mm_for_euclid_dist"
    )
    return distance.to(dtype)


def bias_mode_mask(positions: Tensor, beta: Tensor | Sequence[float] | float) -> Tensor:
    """Compute the bias-mode mask b_ij = -beta_h * |p_i - p_j|, to be added to q_i . k_j.

    Differs from the source: the sign is negative, because the paper's +beta with positive slopes
    would reward distance, while its text asks for a penalty. The distance is that on the grid:
    with the paper's |i - j|, vertical neighbours on a grid of 128 columns would be 128 apart.
    Positions of one column give the paper's 1-D form: a Toeplitz matrix with a zero diagonal.

    Args:
        positions: Grid positions of the tokens, shape (N, 1), (N, 2) or (N, 3).
        beta: Slope per head, shape (heads,); positive slopes penalise distance.

    Returns:
        Bias, shape (heads, N, N), in the dtype of `beta`; differentiable in `beta`.

    Raises:
        ValueError: If a shape is wrong.

    Source:
        Song et al., BA-SAM, CVPR 2024, eq. 10.
    """
    check_positions(positions)
    slopes = slopes_per_head(beta).to(positions.device)
    distance = grid_distance(positions, positions, dtype=slopes.dtype)
    return -slopes[:, None, None] * distance  # (heads, N, N)


def check_positions(positions: Tensor) -> None:
    """Raise ValueError unless positions have shape (N, 1..3)."""
    if positions.ndim != 2 or not 1 <= positions.shape[1] <= 3:
        raise ValueError(
            f"Positions need shape (N, 1), (N, 2) or (N, 3), got {tuple(positions.shape)}."
        )
