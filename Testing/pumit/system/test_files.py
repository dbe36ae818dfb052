"""A result is whole or it is not there, a failure says why in one line, and a lock holds."""

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pumit.errors import ExportError
from pumit.system import files
from pumit.system.files import atomic_path, file_lock

PACKAGE = Path(__file__).resolve().parents[3] / "PUMITSegment"
HOLD = """
import sys, time
from pathlib import Path
from pumit.system.files import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def write_and_fail(target: Path, error: BaseException | None) -> None:
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        if error is not None:
            raise error


@pytest.mark.parametrize("name", ["a.nii.gz", "no-extension", "é" * 120 + ".nii.gz"])
def test_target_appears_only_after_the_block(tmp_path, name):
    target = tmp_path / name
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
        assert temporary.parent == tmp_path
        assert temporary.suffixes == target.suffixes  # by which writers choose the format
    assert target.read_text() == "new"
    assert names(tmp_path) == [name]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("x")])
def test_failure_keeps_the_old_file_and_leaves_nothing(tmp_path, error):
    target = tmp_path / "mask.nrrd"
    target.write_text("old")
    with pytest.raises(type(error)):
        write_and_fail(target, error)
    assert target.read_text() == "old"
    assert names(tmp_path) == ["mask.nrrd"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_refusal_of_the_system_is_one_line(tmp_path, monkeypatch, code):
    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(ExportError, match="read-only") as caught:
        write_and_fail(tmp_path / "a.nrrd", AssertionError("refused before the work"))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "words"),
    [("no/a.png", "does not exist"), ("file/a.png", "not a folder"), ("", "it is a folder")],
)
def test_where_no_file_can_be_is_refused(tmp_path, target, words):
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match=words):
        write_and_fail(tmp_path / target, None)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "full"),
        OSError(errno.ENOSPC, "full", "source", None, "copy"),  # as shutil.copyfile raises it
        RuntimeError("itk::ERROR: could not write"),
        None,
    ],
    ids=["said", "of a copy", "of a writer", "silent"],
)
def test_full_disk_is_found_even_where_the_writer_is_silent(tmp_path, monkeypatch, error):
    if not isinstance(error, OSError):
        full = SimpleNamespace(f_blocks=1000, f_bavail=0, f_frsize=4096)
        monkeypatch.setattr(files.os, "statvfs", lambda folder: full, raising=False)
    with pytest.raises(ExportError, match="disk is full"):
        write_and_fail(tmp_path / "a.nrrd", error)
    assert names(tmp_path) == []


def test_errors_of_the_block_are_told_from_those_of_the_target(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.nrrd"):
        (tmp_path / "input.nii").read_bytes()
    with pytest.raises(ExportError, match="no file"), atomic_path(tmp_path / "a.nrrd"):
        pass
    assert names(tmp_path) == []


def test_symbolic_link_is_followed(tmp_path):
    real = tmp_path / "store"
    real.mkdir()
    (real / "v1.nrrd").write_text("old")
    link = tmp_path / "latest.nrrd"
    try:
        link.symlink_to(real / "v1.nrrd")
    except OSError:
        pytest.skip("this system has no symbolic links")
    with atomic_path(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert (real / "v1.nrrd").read_text() == "new"
    assert names(real) == ["v1.nrrd"]


def test_half_written_files_go_though_another_computer_removes_folders(tmp_path, monkeypatch):
    """The command ended with a FileNotFoundError."""
    for name in "abc":
        (tmp_path / name / ".0123456789ab-cache").mkdir(parents=True)
        (tmp_path / name / ".accepted-0123456789ab.seg.nrrd").touch()
        (tmp_path / name / ".hidden").touch()
    listed = os.scandir

    def remove_first(folder):
        if str(folder) == str(tmp_path / "b"):
            shutil.rmtree(folder)
        return listed(folder)

    monkeypatch.setattr(os, "scandir", remove_first)
    files.remove_half_written(tmp_path)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/.*")}
    assert left == {"a/.hidden", "c/.hidden"}


def test_a_lock_is_held_by_only_one_at_a_time(tmp_path):
    inside: list[int] = []

    def work() -> None:
        with file_lock(tmp_path / "lock"):
            inside.append(1)
            assert sum(inside) == 1
            time.sleep(0.02)
            inside.append(-1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert inside == [1, -1] * 4
    with pytest.raises(ExportError, match="lock cannot be written"), file_lock(tmp_path / "a/lock"):
        pass


def test_a_killed_process_lets_go_of_its_lock(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, cwd=PACKAGE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(ExportError, match="Another program has locked lock"),
            file_lock(tmp_path / "lock", patience_s=0.1),
        ):
            pass
        other.kill()
    with file_lock(tmp_path / "lock", patience_s=10):
        pass
