"""Fixtures of the tests of exports."""

from typing import Any

import pytest
from pumit.volume import Volume


@pytest.fixture
def database(scene: Any) -> Any:
    """A stand-in for Slicer's DICOM database."""
    from export_scene import DicomDatabase

    return DicomDatabase()


@pytest.fixture
def series(tmp_path: Any) -> Volume:
    """A generated DICOM series, as the core reads it."""
    from export_scene import a_series

    return a_series(tmp_path / "series")


@pytest.fixture
def loaded(series: Volume, database: Any) -> Any:
    """The series as a volume node, its files known to the database."""
    from export_scene import loadSeries

    return loadSeries(series.source.files[0].parent, database)


@pytest.fixture
def kidneys(scene: Any, loaded: Any) -> Any:
    """A segmentation of the series with two segments that overlap."""
    from export_scene import SHAPE, blobs, segmentation_of

    first, second = blobs(SHAPE)
    return segmentation_of(scene, loaded, {"left kidney": first, "cyst": second})
