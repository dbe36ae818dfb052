"""An answer on the wire keeps its word, and unknown words are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pumit.segmentation import QUALITIES, AnswerChoice, PromptAnswer
from pumit.wire import prompt_answer
from pumit.wire.prompt_answer import pack_answer, unpack_answer

ANSWER = PromptAnswer(np.eye(3, dtype=bool)[None], 0.5, 0.75, (), "check")


@pytest.mark.parametrize("quality", [*QUALITIES, None])
def test_number_and_word_travel(quality: str | None) -> None:
    found = unpack_answer(pack_answer(replace(ANSWER, quality=quality)), (1, 3, 3))  # type: ignore[arg-type]
    assert (found.expected_dice, found.quality) == (0.75, quality)
    np.testing.assert_array_equal(found.mask, ANSWER.mask)


def test_words_and_numbers_of_other_versions_are_understood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(answer: PromptAnswer) -> PromptAnswer:
        return unpack_answer(pack_answer(answer), (1, 3, 3))

    assert read(replace(ANSWER, quality="superb")).quality is None  # type: ignore[arg-type]
    older = replace(ANSWER, quality="check well")  # type: ignore[arg-type]
    assert read(older).quality == "check carefully"
    assert read(replace(ANSWER, choice=AnswerChoice(2, 3))).choice == AnswerChoice(2, 3)
    pack = prompt_answer.pack_bundle

    def pack_less(meta: dict[str, object], *rest: object, **more: object) -> bytes:
        known = {k: v for k, v in meta.items() if k not in ("quality", "choice")}
        return pack(known, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(prompt_answer, "pack_bundle", pack_less)
    assert (read(ANSWER).quality, read(ANSWER).choice) == (None, AnswerChoice(1, 1))
