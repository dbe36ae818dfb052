"""Fields of any size: what is repeated, what is cut off again, and what is refused."""

import pytest
import torch
from pumit.errors import PumitError
from pumit.networks.padding import padded, require_channels


def test_the_far_ends_are_repeated_and_cut_off_again():
    x = torch.randn(2, 1, 5, 9, 8)
    field, cropped = padded(x, (4, 8, 8), name="net")

    assert field.shape == (2, 1, 8, 16, 8)
    assert torch.equal(field[:, :, :5, :9], x)
    assert torch.equal(field[:, :, 5:, :9], x[:, :, 4:5].expand(-1, -1, 3, -1, -1))
    assert torch.equal(field[:, :, :5, 9:], x[:, :, :, 8:9].expand(-1, -1, -1, 7, -1))
    assert torch.equal(cropped(field), x)
    # A coarser level keeps the cells that hold voxels.
    assert cropped(torch.zeros(2, 3, 4, 8, 4)).shape == (2, 3, 3, 5, 4)
    # A field that fits is left alone.
    fits, cropped = padded(field, (4, 8, 8), name="net")
    assert fits is field
    assert cropped(fits) is fits


def test_a_second_place_is_made_for_an_instance_norm():
    x = torch.randn(1, 1, 3, 8, 8)
    field, cropped = padded(x, (1, 8, 8), name="net", cells=2)
    assert field.shape == (1, 1, 3, 8, 16)
    assert torch.equal(cropped(field), x)
    wide = torch.randn(1, 1, 1, 16, 8)
    assert padded(wide, (1, 8, 8), name="net", cells=2)[0] is wide


@pytest.mark.parametrize("shape", [(1, 1, 3, 8, 8), (1, 1, 0, 8, 8), (1, 8, 8)])
def test_what_is_smaller_than_the_stride_is_refused_in_one_line(shape):
    with pytest.raises(PumitError) as error:
        padded(torch.zeros(shape), (4, 8, 8), name="nnFormer")
    assert "nnFormer" in str(error.value)
    assert "\n" not in str(error.value)


def test_both_channel_counts_are_named():
    require_channels(torch.zeros(1, 4, 2, 2, 2), 4, name="Swin UNETR")
    with pytest.raises(PumitError, match="4 image channels, got 1"):
        require_channels(torch.zeros(1, 1, 2, 2, 2), 4, name="Swin UNETR")
