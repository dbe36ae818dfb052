"""Classes are one piece where that helps the validation cases and harms none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pumit.segmentation import Mask
from pumit.training.segmentation.validation import SinglePieceChoice

Labels = npt.NDArray[np.uint8]


def truth() -> Labels:
    labels = np.zeros((4, 24, 24), dtype=np.uint8)
    labels[:, 2:8, 2:8] = 1
    labels[:, 8:11, 2:8] = 2
    return labels


def masks(labels: Labels) -> list[Mask]:
    return [labels == 1, labels == 2, labels == 3]


def test_all_together_is_chosen_where_false_pieces_lie_elsewhere() -> None:
    answer = truth()
    answer[:, 16:22, 16:22] = 2  # larger than the true one
    choice = SinglePieceChoice(3)
    choice.add(answer, masks(truth()))
    assert choice.values() == (0,)


def test_a_class_is_chosen_where_its_false_piece_hangs_on_another() -> None:
    answer = truth()
    answer[:, 2:4, 8:10] = 2
    choice = SinglePieceChoice(3)
    choice.add(answer, masks(truth()))
    choice.add(truth(), masks(truth()))
    assert choice.values() == (2,)


def test_nothing_is_chosen_that_harms_one_case() -> None:
    two = truth()
    two[:, 16:20, 16:22] = 1
    answer = truth()
    answer[:, 22:, 22:] = 1
    choice = SinglePieceChoice(3)
    assert choice.values() == ()
    choice.add(answer, masks(truth()))
    choice.add(two, masks(two))
    assert choice.values() == ()
