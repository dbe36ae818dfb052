"""A result is whole or it is not there, and a failure says why in one line."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pumit.errors import ExportError
from pumit.system import files
from pumit.system.files import atomic_path


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def assert_one_line(error: BaseException) -> None:
    text = str(error)
    assert text
    assert "\n" not in text


def write_and_fail(target: Path, error: BaseException | None) -> None:
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        if error is not None:
            raise error


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write to read-only folders")
    yield folder
    folder.chmod(stat.S_IRWXU)


def test_target_appears_only_after_the_block(tmp_path: Path) -> None:
    target = tmp_path / "mask.nii.gz"
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
        assert temporary.parent == tmp_path
    assert target.read_text() == "new"
    assert names(tmp_path) == ["mask.nii.gz"]


@pytest.mark.parametrize("name", ["a.nii.gz", "b.seg.nrrd", "c.dcm", "no-extension", "d.1.2.png"])
def test_temporary_name_ends_like_the_target(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    with atomic_path(target) as temporary:
        assert temporary.suffixes == target.suffixes
        assert temporary.name.endswith(name)
        temporary.touch()


def test_very_long_name_keeps_its_suffixes(tmp_path: Path) -> None:
    target = tmp_path / ("é" * 120 + ".nii.gz")
    with atomic_path(target) as temporary:
        assert temporary.suffixes == [".nii", ".gz"]
        temporary.write_text("x")
    assert target.read_text() == "x"


@pytest.mark.parametrize("error", [ZeroDivisionError(), KeyboardInterrupt(), RuntimeError("x")])
def test_failure_keeps_the_old_file_and_leaves_nothing(
    tmp_path: Path, error: BaseException
) -> None:
    target = tmp_path / "mask.nrrd"
    target.write_text("old")
    with pytest.raises(type(error)):
        write_and_fail(target, error)
    assert target.read_text() == "old"
    assert names(tmp_path) == ["mask.nrrd"]


def test_read_only_folder_is_refused_before_the_work(read_only: Path) -> None:
    ran = False
    with pytest.raises(ExportError, match="read-only") as caught, atomic_path(read_only / "a.nrrd"):
        ran = True
    assert not ran
    assert_one_line(caught.value)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_refusal_of_the_system_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(ExportError, match="read-only") as caught, atomic_path(tmp_path / "a.nrrd"):
        pass
    assert_one_line(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "words"),
    [("no/a.png", "does not exist"), ("file/a.png", "not a folder"), ("", "it is a folder")],
)
def test_where_no_file_can_be_is_refused(tmp_path: Path, target: str, words: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match=words), atomic_path(tmp_path / target):
        pass


def test_full_disk_while_writing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="disk is full") as caught:
        write_and_fail(tmp_path / "a.nrrd", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert_one_line(caught.value)
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [RuntimeError("itk::ERROR: could not write"), None])
def test_full_disk_is_found_even_where_the_writer_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | None
) -> None:
    full = SimpleNamespace(f_blocks=1000, f_bavail=0, f_frsize=4096)
    monkeypatch.setattr(files.os, "statvfs", lambda folder: full, raising=False)
    with pytest.raises(ExportError, match="disk is full"):
        write_and_fail(tmp_path / "a.nrrd", error)
    assert names(tmp_path) == []


def test_error_of_another_file_passes_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.nrrd"):
        (tmp_path / "input.nii").read_bytes()
    assert names(tmp_path) == []


def test_writer_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no file"), atomic_path(tmp_path / "a.nrrd"):
        pass


def test_symbolic_link_is_followed(tmp_path: Path) -> None:
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
