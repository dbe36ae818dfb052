"""Every command explains itself, and no fault ends in a traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pumit import __version__
from pumit.cli import main as entry
from pumit.cli.main import COMMANDS, join_negative_values, main
from pumit.cli.shared.output import progress_bar
from pumit.errors import VolumeError

# Processes find the package as this one does.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run, command):
    ran = run(command, "--help")
    assert ran.out.startswith(f"usage: pumit {command}")
    assert "--" in ran.out.split("options:")[1]
    assert "(None)" not in ran.out
    assert "(False)" not in ran.out
    assert command != "segment" or "(auto)" in ran.out  # a default is told


def test_version_is_the_packages(run):
    assert run("--version").out == f"pumit {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["--nonsense"],
        ["segment"],
        ["segment", "a.nii", "--nonsense", "-o", "b.nii"],
        ["segment", "", "--point", "1,2,3", "-o", "b.nii"],
        ["models"],
        ["models", "nonsense"],
        ["evaluate"],
        ["evaluate", "x", "--clicks", "0"],
        ["evaluate", "x", "--clicks", "-3"],
        ["evaluate", "x", "--targets", "many"],
        ["train"],
        ["train", "segmentation", "--steps", "few"],
        ["pretrain", "default", "--steps", "few"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_end_in_one_line(refused, arguments):
    assert "--help" in refused(*arguments)


def test_files_of_a_series_in_place_of_its_folder_are_not_listed(refused, tmp_path):
    files = [tmp_path / f"slice_{i}.dcm" for i in range(40)]
    for file in files:
        file.touch()
    said = refused("info", *files)
    assert "name the folder" in said
    assert len(said) < 300 + len(str(tmp_path))


def test_fault_of_ours_is_one_line_and_its_traceback_is_logged_on_request(
    refused, monkeypatch, caplog
):
    def fail(*args: object) -> int:
        raise KeyError("secret")

    monkeypatch.setattr("pumit.cli.models.run", fail)
    line = refused("models", "list", status=1)
    assert "fault of the program (KeyError)" in line
    assert "secret" not in line
    caplog.clear()
    entry.main(["--verbose", "models", "list"])
    assert caplog.records[-1].exc_info


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: ..."), "not enough memory"),
        (VolumeError("one\ntwo\n  three"), "pumit models: one two three\n"),
    ],
)
def test_errors_are_one_line(refused, monkeypatch, error, words):
    def fail(*args: object) -> int:
        raise error

    monkeypatch.setattr("pumit.cli.models.run", fail)
    assert words in refused("models", "list")


def test_interruption_ends_quietly(run, monkeypatch):
    def fail(*args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("pumit.cli.models.run", fail)
    ran = run("models", "list", status=130)
    assert ran.err.count("\n") == 1


def test_ctrl_c_while_a_command_is_loaded_is_one_line(monkeypatch, capsys):
    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pumit.cli.main.import_module", interrupt)
    assert main(["predict", "scan"]) == 130
    assert capsys.readouterr().err == "pumit predict: stopped.\n"


def test_a_reader_that_leaves_early_is_no_fault():
    process = subprocess.Popen(
        [sys.executable, "-m", "pumit", "models", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141
    process.stderr.close()


def test_help_needs_no_torch():
    code = (
        "import sys; from pumit.cli.main import main\n"
        "try: main(['segment', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'SimpleITK', 'pydicom'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given_arguments", "expected"),
    [
        (["--point", "-1,2,3"], ["--point=-1,2,3"]),
        (["--point", "-.5,2,3", "-o", "x"], ["--point=-.5,2,3", "-o", "x"]),
        (["--point=-1,2,3", "--box", "-1,-2,-3,4,5,6"], ["--point=-1,2,3", "--box=-1,-2,-3,4,5,6"]),
        (["--point", "1,2,3", "-4,5,6"], ["--point", "1,2,3", "-4,5,6"]),
        (["-o", "-5.nii"], ["-o", "-5.nii"]),
        (["--json", "-o", "x"], ["--json", "-o", "x"]),
        ([], []),
    ],
)
def test_values_that_begin_with_a_minus_stay_values(given_arguments, expected):
    assert join_negative_values(given_arguments) == expected


def test_talk_is_chosen_before_or_behind_the_command(run, monkeypatch):
    seen: list[tuple[bool, bool]] = []

    def models(args: Any) -> int:
        seen.append((args.verbose, args.quiet))
        return 0

    monkeypatch.setattr("pumit.cli.models.run", models)
    monkeypatch.setenv("PUMIT_QUIET", "")
    for line in (
        ("models", "list"),
        ("--verbose", "models", "list"),
        ("models", "list", "--verbose"),
        ("--quiet", "models", "list"),
        ("models", "--quiet", "list"),
    ):
        run(*line)
    assert seen == [(False, False), (True, False), (True, False), (False, True), (False, True)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_behind_a_pipe_is_one_line():
    command = [sys.executable, "-m", "pumit", "models", "list"]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 2
    assert "disk is full" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_completion_knows_every_command(run):
    pytest.importorskip("shtab")
    script = run("--print-completion", "bash").out
    assert all(command in script for command in COMMANDS)
    assert "--terminology" in script


@pytest.mark.parametrize(
    ("command", "recipe"),
    [("train", "nnformer_acdc"), ("pretrain", "mamba_mim"), ("compare", "compare_hippocampus")],
)
def test_help_names_the_recipes_of_its_command_only(run, command, recipe):
    named = set(re.findall(r"\w+", run(command, "--help").out))
    assert named & {"nnformer_acdc", "mamba_mim", "compare_hippocampus"} == {recipe}


def test_a_name_in_brackets_is_no_markup_of_the_progress_bar(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("PUMIT_QUIET", raising=False)
    with progress_bar(quiet=False) as step:
        step("p1[/mr]", 0.5)
    assert "p1[/mr]" in capsys.readouterr().err
