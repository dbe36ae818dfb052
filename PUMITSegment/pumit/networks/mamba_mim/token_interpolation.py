"""State-space token interpolation (S6T): fill the hidden positions of a token sequence."""

from collections.abc import Collection

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
        ValueError: If the name of a quirk is unknown.

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
    quirks = quirks_of(official_compat, QUIRKS)
    batch, _, channels = y_visible.shape
    index = visible_index.cpu()
    with torch.autocast(y_visible.device.type, enabled=False):
        dtype = torch.promote_types(y_visible.dtype, A.dtype)
        A, tokens = A.to(dtype), y_visible.to(dtype).flatten(0, 1)  # (rows, C), of all sequences
        places = (index + length * torch.arange(batch)[:, None]).flatten()
        if "endpoints" in quirks:
            tokens, places = _with_endpoints(tokens, places, batch, length)
        # 1. Steps from each row to the next one of its sequence; 0 after the last.
        gaps = places.diff(append=places[-1:])
        is_last = (places // length).diff(append=torch.tensor([batch])) > 0
        gaps[is_last] = 0
        # 2. For each position the row at or before it, or the first of its sequence.
        everywhere = torch.arange(batch * length)
        row = torch.searchsorted(places, everywhere, right=True) - 1
        is_lead = (row < 0) | (places[row] // length != everywhere // length)
        row = torch.where(is_lead, row + 1, row)
        offset = everywhere - places[row]
        first = 0 if "powers" in quirks else 1
        is_filled = ((offset >= first) & (offset < gaps[row])).to(tokens.device)[:, None]
        # 3. States of the gaps, or the rows themselves.
        states = _gap_states(tokens, gaps.to(tokens.device), A, quirks)
        if "last_token" in quirks:
            tokens = torch.where(is_last.to(tokens.device)[:, None], tokens @ A.T, tokens)
        row, step = row.to(tokens.device), offset.clamp(0, len(states) - 1).to(tokens.device)
        out = torch.where(is_filled, states[step, row], tokens[row])
        out = out.view(batch, length, channels)
    if "layout" in quirks:
        out = out.reshape(batch, channels, length).transpose(1, 2)
    return out.to(y_visible.dtype)


def zero_order_hold(A: Tensor) -> tuple[Tensor, Tensor]:
    """Discretise a state matrix (C, C) with B = I and step size 1: e^A, and A^-1 (e^A - I).

    Both are blocks of one exponential, exp([[A, I], [0, 0]]) = [[e^A, A^-1 (e^A - I)], [0, I]]. The
    upper right one is the series sum A^k / (k + 1)!, which needs no inverse.
    """
    size = len(A)
    eye = torch.eye(size, dtype=A.dtype, device=A.device)
    upper = torch.cat((A, eye), dim=1)
    exponential = torch.linalg.matrix_exp(torch.cat((upper, torch.zeros_like(upper))))
    return exponential[:size, :size], exponential[:size, size:]


def _gap_states(tokens: Tensor, gaps: Tensor, A: Tensor, quirks: Collection[str]) -> Tensor:
    """Compute the states of all gaps in parallel, (longest gap, rows, C); 0 beyond a gap's end.

    Those are z_0, z_1, ..., z_j = Abar z_(j-1) + Bbar s_j, or the published sums h_0, h_1, ...

    Args:
        tokens: Tokens, (rows, C).
        gaps: Steps from each row to the next, (rows,); 0 for none.
    """
    longest = max(int(gaps.max()), 1)
    span = (gaps - int("alpha" in quirks)).clamp_min(1).to(tokens)
    state, states = torch.zeros_like(tokens), []
    if "powers" in quirks:
        powers = [tokens]
        for _ in range(1, longest):
            powers.append(powers[-1] @ A.T)
        rows, raised = torch.arange(len(tokens), device=tokens.device), torch.stack(powers)
    else:
        a_bar, b_bar = zero_order_hold(A)
        driven = tokens @ b_bar.T  # the hold is linear: apply it before interpolation
    for j in range(longest):
        if "powers" in quirks:
            power = (gaps - 1 - j).clamp_min(0)
            before, after = raised[power, rows], raised[power, rows.roll(-1)]
        else:
            before, after = driven, driven.roll(-1, 0)
            state = state @ a_bar.T
        state = state + torch.lerp(before, after, (j / span)[:, None])
        state = torch.where((gaps > j)[:, None], state, 0)
        states.append(state)
    return torch.stack(states)


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
