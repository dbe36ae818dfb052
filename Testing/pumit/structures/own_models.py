"""Models of the user's own whose answers are known, and scans for them."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from known_networks import save_model
from pumit.models.user_index import register
from pumit.system.files import file_sha256
from pumit.volume import Volume

KIDNEYS = [
    {"name": "left kidney", "terminology": "left kidney"},
    {"name": "right kidney", "terminology": "right kidney"},
]
ABDOMEN = [{"name": "Leber", "terminology": "liver"}, {"name": "my own thing"}]
# Of the network "thresholds": class 1 above 30, class 2 above 70.
PLAN: dict[str, Any] = {
    "spacing_mm": [2.0, 1.0, 1.0],
    "patch_size": [8, 16, 16],
    "intensity": {"method": "range", "source": [0, 100], "target": [0, 1]},
}
RESTRICTED = "CC BY-NC-SA 4.0"


def add_model(folder: Path, name: str, classes: list[dict[str, Any]], **changes: Any) -> str:
    """Register a model of two thresholds; returns its name in the index."""
    folder.mkdir(exist_ok=True)
    return register(save_model(folder / f"{name}.safetensors", classes=classes, plan=PLAN,
                               **changes))  # fmt: skip


def ship_model(folder: Path, name: str, classes: list[dict[str, Any]], licence: str) -> None:
    """Put a model with a licence into the user's folder, as those that ship have it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = save_model(folder / f"{name}.safetensors", classes=classes, plan=PLAN)
    row = {
        "name": name,
        "file": path.name,
        "sha256": file_sha256(path),
        "kind": "automatic",
        "description": "Two thresholds.",
        "licence": licence,
        "source": "package",
    }
    index = folder / "index.yaml"
    rows = yaml.safe_load(index.read_text())["models"] if index.is_file() else []
    index.write_text(yaml.safe_dump({"models": [*rows, row]}))


def two_balls() -> Volume:
    """Noise, with a ball of 50 and one of 90 in it."""
    rng = np.random.default_rng(0)
    array = rng.normal(0, 3, (16, 60, 60))
    d, h, w = np.ogrid[:16, :60, :60]
    for value, (a, b, c) in ((50, (5, 15, 15)), (90, (10, 42, 44))):
        array[((d - a) * 2) ** 2 + (h - b) ** 2 + (w - c) ** 2 < 8**2] += value
    return Volume(array.astype(np.float32), (2.0, 1.0, 1.0), (3.0, -4.0, 5.0))
