"""Search for DICOM objects in a folder or zip, and reading of their headers."""

import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pydicom
from pydicom.dataset import Dataset, FileDataset
from pydicom.filereader import _read_file_meta_info, read_preamble
from pydicom.uid import DeflatedExplicitVRLittleEndian, MediaStorageDirectoryStorage

from pumit.errors import VolumeError
from pumit.io.parser_errors import MAX_COMPRESSION, SUSPICIOUS_BYTES, parser_errors, parsing

# More files than this suggest a whole disk given by mistake, not a study.
MAX_FILES = 50_000
# Limits of a zip's unpacked size: in bytes, and above `RATIO_FROM_BYTES` relative to the zip.
MAX_UNPACKED_BYTES = 32 << 30
MAX_ZIP_RATIO = 200
RATIO_FROM_BYTES = 1 << 30

# Objects with Rows and Columns that are derived from a scan, not a scan.
_RESULTS = {
    "1.2.840.10008.5.1.4.1.1.66.4": "segmentation",
    "1.2.840.10008.5.1.4.1.1.66.7": "label map segmentation",
    "1.2.840.10008.5.1.4.1.1.481.2": "radiotherapy dose",
}
# Placeholders for removed identifiers; letters and digits only.
_PLACEHOLDERS = re.compile(
    r"|anon\w*|unknown\w*|unnamed|noname|no(?:patient)?id|none|null|na|nil|test\w*|dummy|default"
    r"|(?:the)?patient(?:id|name)?|subject|case|deidentified|removed|redacted|hidden|empty"
    r"|123(?:4(?:5(?:67?8?9?)?)?)?|(.)\1*"
)
# Keywords of attributes that distinguish images at one position, in order of preference.
DIFFERENCES = (
    "EchoTime",
    "TemporalPositionIdentifier",
    "DiffusionBValue",
    "FrameReferenceTime",
    "TriggerTime",
    "InversionTime",
    "FlipAngle",
    "ComplexImageComponent",
    "AcquisitionNumber",
    "ImageType",
)
# Indexing vectors of a nuclear medicine multi-frame object (PS3.3 C.8.4.8), except spatial ones.
FRAME_VECTORS = (
    "EnergyWindowVector",
    "DetectorVector",
    "PhaseVector",
    "RRIntervalVector",
    "TimeSlotVector",
    "TimeSliceVector",
    "RotationVector",
    "AngularViewVector",
)
_TAGS = [
    *DIFFERENCES,
    *FRAME_VECTORS,
    "SOPClassUID",
    "SOPInstanceUID",
    "SeriesInstanceUID",
    "FrameOfReferenceUID",
    "PatientID",
    "Modality",
    "SeriesDescription",
    "InstanceNumber",
    "StudyDate",
    "AcquisitionDateTime",
    "AcquisitionDate",
    "AcquisitionTime",
    "Rows",
    "Columns",
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "BitsAllocated",
    "BitsStored",
    "PixelRepresentation",
    "NumberOfFrames",
    "FrameIncrementPointer",
    "SliceThickness",
    "SpacingBetweenSlices",
    "DetectorInformationSequence",
    "SliceVector",
    "ImagePositionPatient",
    "ImageOrientationPatient",
    "PixelSpacing",
    "ImagerPixelSpacing",
    "NominalScannedPixelSpacing",
    "SequenceOfUltrasoundRegions",
    "ImagePlanePixelSpacing",
    "RadiationMachineSAD",
    "RTImageSID",
    "RescaleSlope",
    "RescaleIntercept",
    "RescaleType",
    "Units",
    "ModalityLUTSequence",
    "SharedFunctionalGroupsSequence",
    "PerFrameFunctionalGroupsSequence",
]


