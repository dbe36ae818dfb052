"""Files beside a result: segment statistics and manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pumit.export.write import SUFFIXES
from pumit.segmentation import Algorithm, Segment
from pumit.volume import Volume

StatisticsFormat = Literal["csv", "json"]


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

    def are_there(self, result: Path) -> bool:
        """Return whether a result and all of its companions exist."""
        paths = (result, self.statistics_path(result), self.manifest_path(result))
        return all(path is None or path.exists() for path in paths)

    def write(
        self,
        result: Path,
        volume: Volume,
        segments: tuple[Segment, ...],
        algorithm: Algorithm,
        *,
        channel: int = 0,
        weights_sha256: str = "",
        device: str = "",
        options: Mapping[str, Any] | None = None,
        image: Path | None = None,
    ) -> None:
        """Write the selected files; see `segment_statistics` and `manifest_of` for the arguments.

        Raises:
            ExportError: If a file cannot be written.
        """
        statistics, manifest = self.statistics_path(result), self.manifest_path(result)
        if statistics:
            from pumit.export.statistics import segment_statistics, write_statistics

            write_statistics(segment_statistics(volume, segments, channel=channel), statistics)
        if manifest:
            from pumit.export.manifest import manifest_of, write_manifest

            content = manifest_of(
                result,
                volume,
                segments,
                algorithm,
                weights_sha256=weights_sha256,
                device=device,
                options=options,
                image=image,
            )
            write_manifest(content, manifest)


def _beside(result: Path, ending: str) -> Path:
    lower = result.name.lower()
    cut = max((len(suffix) for suffix in SUFFIXES if lower.endswith(suffix)), default=0)
    return result.with_name(result.name[: len(result.name) - cut] + ending)
