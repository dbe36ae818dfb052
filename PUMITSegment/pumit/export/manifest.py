"""Manifest of a result: software, model, options and input, to identify and reproduce it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import pumit
from pumit.export.spacing import written_spacing_mm
from pumit.segmentation import Algorithm, Segment
from pumit.system.atomic import write_json
from pumit.system.checksum import file_sha256
from pumit.volume import Volume

FORMAT = "pumit-manifest-1"
# Packages on which a result depends.
_PACKAGES = (
    *("numpy", "scipy", "scikit-image", "SimpleITK", "pydicom", "highdicom"),
    *("openvino", "torch", "monai"),
)


def manifest_of(
    result: Path,
    volume: Volume,
    segments: tuple[Segment, ...],
    algorithm: Algorithm,
    *,
    weights_sha256: str = "",
    device: str = "",
    options: Mapping[str, Any] | None = None,
    image: Path | None = None,
) -> dict[str, Any]:
    """Describe a result, without names of patients, files or segments.

    Args:
        volume: The scan, identified by a hash of its voxels and by UIDs if read from DICOM.
        segments: Segments in label order, identified by their codes.
        weights_sha256: Hash of the model's weights, as in its checkpoint.
        options: JSON values of the options that affect the result, without names and paths.
        image: The scan's file, identified by its hash; None if it is not a single file.

    Returns:
        The manifest as JSON values.
    """
    return {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "pumit": pumit.__version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            **_versions(),
        },
        "model": {
            "name": algorithm.name,
            "version": algorithm.version,
            "kind": algorithm.kind,
            "weights_sha256": weights_sha256,
        },
        "device": device,
        "options": dict(options or {}),
        "input": _input(volume, image),
        "result": {
            "sha256": file_sha256(result),
            "bytes": result.stat().st_size,
            "segments": [f"{s.type.scheme}:{s.type.value}" for s in segments],
        },
    }


def write_manifest(manifest: Mapping[str, Any], path: str | Path) -> None:
    """Write a manifest as JSON.

    Raises:
        ExportError: If it cannot be written.
    """
    write_json(Path(path), manifest)


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _input(volume: Volume, image: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "voxels_sha256": voxels_sha256(volume),
        "shape": list(volume.array.shape),
        "spacing_mm": list(written_spacing_mm(volume)),
    }
    if volume.source is not None:
        found["series_instance_uid"] = volume.source.series_instance_uid
        found["sop_instance_uids"] = list(volume.source.instances)
    if image is not None and image.is_file():
        found["file_sha256"] = file_sha256(image)
    return found


def voxels_sha256(volume: Volume) -> str:
    """Hash a volume's intensities and grid, with the same result on every machine.

    The SHA-256 covers type, shape, spacing, origin and direction as text, and the voxels in little
    endian, the last axis fastest.
    """
    array = np.ascontiguousarray(volume.array, volume.array.dtype.newbyteorder("<"))
    grid = (*volume.spacing_mm, *volume.origin_lps, *volume.direction.ravel().tolist())
    digest = hashlib.sha256(f"{array.dtype.str[1:]} {array.shape}".encode())
    # Rounding by different readers must not change the hash.
    digest.update(" ".join(f"{v + 0.0:.4f}" for v in grid).encode())
    digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
