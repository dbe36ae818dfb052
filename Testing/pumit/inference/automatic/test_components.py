"""Classes of one piece: what lies apart from the largest is background."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from known_networks import known_networks, save_model
from pumit.errors import CheckpointError
from pumit.inference.automatic.components import keep_largest, largest_component
from pumit.inference.automatic.segmentation import load_automatic
from pumit.volume import Volume

pytestmark = pytest.mark.usefixtures("known_networks")
__all__ = ["known_networks"]


def test_the_largest_piece_stays_and_other_classes_are_left_alone() -> None:
    labels = np.zeros((6, 20, 20), dtype=np.uint8)
    labels[1:4, 2:8, 2:8] = 1
    labels[1:4, 12:15, 12:15] = 1
    labels[5, 0, 0] = labels[0, 19, 19] = 2
    expected = labels.copy()
    expected[1:4, 12:15, 12:15] = 0
    keep_largest(labels, [1, 3])
    np.testing.assert_array_equal(labels, expected)


def test_what_lies_apart_from_all_classes_together_goes_first() -> None:
    labels = np.zeros((3, 20, 20), dtype=np.uint8)
    labels[:, 2:8, 2:8] = 1
    labels[:, 8:10, 2:8] = 2  # next to it, and smaller than what is taken for it elsewhere
    labels[:, 14:18, 14:18] = 2
    expected = labels.copy()
    expected[:, 14:18, 14:18] = 0
    each = labels.copy()
    keep_largest(each, [1, 2])
    assert not (each == expected).all()
    keep_largest(labels, [0, 2])
    np.testing.assert_array_equal(labels, expected)


def test_pieces_that_touch_at_an_edge_only_are_two() -> None:
    mask = np.zeros((1, 5, 5), dtype=bool)
    mask[0, :3, :2] = True
    mask[0, 3:, 2:4] = True
    assert largest_component(mask).sum() == 6
    assert largest_component(np.zeros_like(mask)).sum() == 0


def test_a_model_says_which_classes_are_one_piece(tmp_path: Path) -> None:
    array = np.zeros((8, 32, 32), dtype=np.float32)
    array[2:6, 4:16, 4:16] = 300
    array[2:6, 24:28, 24:28] = 300
    volume = Volume(array, (1.0, 1.0, 1.0))
    plain = load_automatic(save_model(tmp_path / "plain.safetensors"), "cpu").segment(volume)
    one = load_automatic(save_model(tmp_path / "one.safetensors", single_piece=[2]), "cpu")
    expected = plain.labels == 2
    assert expected.any()
    np.testing.assert_array_equal(one.segment(volume).labels == 2, largest_component(expected))


@pytest.mark.parametrize("values", ["all", [-1], [9], [1.5]])
def test_what_is_no_class_is_refused(tmp_path: Path, values: object) -> None:
    path = save_model(tmp_path / "bad.safetensors", single_piece=values)
    with pytest.raises(CheckpointError, match="largest component"):
        load_automatic(path, "cpu")
