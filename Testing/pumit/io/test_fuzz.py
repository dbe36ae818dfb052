"""Whatever a file holds, the loaders give a volume or a VolumeError, soon, and stay silent."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from generated_scans import dicom_slice, itk_image, pattern, rotation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from pumit.errors import VolumeError
from pumit.volume import Volume

FUZZ = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
KINDS = ["nii", "nii.gz", "nrrd", "mha", "png", "jpg", "dcm", "zip"]


def valid_file(kind: str, folder: Path) -> bytes:
    path = folder / f"valid.{kind}"
    if kind in ("nii", "nii.gz", "nrrd", "mha"):
        image = itk_image(pattern((3, 4, 5)), direction=rotation(10, 20, 30))
        SimpleITK.WriteImage(image, str(path))
    elif kind in ("png", "jpg"):
        Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(path)
    else:
        slices = []
        for k in range(2):
            buffer = io.BytesIO()
            ds = dicom_slice(np.arange(20, dtype=np.uint16).reshape(4, 5), (0, 0, 2.0 * k))
            ds.save_as(buffer, enforce_file_format=True)
            slices.append(buffer.getvalue())
        if kind == "dcm":
            return slices[0]
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for k, data in enumerate(slices):
                archive.writestr(f"{k}.dcm", data)
    return path.read_bytes()


def read(path: Path) -> None:
    """A volume, or one line."""
    message = "reason"
    try:
        volume = Volume.read(path)
    except VolumeError as error:
        message = str(error)
    else:
        assert isinstance(volume, Volume)
        assert np.isfinite(volume.array).all()
    assert message
    assert "\n" not in message


@pytest.fixture
def is_silent(
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> Callable[[], None]:
    """Nothing on the streams, and no library's log or warning: they quote the header."""

    def check() -> None:
        captured = capfd.readouterr()
        assert (captured.out, captured.err) == ("", "")
        assert [r.getMessage() for r in caplog.records if not r.name.startswith("pumit")] == []
        assert [str(w.message) for w in recwarn if "pydicom" in w.filename] == []

    return check


@pytest.mark.parametrize("kind", KINDS)
def test_bit_flips(tmp_path: Path, kind: str, is_silent: Callable[[], None]) -> None:
    valid = valid_file(kind, tmp_path)

    @FUZZ
    @given(st.lists(st.tuples(st.integers(0, len(valid) - 1), st.integers(0, 7)), max_size=6))
    def run(flips: list[tuple[int, int]]) -> None:
        data = bytearray(valid)
        for position, bit in flips:
            data[position] ^= 1 << bit
        (tmp_path / f"a.{kind}").write_bytes(data)
        read(tmp_path / f"a.{kind}")

    run()
    is_silent()


@pytest.mark.parametrize("kind", KINDS)
def test_header_bytes(tmp_path: Path, kind: str, is_silent: Callable[[], None]) -> None:
    valid = valid_file(kind, tmp_path)
    length = min(len(valid), 400)

    @FUZZ
    @given(st.integers(0, length - 1), st.binary(min_size=1, max_size=8))
    def run(position: int, replacement: bytes) -> None:
        data = valid[:position] + replacement + valid[position + len(replacement) :]
        (tmp_path / f"a.{kind}").write_bytes(data)
        read(tmp_path / f"a.{kind}")

    run()
    is_silent()


@pytest.mark.parametrize("kind", KINDS)
def test_truncation(tmp_path: Path, kind: str, is_silent: Callable[[], None]) -> None:
    valid = valid_file(kind, tmp_path)

    @FUZZ
    @given(st.integers(0, len(valid) - 1))
    def run(length: int) -> None:
        (tmp_path / f"a.{kind}").write_bytes(valid[:length])
        read(tmp_path / f"a.{kind}")

    run()
    is_silent()


STARTS = {
    "nothing": b"",
    "png": b"\x89PNG\r\n\x1a\n",
    "jpg": b"\xff\xd8\xff\xe0",
    "zip": b"PK\x03\x04",
    "nrrd": b"NRRD0004\n",
    "mha": b"ObjectType = Image\nNDims = 3\n",
    "nii": (348).to_bytes(4, "little"),
    "nii2": (540).to_bytes(4, "little"),
    "gz": b"\x1f\x8b\x08",
    "dcm": bytes(128) + b"DICM",
    "dcm without preamble": b"\x08\x00\x05\x00",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_random_bytes(tmp_path: Path, start: bytes, is_silent: Callable[[], None]) -> None:
    @FUZZ
    @given(st.binary(max_size=700), st.booleans())
    def run(content: bytes, in_folder: bool) -> None:
        path = tmp_path / "folder" / "a.dcm"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(start + content)
        read(path.parent if in_folder else path)

    run()
    is_silent()
