"""Card and index entry end a run; what is wrong with them does not lose it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pumit.errors import ExportError
from pumit.runs import read_log
from pumit.training.run.reporter import RunReporter
from pumit.training.train import write_result
from tiny_run import status_of


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Calls of what writes the card and what enters the model."""
    calls: list[tuple[Any, ...]] = []

    def write_card(folder: Path, best: Path) -> None:
        calls.append(("card", best.name))
        (folder / "card.md").touch()

    def register(best: Path, *, card: Path | None = None) -> str:
        calls.append(("register", best.name, card))
        return "mine-2"

    monkeypatch.setattr("pumit.training.model_card.write.write_card", write_card)
    monkeypatch.setattr("pumit.models.user_index.register", register)
    return calls


def test_the_model_is_entered_with_its_card(tmp_path: Path, called: list[tuple[Any, ...]]) -> None:
    reporter, best = RunReporter(tmp_path), tmp_path / "mine.safetensors"
    assert write_result(reporter, tmp_path, best, registers=True) == "mine-2"
    assert called == [("card", best.name), ("register", best.name, tmp_path / "card.md")]
    status = status_of(tmp_path)
    assert (status.model, status.registered) == ("mine.safetensors", "mine-2")
    assert read_log(tmp_path)[0][-1] == {"model": "mine.safetensors", "registered": "mine-2"}
    # Who wants no entry has none.
    called.clear()
    assert write_result(reporter, tmp_path, best, registers=False) is None
    assert called == [("card", best.name)]


@pytest.mark.parametrize("error", [ExportError("The folder is read-only."), KeyError("rows")])
def test_neither_is_worth_a_run(
    tmp_path: Path,
    called: list[tuple[Any, ...]],
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr("pumit.training.model_card.write.write_card", fail)
    monkeypatch.setattr("pumit.models.user_index.register", fail)
    reporter = RunReporter(tmp_path)
    assert write_result(reporter, tmp_path, tmp_path / "m.safetensors", registers=True) is None
    sentences = [r["sentence"] for r in read_log(tmp_path)[0] if r.get("event") == "warning"]
    reason = "The folder is read-only." if isinstance(error, ExportError) else "KeyError"
    assert ["card" in sentence for sentence in sentences] == [True, False]
    assert all(sentence.endswith(f": {reason}") for sentence in sentences)
    assert read_log(tmp_path)[0][-1]["model"] == "m.safetensors"
