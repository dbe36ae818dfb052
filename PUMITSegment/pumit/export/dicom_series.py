"""A generated scan as a CT series, so that a DICOM-SEG has something real to reference."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid
from pydicom.valuerep import DSfloat

import pumit
from pumit.errors import ExportError, VolumeError
from pumit.export.spacing import written_spacing_mm
from pumit.file_image import DicomSource
from pumit.system.atomic import atomic_path
from pumit.volume import Volume


def write_dicom_series(
    volume: Volume,
    folder: str | Path,
    *,
    patient_name: str = "PUMIT^Demo",
    patient_id: str = "PUMIT-DEMO",
    series_description: str = "Generated scan",
) -> Volume:
    """Write a volume as a classic CT series, one file per slice.

    Meant for generated scans: the patient and the study are made up. Intensities that fit are
    stored as they are, others as 16-bit steps of their range.

    Args:
        volume: Scalar volume, any orientation, right- or left-handed.
        folder: Folder to create; it must not exist, or be empty.
        patient_name: Name in every file.
        patient_id: Identifier in every file.
        series_description: Description of the series.

    Returns:
        The same volume, its source being the files that were written, in slice order.

    Raises:
        VolumeError: If the volume has colour channels or voxels that are not finite.
        ExportError: If the folder is not empty or cannot be written.
    """
    target = Path(folder)
    if target.is_dir():
        if any(target.iterdir()):
            raise ExportError(
                "The folder for the DICOM series is not empty; choose a new one, "
                "so that two series do not mix."
            )
        target.rmdir()
    stored, slope, intercept = _stored_values(volume)
    common = _common_dataset(volume, patient_name, patient_id, series_description)
    common.RescaleSlope = DSfloat(slope, auto_format=True)
    common.RescaleIntercept = DSfloat(intercept, auto_format=True)
    with atomic_path(target) as temporary:
        try:
            temporary.mkdir()
            for k in range(volume.shape[0]):
                _write_slice(volume, common, stored[k], k, temporary / _file_name(k))
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            # Without a file name the reason is reported as the target's.
            raise OSError(error.errno, error.strerror) from error
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    files = tuple(target / _file_name(k) for k in range(volume.shape[0]))
    return replace(volume, source=DicomSource(files, str(common.SeriesInstanceUID)))


def _file_name(k: int) -> str:
    return f"slice_{k + 1:04d}.dcm"


def _stored_values(volume: Volume) -> tuple[npt.NDArray[np.int16], float, float]:
    """Stored values with the slope and intercept that give intensities back."""
    array = volume.array
    if array.ndim != 3:
        raise VolumeError(
            f"A CT series holds one value per voxel, this volume has {volume.channels} channels."
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise VolumeError("A DICOM series cannot hold NaN or infinite voxels; replace them first.")
    low, high = float(array.min()), float(array.max())
    limits = np.iinfo(np.int16)
    fits = limits.min <= low and high <= limits.max
    if fits and (array.dtype.kind in "biu" or bool((array == np.round(array)).all())):
        return array.astype(np.int16), 1.0, 0.0
    slope = (high - low) / (limits.max - limits.min) or 1.0
    # The header holds 16 characters; compute with what a reader will see.
    slope = float(DSfloat(slope, auto_format=True))
    intercept = float(DSfloat(low - slope * limits.min, auto_format=True))
    steps = np.round((array.astype(np.float64) - intercept) / slope)
    return np.clip(steps, limits.min, limits.max).astype(np.int16), slope, intercept


def _common_dataset(
    volume: Volume, patient_name: str, patient_id: str, series_description: str
) -> Dataset:
    """Attributes that every slice shares: patient, study, series, frame of reference, pixels."""
    now = datetime.now()
    spacing = written_spacing_mm(volume)
    ds = Dataset()
    ds.SpecificCharacterSet = "ISO_IR 192"
    ds.SOPClassUID = CTImageStorage
    ds.PatientName, ds.PatientID = patient_name, patient_id
    ds.PatientBirthDate = ds.PatientSex = ""
    ds.StudyInstanceUID, ds.SeriesInstanceUID = generate_uid(), generate_uid()
    ds.FrameOfReferenceUID, ds.PositionReferenceIndicator = generate_uid(), ""
    ds.StudyDate = ds.SeriesDate = ds.ContentDate = ds.AcquisitionDate = now.strftime("%Y%m%d")
    ds.StudyTime = ds.SeriesTime = ds.ContentTime = ds.AcquisitionTime = now.strftime("%H%M%S")
    ds.StudyDescription, ds.SeriesDescription = "Generated by PUMIT", series_description
    ds.ReferringPhysicianName = ds.AccessionNumber = ds.KVP = ""
    ds.StudyID = ds.SeriesNumber = ds.AcquisitionNumber = "1"
    ds.Modality, ds.PatientPosition = "CT", "HFS"
    # Nobody's body part; one that is not paired needs no laterality.
    ds.BodyPartExamined = "WHOLEBODY"
    ds.Manufacturer, ds.ManufacturerModelName = "PUMIT", "PUMIT generated scan"
    ds.SoftwareVersions = pumit.__version__
    ds.ImageType = ["DERIVED", "SECONDARY", "AXIAL"]
    ds.PixelSpacing = [DSfloat(s, auto_format=True) for s in spacing[1:]]
    ds.SliceThickness = DSfloat(spacing[0], auto_format=True)
    cosines = np.concatenate([volume.direction[:, 0], volume.direction[:, 1]])
    ds.ImageOrientationPatient = [DSfloat(c, auto_format=True) for c in cosines]
    _, ds.Rows, ds.Columns = volume.shape
    ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, "MONOCHROME2"
    ds.BitsAllocated = ds.BitsStored = 16
    ds.HighBit, ds.PixelRepresentation = 15, 1
    ds.RescaleType = "HU"
    low, high = np.percentile(volume.array, (1, 99))
    ds.WindowCenter = DSfloat(float(low + high) / 2, auto_format=True)
    ds.WindowWidth = DSfloat(max(float(high - low), 1.0), auto_format=True)
    return ds


def _write_slice(
    volume: Volume, common: Dataset, stored: npt.NDArray[np.int16], k: int, path: Path
) -> None:
    ds = Dataset(common)
    ds.SOPInstanceUID = generate_uid()
    ds.InstanceNumber = str(k + 1)
    position = volume.index_to_world((k, 0, 0))
    ds.ImagePositionPatient = [DSfloat(p, auto_format=True) for p in position]
    ds.PixelData = np.ascontiguousarray(stored).astype("<i2").tobytes()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    ds.file_meta.MediaStorageSOPClassUID = CTImageStorage
    ds.file_meta.MediaStorageSOPInstanceUID = ds.SOPInstanceUID
    ds.save_as(path, enforce_file_format=True)