@dataclass(frozen=True, eq=False)
class DicomFile:
    """A DICOM object with the attributes needed for geometry and series selection."""

    path: Path
    header: Dataset

    @property
    def series_instance_uid(self) -> str:
        """SeriesInstanceUID, or an empty string."""
        return str(self.header.get("SeriesInstanceUID") or "")

    @property
    def patient(self) -> str:
        """PatientID; empty if missing or a placeholder."""
        return stated(str(self.header.get("PatientID") or ""))

    @property
    def is_image(self) -> bool:
        """Whether this is a scan rather than a report, a plan or a segmentation."""
        header = self.header
        if str(header.get("SOPClassUID", "")) in _RESULTS:
            return False
        return bool(header.get("Rows")) and bool(header.get("Columns"))

    @property
    def kind(self) -> str:
        """Name of the SOP class, for messages."""
        uid = str(self.header.get("SOPClassUID", ""))
        name = pydicom.uid.UID(uid).name if uid else "unknown"
        return _RESULTS.get(uid, name if name != uid else "private object")


def stated(text: str) -> str:
    """Return an identifier without surrounding space; empty if it is only a placeholder."""
    bare = re.sub(r"[\W_]", "", text).casefold()
    return "" if _PLACEHOLDERS.fullmatch(bare) else text.strip()


def is_dicom(start: bytes) -> bool:
    """Whether the first 132 bytes look like a DICOM object, with or without a preamble."""
    # Without a preamble, the first element is of group 2 or 8, little-endian.
    return start[128:132] == b"DICM" or start[:2] in (b"\x02\x00", b"\x08\x00")


def read_header(path: Path) -> DicomFile:
    """Read the header of one file.

    Raises:
        VolumeError: If the file is damaged or not a DICOM object.
    """
    with parsing("DICOM file"), path.open("rb") as stream:
        check_deflated(stream)
        # `force` accepts files without a preamble; the check below refuses other files.
        header = pydicom.dcmread(
            stream, stop_before_pixels=True, specific_tags=list(_TAGS), force=True
        )
        if not first_value(header, "SOPClassUID") and not _is_directory(header):
            raise VolumeError(
                "A DICOM file is damaged: it has no SOP class; copy or export it again."
            )
        return DicomFile(path, header)


def check_deflated(stream: BinaryIO) -> None:
    """Refuse a deflated object with an extreme compression ratio; pydicom inflates all at once.

    Args:
        stream: A file at its beginning, rewound on return.

    Raises:
        VolumeError: If the object unpacks to far more than its size explains.
    """
    size = os.fstat(stream.fileno()).st_size
    if size * MAX_COMPRESSION >= SUSPICIOUS_BYTES and _is_deflated(stream):
        unpacked, inflate = 0, zlib.decompressobj(-zlib.MAX_WBITS)
        while not inflate.eof and (packed := inflate.unconsumed_tail or stream.read(1 << 16)):
            unpacked += len(inflate.decompress(packed, 1 << 20))
            if unpacked > max(SUSPICIOUS_BYTES, MAX_ZIP_RATIO * size):
                raise VolumeError(
                    f"A deflated DICOM file unpacks to more than {unpacked >> 20} MiB, far more "
                    "than its size explains: it is damaged; export it again."
                )
    stream.seek(0)


def _is_deflated(stream: BinaryIO) -> bool:
    """Whether the file meta information states deflation; leaves the stream at its end."""
    read_preamble(stream, force=True)
    syntax = _read_file_meta_info(stream).get("TransferSyntaxUID")
    return bool(syntax == DeflatedExplicitVRLittleEndian)


def _is_directory(header: FileDataset) -> bool:
    """Whether this is a DICOMDIR, which lists files and belongs to no series."""
    return str(header.file_meta.get("MediaStorageSOPClassUID", "")) == MediaStorageDirectoryStorage


