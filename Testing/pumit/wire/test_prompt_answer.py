"""An answer on the wire keeps its word, and unknown words are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pumit.segmentation import QUALITIES, AnswerChoice, PromptAnswer
from pumit.wire import prompt_answer
from pumit.wire.prompt_answer import pack_answer, unpack_answer

ANSWER = PromptAnswer(np.eye(3, dtype=bool)[None], 0.5, 0.75, (), "check")


def without_keys(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Let answers be packed as by a server that does not know some keys."""
    pack = prompt_answer.pack_bundle
    monkeypatch.setattr(
        prompt_answer,
        "pack_bundle",
        lambda meta, *a, **k: pack({k: v for k, v in meta.items() if k not in missing}, *a, **k),
    )


@pytest.mark.parametrize("quality", [*QUALITIES, None])
def test_number_and_word_travel(quality: str | None) -> None:
    found = unpack_answer(pack_answer(replace(ANSWER, quality=quality)), (1, 3, 3))  # type: ignore[arg-type]
    assert (found.expected_dice, found.quality) == (0.75, quality)
    np.testing.assert_array_equal(found.mask, ANSWER.mask)


def test_a_word_that_is_absent_or_unknown_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = pack_answer(replace(ANSWER, quality="superb"))  # type: ignore[arg-type]
    assert unpack_answer(unknown, (1, 3, 3)).quality is None
    without_keys(monkeypatch, "quality")
    assert unpack_answer(pack_answer(ANSWER), (1, 3, 3)).quality is None


def test_the_number_of_the_answer_travels() -> None:
    chosen = replace(ANSWER, choice=AnswerChoice(2, 3))
    assert unpack_answer(pack_answer(chosen), (1, 3, 3)).choice == AnswerChoice(2, 3)


def test_a_server_that_knows_no_other_answers_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    without_keys(monkeypatch, "choice")
    assert unpack_answer(pack_answer(ANSWER), (1, 3, 3)).choice == AnswerChoice(1, 1)


def test_the_word_of_an_older_server_is_todays() -> None:
    old = pack_answer(replace(ANSWER, quality="check well"))  # type: ignore[arg-type]
    assert unpack_answer(old, (1, 3, 3)).quality == "check carefully"
