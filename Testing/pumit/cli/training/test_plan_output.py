"""`pumit plan -o` replaces recipes only."""

from __future__ import annotations

from pathlib import Path

import pytest
from pumit.cli.main import main


@pytest.mark.parametrize("name", ["dataset.json", ""])
def test_plan_replaces_no_other_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "dataset.json").write_text("{}", encoding="utf-8")
    assert main(["plan", str(tmp_path), "-o", str(tmp_path / name)]) == 2
    assert "is there and no recipe; name a .yaml file" in capsys.readouterr().err
    assert (tmp_path / "dataset.json").read_text(encoding="utf-8") == "{}"
