"""Filling a sequence between its visible tokens, against the paper's sums written out."""

from typing import Any

import pytest
import torch
from pumit.networks.mamba_mim.token_interpolation import (
    QUIRKS,
    state_space_token_interpolation,
    zero_order_hold,
)
from torch import Tensor

LENGTH, CHANNELS = 13, 3
INDEX = torch.tensor([[2, 3, 7, 9], [0, 1, 6, 12]])


def tokens(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 4, CHANNELS, generator=generator, dtype=torch.float64)


def matrix(scale: float = 0.3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return scale * torch.randn(CHANNELS, CHANNELS, generator=generator, dtype=torch.float64)


def power(A: Tensor, n: int) -> Tensor:
    return torch.linalg.matrix_power(A, n)


def paper(y: Tensor, index: Tensor, length: int, A: Tensor) -> Tensor:
    """Eqs. 2 and 7 for one sequence, term by term, with the inverse."""
    a_bar = torch.linalg.matrix_exp(A)
    b_bar = torch.linalg.inv(A) @ (a_bar - torch.eye(len(A), dtype=A.dtype))
    out = torch.zeros(length, y.shape[1], dtype=y.dtype)
    out[: index[0]], out[index[-1] :] = y[0], y[-1]
    for k, place in enumerate(index.tolist()):
        out[place] = y[k]
    for k in range(len(index) - 1):
        n = int(index[k + 1] - index[k])
        s = [(1 - j / n) * y[k] + j / n * y[k + 1] for j in range(n + 1)]
        for j in range(1, n):
            terms = [power(a_bar, j - m) @ b_bar @ s[m] for m in range(j + 1)]
            out[index[k] + j] = torch.stack(terms).sum(0)
    return out


def published(y: Tensor, index: Tensor, length: int, A: Tensor) -> Tensor:
    """What the published code is known to compute, all quirks, for one sequence."""
    seen = {int(place): y[k] for k, place in enumerate(index)}
    places = sorted({*seen, 0, length - 1})
    at = [seen.get(place, torch.zeros_like(y[0])) for place in places]
    out = torch.zeros(length, y.shape[1], dtype=y.dtype)
    for k in range(len(places) - 1):
        n = places[k + 1] - places[k]
        alpha = [j / (n - 1) if n > 1 else 0.0 for j in range(n)]
        x = [(1 - a) * at[k] + a * at[k + 1] for a in alpha]
        for i in range(n):
            terms = [power(A, n - 1 - j) @ x[j] for j in range(i + 1)]
            out[places[k] + i] = torch.stack(terms).sum(0)
    out[-1] = A @ at[-1]
    return out.reshape(y.shape[1], length).T


def each(function: Any, y: Tensor, index: Tensor, length: int, A: Tensor) -> Tensor:
    return torch.stack([function(*pair, length, A) for pair in zip(y, index, strict=True)])


@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_for_any_choice_of_places(seed):
    generator = torch.Generator().manual_seed(seed)
    index = torch.rand(3, 40, generator=generator).argsort(1)[:, :6].sort(1).values
    y = torch.randn(3, 6, CHANNELS, generator=generator, dtype=torch.float64)

    for function, compat in ((paper, False), (published, True)):
        out = state_space_token_interpolation(y, index, 40, matrix(0.1), compat)
        expected = each(function, y, index, 40, matrix(0.1))
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    named = state_space_token_interpolation(y, index, 40, matrix(0.1), tuple(QUIRKS))
    assert torch.equal(out, named)  # all quirks are the published computation


def test_places_given_once_hold_for_every_sequence():
    out = state_space_token_interpolation(tokens(), INDEX[0], LENGTH, matrix())

    expected = state_space_token_interpolation(tokens(), INDEX[0].expand(2, -1), LENGTH, matrix())
    assert torch.equal(out, expected)


def test_visible_tokens_come_back_as_they_are_even_if_all_are_visible():
    y, A = tokens().float(), matrix().float()
    out = state_space_token_interpolation(y, INDEX, LENGTH, A)
    assert torch.equal(out.gather(1, INDEX[..., None].expand(-1, -1, CHANNELS)), y)

    assert torch.equal(state_space_token_interpolation(y, torch.arange(4), 4, A), y)
    assert torch.equal(state_space_token_interpolation(y[:, :1], torch.tensor([0]), 1, A), y[:, :1])


def test_gradients_of_tokens_and_matrix_are_right_also_at_zero():
    y = tokens()[:, :, :2].requires_grad_()
    for A in (matrix()[:2, :2], torch.zeros(2, 2, dtype=torch.float64)):
        for compat in (False, True):
            assert torch.autograd.gradcheck(
                lambda y, A, compat=compat: state_space_token_interpolation(
                    y, INDEX, LENGTH, A, compat
                ),
                (y, A.requires_grad_()),
            )


def test_the_zero_order_hold_needs_no_inverse():
    singular = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    a_bar, b_bar = zero_order_hold(singular)
    torch.testing.assert_close(a_bar, torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double())
    torch.testing.assert_close(b_bar, torch.tensor([[1.0, 0.5], [0.0, 1.0]]).double())


def test_half_precision_tokens_are_computed_in_the_matrixs_own():
    y = tokens().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        out = state_space_token_interpolation(y, INDEX, LENGTH, matrix().float())
    assert out.dtype == torch.bfloat16
    exact = state_space_token_interpolation(y.float(), INDEX, LENGTH, matrix().float())
    assert torch.equal(out, exact.bfloat16())


@pytest.mark.parametrize(
    ("name", "A", "length", "expected"),
    [
        # Alpha reaches the next token one place early: states 1, 7/3, 11/3, 5 and their sums.
        ("alpha", 0.0, 5, [1.0, 1 + 7 / 3, 7.0, 12.0, 5.0]),
        # Powers leave only the end of a gap where A begins.
        ("powers", 0.0, 5, [0.0, 0.0, 0.0, 4.0, 5.0]),
        ("powers", 0.5, 5, [0.125, 0.625, 2.125, 6.125, 5.0]),  # 1/8, 2/4, 3/2 and 4, summed
        # The last token is multiplied by the matrix.
        ("last_token", 2.0, 5, [10.0]),
        ("last_token", 0.0, 5, [1.0, 3.0, 6.0, 10.0, 0.0]),
        # Ends count as visible, and hold zeros: 5 is between 5 and 0.
        ("endpoints", 0.0, 7, [0, 1, 1 + 7 / 3, 7.0, 5.0, 7.5, 0.0]),
    ],
)
def test_each_quirk_by_itself_is_what_it_says(name, A, length, expected):
    """On visible tokens 1 and 5 at places 0 and 4, or 1 and 4 of more."""
    y, places = torch.tensor([[[1.0], [5.0]]]), torch.tensor([0 if length == 5 else 1, 4])
    out = state_space_token_interpolation(y, places, length, torch.full((1, 1), A), (name,))
    assert out.flatten().tolist()[-len(expected) :] == pytest.approx(expected)


def test_the_layout_scrambles_tokens_and_channels():
    y = torch.arange(6.0).view(1, 3, 2)
    out = state_space_token_interpolation(y, torch.arange(3), 3, torch.zeros(2, 2), ("layout",))
    assert out.tolist() == [[[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]]


def test_an_unknown_quirk_is_refused():
    with pytest.raises(ValueError, match="no 'alhpa'; it is true, false, or some of alpha"):
        state_space_token_interpolation(tokens(), INDEX, LENGTH, matrix(), ("alhpa",))
