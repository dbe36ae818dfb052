"""Commands of the core run without blocking the GUI; what they say arrives line by line."""

import os
import sys
import time
from typing import Any

import pytest
from PUMITSlicerLib.computing.python_executable import SlicerPython
from PUMITTrainLib.processes import (
    OUTPUT,
    CheckerProgram,
    CorePrograms,
    DetachedLauncher,
    last_words,
)


def run(background: Any, *arguments: str) -> tuple[list[str], tuple[int, str]]:
    """Lines, exit status and complaint of a command."""
    lines: list[str] = []
    ended: list[tuple[int, str]] = []
    programs = CorePrograms(background, SlicerPython(sys.executable))
    programs.run(arguments, lines.append, lambda *end: ended.append(end))
    assert background.drain(120)
    return lines, ended[0]


def test_lines_arrive_and_the_status(background):
    lines, (status, message) = run(background, "--version")
    assert lines[0].startswith("pumit ")
    assert (status, message) == (0, "")


def test_bad_input_is_one_clear_line_without_the_commands_name(background, tmp_path):
    lines, (status, message) = run(background, "data", str(tmp_path / "nowhere"))
    assert (lines, status) == ([], 2)
    assert "'nowhere'" in message


def test_program_that_cannot_be_started_is_an_error_and_no_crash(background):
    ended: list[tuple[int, str]] = []
    programs = CorePrograms(background, SlicerPython("/no/such/python"))
    programs.run(["--version"], print, lambda *end: ended.append(end))
    assert background.drain(60)
    assert ended[0][0] == -1


def test_cancelled_command_is_ended_and_says_nothing(background):
    said: list[Any] = []
    programs = CorePrograms(background, SlicerPython(sys.executable))
    cancel = programs.run(["serve"], said.append, lambda *end: said.append(end))
    time.sleep(0.2)
    cancel()
    assert background.drain(60)
    assert not said


@pytest.mark.skipif(sys.platform == "win32", reason="looks at a process group")
def test_training_belongs_to_nobody_and_keeps_its_words(tmp_path):
    pid = DetachedLauncher(SlicerPython(sys.executable)).launch(tmp_path, ["train", "nothing.yaml"])
    assert os.getsid(pid) == pid
    end = time.monotonic() + 120
    while not last_words(tmp_path):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "nothing.yaml" in last_words(tmp_path)
    assert (tmp_path / OUTPUT).is_file()


def waitFor(background: Any, condition: Any) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
        background.poll()


@pytest.mark.slow
def test_checker_answers_the_last_text_and_stays(background):
    said: list[Any] = []
    checker = CheckerProgram(background, SlicerPython(sys.executable))
    checker.check("task: cook\n", lambda sentence: said.append(("first", sentence)))
    checker.check("data: {folder: x}\nshedule: {}\n", said.append)
    waitFor(background, lambda: said)
    assert said[0].endswith("did you mean 'schedule'?")
    checker.check("data: {folder: x}\n" + "# long\n" * 10_000, said.append)
    waitFor(background, lambda: len(said) > 1)
    assert said[1] == ""
    process = checker._process
    process.kill()
    checker.check("task: cook\n", said.append)
    waitFor(background, lambda: len(said) > 2)
    assert said[2] == ""  # no one knows; the next text starts another program
    assert checker._process is None
    checker.close()
    assert process.wait(30) is not None
    assert background.drain(20)


def test_checker_that_cannot_be_started_finds_nothing_wrong(background):
    said: list[str] = []
    CheckerProgram(background, SlicerPython("/no/such/python")).check("task: cook\n", said.append)
    assert said == [""]
