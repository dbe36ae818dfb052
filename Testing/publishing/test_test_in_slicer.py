"""`scripts/test_in_slicer.py` starts Slicer once per module and believes only what passed."""

import ast
import os
import sys
from pathlib import Path

import pytest
import repository_scripts

SCRIPTS = repository_scripts.FOLDER


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("DISPLAY", ":0")
    return repository_scripts.script("test_in_slicer")


def program(folder: Path, body: str) -> Path:
    """A program named Slicer, which notes its last argument and then does as `body` says."""
    if os.name == "nt":
        pytest.skip("a script with a shebang")
    path = folder / "Slicer"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\ncode = sys.argv[-1]\n"
        f"with Path({str(folder / 'calls')!r}).open('a') as file:\n    print(sys.argv, file=file)\n"
        f"{body}\n"
    )
    path.chmod(0o755)
    return path


def test_each_module_is_tested_from_this_checkout(tmp_path, script):
    program(tmp_path, "")
    assert script.main([str(tmp_path)]) == 0  # type: ignore[attr-defined]
    calls = [ast.literal_eval(line) for line in (tmp_path / "calls").read_text().splitlines()]
    for module, call in zip(("PUMITSegment", "PUMITTrain"), calls, strict=True):
        assert {"--testing", "--ignore-slicerrc", "--additional-module-paths"} <= set(call)
        assert str(SCRIPTS.parent / module) in call
        compile(call[-1], module, "exec")
        assert f"'{module}'" in call[-1]


def test_a_failed_module_fails_the_run(tmp_path, script, capsys):
    program(tmp_path, "sys.exit('PUMITTrain' in code)")
    assert script.main([str(tmp_path)]) == 1  # type: ignore[attr-defined]
    assert "Failed: PUMITTrain: exit status 1" in capsys.readouterr().out


@pytest.mark.parametrize(("install", "status"), [((), 0), (("--install", "clicks"), 1)])
def test_a_skipped_computation_passes_only_where_nothing_was_installed(
    tmp_path, script, install, status
):
    program(
        tmp_path, "'pip_install' in code or print('Skipped the computation: SimpleITK is missing.')"
    )
    assert script.main([str(tmp_path), *install]) == status  # type: ignore[attr-defined]


def test_what_is_installed_is_what_the_panel_installs(tmp_path, script, capsys):
    """The code that Slicer gets runs, with a stand-in for Slicer's pip."""
    (tmp_path / "slicer").mkdir()
    (tmp_path / "slicer/__init__.py").touch()
    i18n = "tr = translate = lambda *text: text[-1]\n"
    (tmp_path / "slicer/i18n.py").write_text(i18n)
    (tmp_path / "slicer/util.py").write_text("def pip_install(names): print('pip', names)\n")
    program(
        tmp_path,
        f"if 'pip_install' in code:\n    sys.path.insert(0, {str(tmp_path)!r})\n    exec(code)",
    )
    assert script.main([str(tmp_path), "--install", "training"]) == 0  # type: ignore[attr-defined]
    out = capsys.readouterr().out
    assert "Installing" in out
    assert out.count("pip [") <= 1  # nothing, where everything is there


def test_a_folder_without_slicer_is_refused(tmp_path, script):
    with pytest.raises(SystemExit):
        script.main([str(tmp_path)])  # type: ignore[attr-defined]
