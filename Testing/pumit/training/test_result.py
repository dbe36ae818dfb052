"""Card and index entry end a run; what is wrong with them does not lose it."""

from typing import Any

import pytest
from pumit.errors import ExportError
from pumit.runs import read_log
from pumit.training.run.reporter import RunReporter
from pumit.training.train import write_result


@pytest.mark.parametrize("error", [ExportError("The folder is read-only."), KeyError("rows")])
def test_neither_is_worth_a_run(tmp_path, error, monkeypatch):
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
