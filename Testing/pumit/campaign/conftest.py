"""Small generated scans, with labels where a test needs them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pumit.campaign import Campaign, ScanEntry
from pumit.export.labelmap import write_labels
from pumit.export.volume_file import write_volume_file
from pumit.segmentation import Algorithm, Segment, Segmentation
from two_balls import make_scan


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder of scans, the first of them labelled."""

    def make(count: int = 4, labelled: int = 0, name: str = "lab") -> Path:
        folder = tmp_path / name
        (folder / "images").mkdir(parents=True)
        (folder / "labels").mkdir()
        for number in range(count):
            volume, labels = make_scan(number)
            write_volume_file(volume.array, volume, folder / "images" / f"scan{number:02d}.nii.gz")
            if number < labelled:
                write_labels(labels, volume, folder / "labels" / f"scan{number:02d}.nii.gz")
        return folder

    return make


@pytest.fixture
def make_campaign(make_folder: Callable[..., Path], tmp_path: Path) -> Callable[..., Campaign]:
    """Makes a campaign on such a folder."""

    def make(count: int = 4, labelled: int = 0, **more: Any) -> Campaign:
        folder = make_folder(count, labelled)
        classes: Sequence[Any] = more.pop("classes", ["outer", "inner"])
        return Campaign.create(tmp_path / "campaign", [folder], classes, **more)

    return make


@pytest.fixture
def truth_of() -> Callable[..., Segmentation]:
    """Makes the true segments of a scan of a campaign, by its number."""

    def make(scan: ScanEntry, names: Sequence[str] = ("outer", "inner")) -> Segmentation:
        volume, labels = make_scan(int(scan.name[-2:]))
        segments = tuple(Segment(n, labels == i) for i, n in enumerate(names, start=1))
        return Segmentation(volume, segments, Algorithm("PUMIT default", "1"))

    return make
