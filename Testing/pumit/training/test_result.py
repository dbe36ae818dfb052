"""Card and index entry end a run; what is wrong with them does not lose it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from labelled_scans import write_pairs
from pumit.errors import ExportError
from pumit.runs import read_log
from pumit.training.run.reporter import RunReporter
from pumit.training.train import finetune, write_result
from segmentation_runs import written
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


@pytest.mark.slow
def test_a_second_model_of_one_name_is_named_as_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    write_pairs(tmp_path / "set", 2)
    path = written(tmp_path, register=True, schedule={"steps": 1})
    for run, name in (("first", "made"), ("second", "made-2")):
        finetune(path, tmp_path / run)
        assert status_of(tmp_path / run).sentence == (
            f"Finished. The model {name!r} can be used now."
        )
