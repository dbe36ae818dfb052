"""Fixtures shared by every test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test is timed: a busy machine is no failure. Where CI is set, hypothesis does so by itself,
# and draws the same examples every time.
if "CI" not in os.environ:
    untimed = [HealthCheck.too_slow]
    settings.register_profile("untimed", deadline=None, suppress_health_check=untimed)
    settings.load_profile("untimed")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real scans that lie beside the repository, never inside it."""
    candidates = [REPOSITORY.parent / "shared" / "data"]
    if "PUMIT_SHARED_DATA" in os.environ:
        candidates.insert(0, Path(os.environ["PUMIT_SHARED_DATA"]))
    for folder in candidates:
        if (folder / "cases").is_dir():
            return folder
    pytest.skip("real scans are absent: set PUMIT_SHARED_DATA to a folder that has cases/")
