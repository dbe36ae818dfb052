"""Whatever a label file holds, the readers give labels or a VolumeError, soon, and stay silent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
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
from pumit.errors import VolumeError
from pumit.io.file_part import with_part
from pumit.io.labels.label_source import announced_segments, read_labels
from pumit.volume import Volume

FUZZ = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
KINDS = {"seg": "a.dcm", "struct": "a.dcm", "nrrd": "a.seg.nrrd", "bundle": "a.mrb"}
CIRCLE = [np.array([(2, 1.5, 1.5), (2, 1.5, 8.5), (2, 8.5, 8.5), (2, 8.5, 1.5)])]


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Volume:
    return a_series(tmp_path_factory.mktemp("series"))


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory, scan: Volume) -> dict[str, bytes]:
    """A good file of each kind."""
    folder = tmp_path_factory.mktemp("valid")
    pixels = np.stack(blobs(), axis=-1).astype(np.uint8)
    segments = save_segments(folder / "s.seg.nrrd", scan)
    paths = {
        "seg": write_seg(folder / "a.dcm", scan, pixels, "BINARY", ["Liver", "Tumour"]),
        "struct": write_struct(folder / "b.dcm", scan, {"Liver": CIRCLE}),
        "nrrd": segments,
        "bundle": write_bundle(folder / "a.mrb", save(folder / "v.nrrd", scan), segments),
    }
    return {kind: path.read_bytes() for kind, path in paths.items()}


@pytest.fixture
def read(
    tmp_path: Path, scan: Volume, capfd: pytest.CaptureFixture[str]
) -> Callable[[str, bytes], None]:
    """Read bytes as a file of a kind: labels on the scan's grid, or one line, and no talk."""

    def attempt(kind: str, content: bytes) -> None:
        path = tmp_path / KINDS[kind]
        path.write_bytes(content)
        if kind == "bundle":
            path = with_part(path, "Segments")
        message = "reason"
        try:
            announced_segments(path)
            found = read_labels(path, scan)
        except VolumeError as error:
            message = str(error)
        else:
            assert found.volume.shape == scan.shape
        assert message
        assert "\n" not in message
        assert str(tmp_path) not in message
        captured = capfd.readouterr()
        assert (captured.out, captured.err) == ("", "")

    return attempt


@pytest.mark.parametrize("kind", KINDS)
def test_bit_flips(kind: str, valid: dict[str, bytes], read: Callable[[str, bytes], None]) -> None:
    good = valid[kind]

    @FUZZ
    @given(st.lists(st.tuples(st.integers(0, len(good) - 1), st.integers(0, 7)), max_size=6))
    def run(flips: list[tuple[int, int]]) -> None:
        data = bytearray(good)
        for position, bit in flips:
            data[position] ^= 1 << bit
        read(kind, bytes(data))

    run()


@pytest.mark.parametrize("kind", KINDS)
def test_truncation(kind: str, valid: dict[str, bytes], read: Callable[[str, bytes], None]) -> None:
    @FUZZ
    @given(st.integers(0, len(valid[kind]) - 1))
    def run(length: int) -> None:
        read(kind, valid[kind][:length])

    run()


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_bytes(
    kind: str, valid: dict[str, bytes], read: Callable[[str, bytes], None]
) -> None:
    good = valid[kind]

    @FUZZ
    @given(st.integers(0, len(good) - 1), st.binary(min_size=1, max_size=8))
    def run(position: int, replacement: bytes) -> None:
        read(kind, good[:position] + replacement + good[position + len(replacement) :])

    run()


def test_good_files_are_read(valid: dict[str, bytes], read: Callable[[str, bytes], None]) -> None:
    for kind, content in valid.items():
        read(kind, content)
