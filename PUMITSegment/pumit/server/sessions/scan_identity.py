"""Identity of a scan, so that nothing meant for one scan is done to another."""

from __future__ import annotations

import hashlib
import json

from pumit.export.companions import voxels_sha256
from pumit.volume import Volume


def scan_identity(volume: Volume) -> str:
    """Return the SHA-256 of a scan's voxels, grid and DICOM instances, in hexadecimal.

    It is the same in every process that reads the same scan. Two series with equal voxels differ.
    """
    source = volume.source
    facts: list[object] = [voxels_sha256(volume), volume.thickness_mm]
    if source is not None:
        facts += [source.series_instance_uid, source.instances, source.frame, source.frame_numbers]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
