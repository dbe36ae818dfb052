"""Companion files of a result: statistics, and a manifest of what made it."""

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np

import pumit
from pumit.export.spacing import written_spacing_mm
from pumit.export.write import SUFFIXES
from pumit.segmentation import Algorithm, Segment
from pumit.system.files import file_sha256, write_json
from pumit.volume import Volume

FORMAT = "pumit-manifest-1"
# Packages on which a result depends.
_PACKAGES = (
    *("numpy", "scipy", "scikit-image", "SimpleITK", "pydicom", "highdicom"),
    *("openvino", "torch", "monai"),
)
StatisticsFormat = Literal["csv", "json"]


@dataclass(frozen=True)
class ResultOrigin:
    """Origin of a result.

    Attributes:
        weights_sha256: Hash of the model's weights, as in its checkpoint.
        options: JSON values of the options that affect the result, without names and paths.
        image: The scan's file, identified by its hash; None if it is not a single file.
    """

    weights_sha256: str = ""
    device: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    image: Path | None = None


def manifest_of(
    result: Path,
    volume: Volume,
    segments: tuple[Segment, ...],
    algorithm: Algorithm,
    origin: ResultOrigin = ResultOrigin(),
) -> dict[str, Any]:
    """Describe a result, without names of patients, files or segments.

    Args:
        volume: The scan, identified by a hash of its voxels and by UIDs if read from DICOM.
        segments: Segments in label order, identified by their codes.
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
            "weights_sha256": origin.weights_sha256,
        },
        "device": origin.device,
        "options": dict(origin.options),
        "input": _input(volume, origin.image),
        "result": {
            "sha256": file_sha256(result),
            "bytes": result.stat().st_size,
            "segments": [f"{s.type.scheme}:{s.type.value}" for s in segments],
        },
    }


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


@dataclass(frozen=True)
class Companions:
    """Selection of the files that are written beside each result.

    Attributes:
        statistics: Format of the segment statistics; None for no such file.
    """

    statistics: StatisticsFormat | None = None
    has_manifest: bool = False

    def statistics_path(self, result: Path) -> Path | None:
        """Return `NAME.statistics.csv` or `.json` beside the result, or None."""
        return _beside(result, f".statistics.{self.statistics}") if self.statistics else None

    def manifest_path(self, result: Path) -> Path | None:
        """Return `NAME.manifest.json` beside the result, or None."""
        return _beside(result, ".manifest.json") if self.has_manifest else None

    def _paths(self, result: Path) -> list[Path]:
        paths = (self.statistics_path(result), self.manifest_path(result))
        return [path for path in paths if path is not None]

    def are_there(self, result: Path) -> bool:
        """Return whether a result and all of its companions exist."""
        return all(path.exists() for path in (result, *self._paths(result)))

    def remove(self, result: Path) -> None:
        """Remove the selected files of a result that is no more."""
        for path in self._paths(result):
            path.unlink(missing_ok=True)

    def write(
        self,
        result: Path,
        volume: Volume,
        segments: tuple[Segment, ...],
        algorithm: Algorithm,
        origin: ResultOrigin,
        *,
        channel: int = 0,
    ) -> None:
        """Write the selected files; arguments as of `segment_statistics` and `manifest_of`.

        Raises:
            ExportError: If a file cannot be written.
        """
        statistics, manifest = self.statistics_path(result), self.manifest_path(result)
        if statistics:
            from pumit.export.statistics import segment_statistics, write_statistics

            write_statistics(segment_statistics(volume, segments, channel=channel), statistics)
        if manifest:
            content = manifest_of(result, volume, segments, algorithm, origin)
            write_json(manifest, content, what="The manifest")


def _beside(result: Path, ending: str) -> Path:
    lower = result.name.lower()
    cut = max((len(suffix) for suffix in SUFFIXES if lower.endswith(suffix)), default=0)
    return result.with_name(result.name[: len(result.name) - cut] + ending)