def find_dicom(folder: Path, *, seen: Callable[[DicomFile], None] | None = None) -> list[DicomFile]:
    """List the DICOM objects in a folder and its subfolders, sorted by path; skip other files.

    Args:
        seen: Callback for each object as soon as it is found.

    Raises:
        VolumeError: If the folder cannot be read, a DICOM file is damaged, or there are far too
            many files.
    """
    found = []
    with parsing("folder"):
        for path in _files(folder):
            try:
                with path.open("rb") as stream:
                    start = stream.read(132)
            except PermissionError as error:
                raise VolumeError(
                    "No permission to read a file in the folder, and without it slices could be "
                    "missing. Ask for permission, or give a folder without that file."
                ) from error
            if not is_dicom(start):
                continue
            try:
                file = read_header(path)
            except VolumeError:
                if start[128:132] == b"DICM":
                    raise  # a damaged slice must not go missing unnoticed
                continue
            found.append(file)
            if seen is not None:
                seen(file)
    return found


def _files(folder: Path) -> Iterator[Path]:
    count = 0

    def refuse(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith(".") or not path.is_file():
                continue
            count += 1
            if count > MAX_FILES:
                raise VolumeError(
                    f"The folder holds more than {MAX_FILES} files; "
                    "give the folder of one study or series."
                )
            yield path


def unpack_dicom_zip(path: Path) -> tempfile.TemporaryDirectory[str]:
    """Unpack the DICOM objects of a zip into a temporary folder.

    Members get new names, so that no name in the zip can point outside the folder.

    Returns:
        The flat folder, deleted with the object; files keep the order of the zip.

    Raises:
        VolumeError: If the zip is damaged, encrypted, or unpacks to too much.
    """
    with parsing("zip file"):
        folder = tempfile.TemporaryDirectory(prefix="pumit-")
        try:
            with zipfile.ZipFile(path) as archive:
                members = [m for m in archive.infolist() if not m.is_dir() and m.file_size > 132]
                check_zip(members, path.stat().st_size, folder.name)
                for index, member in enumerate(members):
                    _unpack(archive, member, Path(folder.name, f"{index:06d}.dcm"))
        except BaseException:
            folder.cleanup()
            raise
        return folder


def check_zip(members: list[zipfile.ZipInfo], packed: int, folder: str) -> None:
    """Refuse a zip that would fill memory or disk.

    Args:
        packed: Their compressed size, bytes.

    Raises:
        VolumeError: If they are too large for a scan or for the disk, or encrypted.
    """
    unpacked = sum(m.file_size for m in members)
    is_bomb = unpacked > RATIO_FROM_BYTES and unpacked > MAX_ZIP_RATIO * packed
    if len(members) > MAX_FILES or unpacked > MAX_UNPACKED_BYTES or is_bomb:
        raise VolumeError(
            f"The zip would unpack to {unpacked / 2**30:.1f} GiB in {len(members)} files, too "
            "much for a scan; unpack it yourself and give the series' folder."
        )
    if unpacked > shutil.disk_usage(folder).free:
        raise VolumeError(
            f"The zip unpacks to {unpacked / 2**30:.1f} GiB, more than is free on the temporary "
            "folder's disk; make room, or set TMPDIR to a larger disk."
        )
    if any(m.flag_bits & 0x1 for m in members):
        raise VolumeError("The zip is encrypted; unpack it with its password first.")


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    with archive.open(member) as packed:
        start = packed.read(132)
        if not is_dicom(start):
            return
        with target.open("wb") as out:
            out.write(start)
            shutil.copyfileobj(packed, out, 1 << 20)


def first_value(header: Dataset, keyword: str) -> Any:
    """Return an attribute's value, or None if it is absent, empty or unreadable."""
    try:
        value = header.get(keyword)
    except parser_errors():
        return None
    return None if value is None or value == "" else value


def items_of(header: Dataset, *keywords: str) -> list[Dataset]:
    """Return the items of a sequence, or of nested sequences; none of one that is absent."""
    found = [header]
    for keyword in keywords:
        found = [item for outer in found for item in first_value(outer, keyword) or []]
    return found
