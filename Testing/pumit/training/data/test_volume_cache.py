"""A case is made once, again where something changed, and never read half-made."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from numpy.typing import NDArray
from pumit.errors import ExportError, VolumeError
from pumit.training.data import volume_cache
from pumit.training.data.volume_cache import VolumeCache

SETTINGS = {"spacing_mm": (3.0, 1.0, 1.0), "window": None}


class Maker:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, path: Any = None) -> dict[str, NDArray[Any]]:
        self.count += 1
        image = np.arange(24, dtype=np.float32).reshape(2, 3, 4) + self.count
        return {"image": image, "label": np.zeros((2, 3, 4), np.uint8), "none": np.zeros((0, 3))}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "case.nii.gz"
    path.write_bytes(b"voxels")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*/*") if path.is_dir()]


def test_a_case_is_made_once_and_then_mapped(source, folder):
    make = Maker()
    for _ in range(3):
        arrays = VolumeCache(folder, SETTINGS).get(source, make)
        for name, array in Maker()().items():
            np.testing.assert_array_equal(arrays[name], array)
            assert arrays[name].dtype == array.dtype
        assert isinstance(arrays["image"], np.memmap)
        assert not arrays["image"].flags.writeable
    assert make.count == 1
    shutil.rmtree(folder)  # as one may between trainings
    VolumeCache(folder, SETTINGS).get(source, make)
    assert make.count == 2


def test_a_changed_source_is_made_anew_and_replaces_the_old(source, folder):
    make, cache = Maker(), VolumeCache(folder, SETTINGS)
    cache.get(source, make)
    os.utime(source, ns=(1, 1))
    cache.get(source, make)
    source.write_bytes(b"more voxels")
    os.utime(source, ns=(1, 1))
    assert cache.get(source, make)["image"][0, 0, 0] == 3
    assert make.count == 3
    assert len(entries(folder)) == 1
    # Any of several sources.
    series = folder.with_name("series")
    series.mkdir()
    for name in ("1.dcm", "2.dcm"):
        (series / name).touch()
        for _ in range(2):
            cache.get([source, series], make)
    assert make.count == 5


def test_other_settings_are_other_cases(source, folder):
    make = Maker()
    for window in (None, [0, 1], [0, 2]):
        VolumeCache(folder, {**SETTINGS, "window": window}).get(source, make)
    assert make.count == len(entries(folder)) == 3
    with pytest.raises(TypeError):
        VolumeCache(folder, {"window": object()})
    with pytest.raises(VolumeError, match=r"none\.nii cannot be read"):
        VolumeCache(folder, SETTINGS).get(source.with_name("none.nii"), make)
    with pytest.raises(ExportError, match="the folder cache"):
        VolumeCache(source / "cache", SETTINGS)


def test_files_of_one_name_and_state_are_not_confused(folder, tmp_path):
    make, cache = Maker(), VolumeCache(folder, SETTINGS)
    for name in ("a", "b"):
        path = tmp_path / name / "image.nii"
        path.parent.mkdir()
        path.write_bytes(b"as long")
        os.utime(path, ns=(5, 5))
        cache.get(path, make)
    assert make.count == 2


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"nonsense" * 9, None])
def test_a_damaged_entry_is_made_anew(source, folder, damage):
    make, cache = Maker(), VolumeCache(folder, SETTINGS)
    cache.get(source, make)
    (file,) = folder.glob("*/*/image.npy")
    file.write_bytes(file.read_bytes()[:-8] if damage is None else damage)
    assert cache.get(source, make)["image"][0, 0, 0] == 2
    cache.get(source, make)
    assert make.count == 2


def test_pickles_are_neither_written_nor_read(source, folder):
    cache = VolumeCache(folder, SETTINGS)
    with pytest.raises(ValueError, match="pickle"):
        cache.get(source, lambda: {"image": np.array([object()])})
    assert not entries(folder)
    cache.get(source, Maker())
    (file,) = folder.glob("*/*/image.npy")
    np.save(file, np.array([{}]), allow_pickle=True)
    assert cache.get(source, Maker())["image"].dtype == np.float32


RACE = """
import sys
from pathlib import Path
import numpy as np
from pumit.training.data.volume_cache import VolumeCache
cache = VolumeCache(Path(sys.argv[1]), {})
paths = [Path(p) for p in sys.argv[2:]]
for path in paths:
    own = np.full((40, 50), float(path.stem))
    assert (cache.get(path, lambda: {"a": own, "b": own + 1})["b"] == own + 1).all()
"""


def test_processes_that_make_the_same_case_do_not_disturb(folder, tmp_path):
    paths = [tmp_path / f"{i}.nii" for i in range(12)]
    for path in paths:
        path.touch()
    command = [sys.executable, "-c", RACE, str(folder), *map(str, paths)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert len(entries(folder)) == 12


@pytest.mark.parametrize("number", [errno.ENOSPC, None])
def test_a_full_disk_is_one_line_and_leaves_nothing(source, folder, monkeypatch, number):
    """NumPy's own report of a short write has no number."""
    cache = VolumeCache(folder, SETTINGS)

    def full(file: BinaryIO, array: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError(number, "full") if number else OSError("24 requested and 3 written")

    monkeypatch.setattr(volume_cache.np, "save", full)
    with pytest.raises(ExportError, match=r"case\.nii\.gz .*disk is full") as caught:
        cache.get(source, Maker())
    assert "\n" not in str(caught.value)
    assert not entries(folder)
    monkeypatch.undo()
    assert cache.get(source, Maker())["image"].size == 24


def test_what_a_killed_process_left_is_removed(source, folder):
    cache = VolumeCache(folder, SETTINGS)
    young, old = (cache.folder / f".{name}-half" for name in ("young", "old"))
    young.mkdir()
    old.mkdir()
    os.utime(old, (1, 1))
    VolumeCache(folder, SETTINGS)
    assert young.is_dir()
    assert not old.exists()
