"""State-space token interpolation (S6T): fill the hidden positions of a token sequence."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

QUIRKS = {
    "alpha": "weights j / (n - 1) within a gap of n steps, so that its last filled token is the "
    "next visible one, instead of j / n",
    "powers": "h_k = sum_(j <= k) A^(n-1-j) X_j for k = 0 .. n-1 with powers of A itself (no "
    "exponential, no B), the left visible token's own place included",
    "last_token": "the last visible token is multiplied by A",
    "endpoints": "the first and the last place count as visible; where nothing was seen there, "
    "they hold zeros, which is our reading",
    "layout": "memory of (length, channels) is read as (channels, length), which scrambles tokens "
    "and channels",
}
"""What the published code does otherwise than the paper, within this function."""


def quirks_of(official_compat: bool | Collection[str], known: Collection[str]) -> frozenset[str]:
    """Return the requested quirks: all for True, none for False, or the named ones.

    Raises:
        ValueError: If a name is unknown.
    """
    if isinstance(official_compat, bool):
        return frozenset(known if official_compat else ())
    given = [official_compat] if isinstance(official_compat, str) else list(official_compat)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(
            f"official_compat knows no {unknown[0]!r}; it is true, false, or some of "
            f"{', '.join(sorted(known))}."
        )
    return frozenset(given)


def state_space_token_interpolation(
    y_visible: Tensor,
    visible_index: Tensor,
    length: int,
    A: Tensor,
    official_compat: bool | Collection[str] = False,
) -> Tensor:
    """Fill the hidden positions of a token sequence by S6T.

    Between two visible tokens y_i and y_(i+1), n = Q + 2 steps apart, the state s is linearly
    interpolated and driven through a state space with a learned matrix A::

        s_j = (1 - j / n) y_i + j / n y_(i+1)                          j = 0 .. n
        z_j = sum_(m <= j) Abar^(j-m) Bbar s_m,  Abar = e^A,           j = 1 .. n - 1
                                                 Bbar = A^-1 (e^A - I)

    z_j fills the j-th position after y_i. Visible tokens are unchanged. Positions before the first
    and after the last visible token repeat the nearest visible token.

    At A = 0, where training starts, Abar = Bbar = I. z_j is then the sum of the interpolated states
    s_0 .. s_j, and grows with the distance from y_i until A has learned to decay.

    Args:
        y_visible: Visible tokens, (B, K, C).
        visible_index: Their ascending positions in the sequence, (B, K), or (K,) for all samples.
        A: State matrix, (C, C); it acts on tokens as columns.
        official_compat: True for all `QUIRKS` of the published code, or the names of some.

    Returns:
        (B, length, C), with the dtype of `y_visible`; computed at least in that of A.

    Raises:
        ValueError: If shapes do not fit, or positions are not ascending within the sequence.

    Source:
        MambaMIM, section 2.3, eqs. 7 and 8, algorithm 3 and lemma 3.
        Differs from the source, whose definitions of z contradict each other:
        - Bbar is the zero-order hold of eq. 2 with B = I, not the approximation e^A A^-1 of eq. 7.
          Both need an inverse, which does not exist at the initial A = 0. The zero-order hold
          equals the series I + A/2 + A^2/6 + ..., which needs none.
        - The step size is 1: it only scales A, which is learned.
        - Eq. 8 and algorithm 3 leave Abar out of Bbar or use the same state for every term; here
          every term has its own state, as in eq. 7.
        - The ends of the sequence may be hidden.
    """
    index = _checked_index(y_visible, visible_index, length, A)
    quirks = quirks_of(official_compat, QUIRKS)
    batch, _, channels = y_visible.shape
    with torch.autocast(y_visible.device.type, enabled=False):
        dtype = torch.promote_types(y_visible.dtype, A.dtype)
        tokens = y_visible.to(dtype).flatten(0, 1)  # (B * K, C)
        places = (index + length * torch.arange(batch)[:, None]).flatten()
        if "endpoints" in quirks:
            tokens, places = _with_endpoints(tokens, places, batch, length)
        plan = _plan(places, batch, length, has_left="powers" in quirks)
        fill = _power_sums if "powers" in quirks else _zero_order_hold_states
        pieces = fill(tokens, plan, A.to(dtype), "alpha" in quirks)
        if "last_token" in quirks:
            tokens = _with_last_token(tokens, plan, A.to(dtype))
        source = plan.source.to(tokens.device)
        out = torch.cat((tokens, *pieces))[source].view(batch, length, channels)
    if "layout" in quirks:
        out = out.reshape(batch, channels, length).transpose(1, 2)
    return out.to(y_visible.dtype)


def zero_order_hold(A: Tensor) -> tuple[Tensor, Tensor]:
    """Discretise a state matrix with B = I and step size 1: e^A, and A^-1 (e^A - I) for any A.

    Both are blocks of one exponential, exp([[A, I], [0, 0]]) = [[e^A, A^-1 (e^A - I)], [0, I]]. The
    upper right one is the series sum A^k / (k + 1)!, which needs no inverse.

    Args:
        A: (C, C).
    """
    size = len(A)
    eye = torch.eye(size, dtype=A.dtype, device=A.device)
    upper = torch.cat((A, eye), dim=1)
    exponential = torch.linalg.matrix_exp(torch.cat((upper, torch.zeros_like(upper))))
    return exponential[:size, :size], exponential[:size, size:]


@dataclass(frozen=True)
class _Plan:
    """Index plan for filling the gaps; all on the CPU.

    Attributes:
        left: Row of the visible token before each gap, longest gap first; the next row is after it.
        steps: Distance between these two tokens, descending.
        live: Number of gaps that reach each distance from their left token.
        source: Row of (tokens, pieces...) for every position of the batch.
        last: Row of the last visible token of each sequence.
    """

    left: Tensor
    steps: Tensor
    live: list[int]
    source: Tensor
    last: Tensor


def _checked_index(y: Tensor, index: Tensor, length: int, A: Tensor) -> Tensor:
    """Check the arguments; return the positions on the CPU, (B, K)."""
    if y.ndim != 3 or 0 in y.shape:
        raise ValueError(f"Visible tokens must be (B, K, C), none empty, got {tuple(y.shape)}.")
    batch, count, channels = y.shape
    if A.shape != (channels, channels):
        raise ValueError(f"A must be {channels} x {channels} for {channels} channels, got "
                         f"{tuple(A.shape)}.")  # fmt: skip
    if index.shape not in ((count,), (batch, count)) or index.is_floating_point():
        raise ValueError(
            f"visible_index must hold whole numbers, ({count},) or ({batch}, {count}) for tokens "
            f"of shape {tuple(y.shape)}, got {tuple(index.shape)}, {index.dtype}."
        )
    index = index.detach().cpu().long().expand(batch, count)
    is_rising = bool((index[:, 1:] > index[:, :-1]).all())
    if not is_rising or int(index.min()) < 0 or int(index.max()) >= length:
        raise ValueError(f"visible_index must rise from place to place within 0 to {length - 1}.")
    return index


def _plan(places: Tensor, batch: int, length: int, *, has_left: bool) -> _Plan:
    """Sort the gaps by descending length, so that gaps still open at each step come first.

    Args:
        places: Ascending positions of the visible tokens in all concatenated sequences.
        batch: Number of sequences, each with at least one visible token.
        has_left: Whether to compute the left visible token's own position, too.
    """
    sample = places // length
    steps = places.diff()
    inner = sample[1:] == sample[:-1]  # not from one sequence to the next
    left = inner.nonzero().flatten()
    left = left[torch.argsort(steps[left], descending=True, stable=True)]
    sorted_steps = steps[left]
    longest = int(sorted_steps[0]) if len(left) else 0
    first = 0 if has_left else 1
    live = [int((sorted_steps > j).sum()) for j in range(longest)]
    starts = torch.tensor([0, *live[first:]]).cumsum(0)[:-1] + len(places)

    everywhere = torch.arange(batch * length)
    before = torch.searchsorted(places, everywhere, right=True) - 1
    # Positions before a sequence's first visible token use that one: `before` is in another one.
    is_lead = (before < 0) | (sample[before.clamp_min(0)] != everywhere // length)
    source = torch.where(is_lead, before + 1, before)
    rank = torch.full((len(places),), -1)
    rank[left] = torch.arange(len(left))
    offset = everywhere - places[source]
    is_filled = (rank[source] >= 0) & (offset >= first)
    source[is_filled] = starts[offset[is_filled] - first] + rank[source[is_filled]]
    last = torch.cat(((~inner).nonzero().flatten(), torch.tensor([len(places) - 1])))
    return _Plan(left, sorted_steps, live, source, last)


def _weights(plan: _Plan, j: int, like: Tensor, is_short: bool) -> Tensor:
    """Return the weight of the right token at the j-th position of the open gaps, (gaps, 1)."""
    steps = plan.steps[: plan.live[j]].to(like)
    share = j / (steps - 1).clamp_min(1) if is_short else j / steps
    return share[:, None]


def _zero_order_hold_states(tokens: Tensor, plan: _Plan, A: Tensor, is_short: bool) -> list[Tensor]:
    """Compute the states z_1, z_2, ... of all gaps in parallel: z_j = Abar z_(j-1) + Bbar s_j."""
    if len(plan.live) < 2:
        return []  # nothing to fill
    a_bar, b_bar = zero_order_hold(A)
    driven = tokens @ b_bar.T  # the hold is linear: apply it before interpolation
    left = plan.left.to(tokens.device)
    before, after = driven[left], driven[left + 1]  # (gaps, C)
    state, pieces = before, []
    for j in range(1, len(plan.live)):
        open_gaps = plan.live[j]
        share = _weights(plan, j, tokens, is_short)
        step = torch.lerp(before[:open_gaps], after[:open_gaps], share)
        state = state[:open_gaps] @ a_bar.T + step
        pieces.append(state)
    return pieces


def _power_sums(tokens: Tensor, plan: _Plan, A: Tensor, is_short: bool) -> list[Tensor]:
    """Compute the published sums h_0, h_1, ... of all gaps in parallel."""
    if not plan.live:
        return []
    powers = [tokens]
    for _ in plan.live[1:]:
        powers.append(powers[-1] @ A.T)
    raised = torch.stack(powers)  # (power, B * K, C)
    left = plan.left.to(tokens.device)
    state, pieces = torch.zeros_like(tokens[left]), []
    for j, open_gaps in enumerate(plan.live):
        power = (plan.steps[:open_gaps] - 1 - j).to(tokens.device)
        before, after = raised[power, left[:open_gaps]], raised[power, left[:open_gaps] + 1]
        state = state[:open_gaps] + torch.lerp(before, after, _weights(plan, j, tokens, is_short))
        pieces.append(state)
    return pieces


def _with_last_token(tokens: Tensor, plan: _Plan, A: Tensor) -> Tensor:
    last = plan.last.to(tokens.device)
    return tokens.index_copy(0, last, tokens[last] @ A.T)


def _with_endpoints(
    tokens: Tensor, places: Tensor, batch: int, length: int
) -> tuple[Tensor, Tensor]:
    """Mark the first and last position of every sequence as visible, zero where they were not."""
    is_seen = torch.zeros(batch, length, dtype=torch.bool)
    is_seen.view(-1)[places] = True
    is_counted = is_seen.clone()
    is_counted[:, [0, -1]] = True
    row = torch.full((batch * length,), len(places))  # row of zeros
    row[places] = torch.arange(len(places))
    counted = is_counted.flatten().nonzero().flatten()
    padded = torch.cat((tokens, tokens.new_zeros(1, tokens.shape[1])))
    return padded[row[counted].to(tokens.device)], counted
