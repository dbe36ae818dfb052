"""Both modules on generated scans."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def modules(
    loadModule: Any, mainWindow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """PUMIT Train, shown, and PUMIT Segment; see `CampaignModules`."""
    from campaign_module import CampaignModules

    made = CampaignModules(tmp_path, loadModule, monkeypatch)
    yield made
    made.close()
