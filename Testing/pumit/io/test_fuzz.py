"""Whatever a file holds, the readers give a result or a VolumeError, soon, and stay silent."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from draws import draws
from generated_scans import dicom_slice, itk_image, pattern, rotation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from label_objects_made import (
    a_series,
    blobs,
    save,
    save_segments,
    write_bundle,
    write_seg,
    write_struct,
)
from PIL import Image
from pumit.errors import VolumeError
from pumit.io.file_part import with_part
from pumit.io.labels.label_source import announced_segments, read_labels
from pumit.volume import Volume

FUZZ = settings(
    max_examples=draws(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SCANS = ["nii", "nii.gz", "nrrd", "mha", "png", "jpg", "dcm", "zip"]
LABELS = {"seg": "a.dcm", "struct": "a.dcm", "nrrd": "a.seg.nrrd", "bundle": "a.mrb"}
CIRCLE = [np.array([(2, 1.5, 1.5), (2, 1.5, 8.5), (2, 8.5, 8.5), (2, 8.5, 1.5)])]


def valid_scan(kind: str, folder: Path) -> bytes:
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


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Volume:
    return a_series(tmp_path_factory.mktemp("series"))


def valid_labels(kind: str, folder: Path, series: Volume) -> bytes:
    if kind == "seg":
        pixels = np.stack(blobs(), axis=-1).astype(np.uint8)
        path = write_seg(folder / "v.dcm", series, pixels, "BINARY", ["Liver", "Tumour"])
    elif kind == "struct":
        path = write_struct(folder / "v.dcm", series, {"Liver": CIRCLE})
    else:
        path = save_segments(folder / "v.seg.nrrd", series)
        if kind == "bundle":
            path = write_bundle(folder / "v.mrb", save(folder / "v.nrrd", series), path)
    return path.read_bytes()


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """A good file with bits flipped, with bytes of its header replaced, or cut off."""
    places = st.integers(0, len(valid) - 1)
    how = draw(st.sampled_from(["flipped", "replaced", "cut"]))
    if how == "cut":
        return valid[: draw(places)]
    if how == "replaced":
        at = draw(st.integers(0, min(len(valid), 400) - 1))
        new = draw(st.binary(min_size=1, max_size=8))
        return valid[:at] + new + valid[at + len(new) :]
    data = bytearray(valid)
    for at, bit in draw(st.lists(st.tuples(places, st.integers(0, 7)), max_size=6)):
        data[at] ^= 1 << bit
    return bytes(data)


def is_read_or_refused(read: Callable[[], object], path: Path) -> None:
    """A result, or one line that names no folder."""
    try:
        read()
    except VolumeError as error:
        message = str(error)
        assert message
        assert "\n" not in message
        assert str(path.parent) not in message


def read_scan(path: Path) -> None:
    assert np.isfinite(Volume.read(path).array).all()


def read_label_file(path: Path, series: Volume) -> None:
    part = with_part(path, "Segments") if path.suffix == ".mrb" else path
    announced_segments(part)
    assert read_labels(part, series).volume.shape == series.shape


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


@pytest.mark.parametrize("kind", SCANS)
def test_damaged_scans(tmp_path: Path, kind: str, is_silent: Callable[[], None]) -> None:
    path = tmp_path / f"a.{kind}"

    @FUZZ
    @given(damaged(valid_scan(kind, tmp_path)))
    def run(content: bytes) -> None:
        path.write_bytes(content)
        is_read_or_refused(lambda: read_scan(path), path)

    run()
    is_silent()


@pytest.mark.parametrize("kind", LABELS)
def test_damaged_labels(
    tmp_path: Path, kind: str, series: Volume, is_silent: Callable[[], None]
) -> None:
    path, valid = tmp_path / LABELS[kind], valid_labels(kind, tmp_path, series)
    path.write_bytes(valid)
    read_label_file(path, series)

    @FUZZ
    @given(damaged(valid))
    def run(content: bytes) -> None:
        path.write_bytes(content)
        is_read_or_refused(lambda: read_label_file(path, series), path)

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
        is_read_or_refused(lambda: read_scan(path.parent if in_folder else path), path)

    run()
    is_silent()
