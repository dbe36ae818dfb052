"""Fixed positions of grids of any size."""

import math

import pytest
from pumit.networks.mamba_mim.encoding import require_sincos_width, sincos_positions


def test_each_axis_has_its_sines_and_cosines() -> None:
    d, h, w, pairs = 3, 2, 5, 4
    table = sincos_positions((d, h, w), 6 * pairs).view(d, h, w, 3, 2, pairs)
    for place in [(0, 0, 0), (2, 1, 3), (1, 0, 4)]:
        for axis, number in enumerate(place):
            for i in range(pairs):
                angle = number / 10_000 ** (i / pairs)
                sine, cosine = table[(*place, axis)][:, i].tolist()
                assert sine == pytest.approx(math.sin(angle), abs=1e-6)
                assert cosine == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("dim", [0, 4, 16])
def test_a_width_that_three_axes_cannot_share_is_refused(dim: int) -> None:
    with pytest.raises(ValueError, match="divisible by 6"):
        require_sincos_width(dim)
