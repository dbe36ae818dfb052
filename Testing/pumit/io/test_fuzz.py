"""Whatever a file holds, the readers give a result or a VolumeError, soon, and stay silent."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draws import IS_FUZZING, draws
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from label_objects_made import save, write_bundle
from pumit.errors import VolumeError
from pumit.io.file_part import with_part
from pumit.io.labels.label_source import announced_segments, read_labels
from pumit.volume import Volume

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab" / "fuzz"))
from fuzz_seeds import scan_for_labels, write_seeds

LAB = Path(__file__).resolve().parents[2] / "lab" / "fuzz"
FUZZ = settings(
    max_examples=draws(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# Good files of each kind; DICOM in further encodings is for the fuzzer below.
SCANS = {"nifti": "*", "nrrd": "*", "picture": "*", "dicom": "plain.dcm", "zip": "*"}
LABELS = ("seg", "rtstruct", "labels", "bundle")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    write_seeds(folder)
    (folder / "bundle").mkdir()
    scan = save(folder / "scan.nrrd", scan_for_labels(folder))
    write_bundle(folder / "bundle" / "a.mrb", scan, folder / "labels" / "a.seg.nrrd")
    return folder


@st.composite
def damaged(draw: st.DrawFn, files: list[Path]) -> tuple[str, bytes]:
    """Name and content: bits flipped, bytes of the header replaced, or cut off."""
    file = draw(st.sampled_from(files))
    return file.name, draw(damage(file.read_bytes()))


@st.composite
def damage(draw: st.DrawFn, valid: bytes) -> bytes:
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
def test_damaged_scans(tmp_path, kind, seeds, is_silent):
    @FUZZ
    @given(damaged(sorted((seeds / kind).glob(SCANS[kind]))))
    def run(made: tuple[str, bytes]) -> None:
        path = tmp_path / made[0]
        path.write_bytes(made[1])
        is_read_or_refused(lambda: read_scan(path), path)

    run()
    is_silent()


@pytest.mark.parametrize("kind", LABELS)
def test_damaged_labels(tmp_path, kind, seeds, is_silent):
    volume, files = scan_for_labels(seeds), sorted((seeds / kind).iterdir())

    @FUZZ
    @given(damaged(files))
    def run(made: tuple[str, bytes]) -> None:
        path = tmp_path / made[0]
        path.write_bytes(made[1])
        is_read_or_refused(lambda: read_label_file(path, volume), path)

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
def test_random_bytes(tmp_path, start, is_silent):
    @FUZZ
    @given(st.binary(max_size=700), st.booleans())
    def run(content: bytes, in_folder: bool) -> None:
        path = tmp_path / "folder" / "a.dcm"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(start + content)
        is_read_or_refused(lambda: read_scan(path.parent if in_folder else path), path)

    run()
    is_silent()


@pytest.mark.slow
@pytest.mark.skipif(not IS_FUZZING, reason="takes minutes: set PUMIT_FUZZING, as each night")
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed; it is built for Linux on x86-64 only",
)
def test_fuzzing_by_coverage_finds_nothing(tmp_path):
    command = [sys.executable, str(LAB / "fuzz_files.py"), "--together", "--folder", str(tmp_path)]
    done = subprocess.run(
        [*command, "--seconds", "300", "--runs", "10000"],
        capture_output=True,
        text=True,
        check=False,
    )
    # Inputs that were found are printed with their bytes.
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
