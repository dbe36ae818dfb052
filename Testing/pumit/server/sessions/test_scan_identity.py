"""Which scans count as the same one."""

from dataclasses import replace

import numpy as np
import pytest
from pumit.export.dicom_series import write_dicom_series
from pumit.file_image import DicomSource
from pumit.server.sessions.state import scan_identity
from pumit.volume import Volume

VOXELS = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
SCAN = Volume(VOXELS, (3.0, 1.0, 2.0), source=DicomSource((), "1.2", instances=("1.2.1", "1.2.2")))


@pytest.mark.parametrize(
    "change",
    [
        {"array": VOXELS[::-1]},
        {"array": VOXELS.astype(np.int32)},
        {"array": VOXELS.reshape(4, 3, 5)},
        {"spacing_mm": (3.0, 2.0, 1.0)},
        {"origin_lps": (0.0, 0.0, 1.0)},
        {"direction": np.diag([-1.0, -1.0, 1.0])},
        {"source": None},
        {"source": replace(SCAN.source, series_instance_uid="1.3")},
        {"source": replace(SCAN.source, instances=("1.2.1", "1.2.3"))},
        {"source": replace(SCAN.source, frame=2)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_difference_makes_another_scan(change):
    assert scan_identity(replace(SCAN, **change)) != scan_identity(SCAN)


def test_a_scan_that_is_read_again_is_the_same(tmp_path):
    write_dicom_series(SCAN, tmp_path, patient_id="GENERATED")
    first, second = Volume.read(tmp_path), Volume.read(tmp_path)
    assert scan_identity(first) == scan_identity(second) != scan_identity(SCAN)
