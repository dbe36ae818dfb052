"""Zips and single files are read like folders, and cannot do harm."""

import errno
import gc
import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from generated_scans import along_normal, dicom_slice, refused, write_stack
from pumit.errors import AmbiguousSeriesError
from pumit.io.dicom import files as dicom_files
from pumit.volume import Volume


def zipped(tmp_path: Path, names: str = "{}", compression: int = zipfile.ZIP_DEFLATED) -> Path:
    write_stack(tmp_path / "ct", along_normal(5))
    with zipfile.ZipFile(tmp_path / "ct.zip", "w", compression) as archive:
        for file in (tmp_path / "ct").iterdir():
            archive.write(file, names.format(file.name))
    return tmp_path / "ct.zip"


def test_zip_reads_like_its_folder(tmp_path):
    for k, names in enumerate(("{}", "study/série 1/{}", "a\\b\\{}")):
        path = zipped(tmp_path, names, zipfile.ZIP_DEFLATED if k else zipfile.ZIP_STORED)
        expected = Volume.read(tmp_path / "ct")
        volume = Volume.read(path)
        np.testing.assert_array_equal(volume.array, expected.array)
        assert volume.origin_lps == expected.origin_lps


def test_unpacked_files_live_as_long_as_the_volume(tmp_path):
    volume = Volume.read(zipped(tmp_path))
    folder = volume.source.files[0].parent
    assert all(file.is_file() for file in volume.source.files)
    del volume
    gc.collect()
    assert not folder.exists()


def test_nothing_is_left_after_a_failure(tmp_path, monkeypatch):
    path = zipped(tmp_path)
    write_stack(tmp_path / "other", along_normal(5), series="1.2.4")
    with zipfile.ZipFile(path, "a") as archive:
        for file in (tmp_path / "other").iterdir():
            archive.write(file, f"other/{file.name}")
    monkeypatch.setattr(dicom_files.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(AmbiguousSeriesError):
        Volume.read(path)
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("name", ["../../evil-{}", "/evil-{}", "C:\\evil-{}", "a/../../evil-{}"])
def test_no_name_in_a_zip_leads_outside(tmp_path, name):
    inside = tmp_path / "deep" / "inside"
    inside.mkdir(parents=True)
    volume = Volume.read(zipped(inside, name))
    assert len({file.parent for file in volume.source.files}) == 1
    assert not list(tmp_path.rglob("evil-*"))
    assert not list(Path("/").glob("evil-*"))


def test_zip_without_dicom_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("readme.txt", "x" * 500)
    refused(tmp_path / "a.zip", "no DICOM objects")
    with zipfile.ZipFile(tmp_path / "a.zip", "w"):
        pass
    refused(tmp_path / "a.zip", "no DICOM objects")


def test_zip_bomb_is_refused_before_it_unpacks(tmp_path, monkeypatch):
    monkeypatch.setattr(dicom_files, "RATIO_FROM_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.dcm", bytes(128) + b"DICM" + bytes(8 << 20))
    refused(tmp_path / "a.zip", "too much for a scan")


def test_zip_that_the_disk_cannot_hold_is_refused(tmp_path, monkeypatch):
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = zipped(tmp_path)
    with monkeypatch.context() as patch:  # it fills while the zip is unpacked
        patch.setattr(dicom_files.shutil, "copyfileobj", refuse)
        refused(path, "disk is full")
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(dicom_files.shutil, "disk_usage", lambda folder: usage)
    refused(path, "make room")


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    path = zipped(tmp_path)
    monkeypatch.setattr(dicom_files, "MAX_FILES", 3)
    refused(path, "5 files, too much")
    refused(tmp_path / "ct", "more than 3 files")


def changed_byte(content: bytes) -> bytes:
    return content[:600] + bytes([content[600] ^ 0xFF]) + content[601:]


def encrypted(content: bytes) -> bytes:
    """Set the flag that says so in the entry of each member."""
    data, start = bytearray(content), 0
    while (start := data.find(b"PK\x01\x02", start)) >= 0:
        data[start + 8] |= 1
        start += 4
    return bytes(data)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *((lambda content, part=part: content[: int(part * len(content))], "damaged")
          for part in (0.2, 0.6, 0.95)),
        (changed_byte, "damaged"),
        (encrypted, "encrypted"),
    ],
)  # fmt: skip
def test_damaged_or_encrypted_zip_is_refused(tmp_path, change, reason):
    path = zipped(tmp_path, compression=zipfile.ZIP_STORED)
    path.write_bytes(change(path.read_bytes()))
    refused(path, reason)


@pytest.mark.parametrize("vr", [b"ZZ", b"OB", b"UN"])
@pytest.mark.parametrize("has_image", [False, True], ids=["bare", "image"])
def test_gdcm_never_sees_a_header_that_states_too_long_a_length(
    tmp_path, monkeypatch, vr, has_image
):
    """GDCM takes 4 GB for such a file of a few bytes (CVE-2026-3650)."""

    def never(*_arguments: object) -> None:
        raise AssertionError("GDCM would read the file")

    for name in ("ReadImage", "ImageFileReader", "ImageSeriesReader"):
        monkeypatch.setattr(SimpleITK, name, never)
    lying = struct.pack("<HH2sHI", 2, 0x102, vr, 0, 0xF0000000)
    group, rest = b"", b"abcdefgh"
    if has_image:
        buffer = io.BytesIO()
        dicom_slice(np.zeros((6, 8), np.uint16), (0, 0, 0)).save_as(
            buffer, enforce_file_format=True
        )
        end = 144 + struct.unpack("<I", buffer.getvalue()[140:144])[0]
        group, rest = buffer.getvalue()[144:end], buffer.getvalue()[end:]
    meta = struct.pack("<HH2sHI", 2, 0, b"UL", 4, len(group) + len(lying))
    path = tmp_path / "a.dcm"
    path.write_bytes(b"\0" * 128 + b"DICM" + meta + group + lying + rest)
    refused(path, "damaged")
