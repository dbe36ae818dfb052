"""Every family of networks in a tiny size, and data of each kind: thick slices, a single slice."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from labelled_scans import TINY_SIZES, write

TINY: dict[str, dict[str, Any]] = {
    "pumit_segmentation_small": TINY_SIZES,
    "pumit_encoder_small": {
        "widths": [8, 8, 8],
        "dim": 12,
        "depth": 1,
        "num_heads": 1,
        "class_channels": 4,
    },
    "basic_unet": {"features": [4, 4, 4, 4, 4, 4]},
    "swin_unetr_small": {
        "feature_size": 12,
        "depths": [1, 1, 1, 1],
        "num_heads": [1, 1, 2, 2],
        "window_size": 3,
    },
    "nnformer_small": {
        "dim": 8,
        "depths": [1, 1, 1, 1],
        "num_heads": [1, 1, 2, 2],
        "decoder_num_heads": [1, 1, 2],
    },
    "hymamba_small": {
        "stem_width": 4,
        "widths": [6, 6, 6, 6],
        "depths": [1, 1, 1, 1],
        "num_layers": 1,
        "state": 2,
        "dt_rank": 1,
        "last_width": 4,
    },
    "unetr_mamba_small": {
        "dim": 12,
        "taps": [1, 2, 3, 4],
        "feature_size": 4,
        "state": 2,
        "dt_rank": 1,
    },
}


@dataclass(frozen=True)
class Kind:
    """Scans of a kind.

    Attributes:
        shape: Voxels (d, h, w), odd.
        spacing: Their size, mm.
        channels: Images of each case.
    """

    shape: tuple[int, int, int]
    spacing: tuple[float, float, float]
    channels: tuple[str, ...] = ("MR",)


KINDS = {
    "thick": Kind((5, 45, 39), (5.0, 1.0, 1.0), ("T1", "T2")),
    "slice": Kind((1, 45, 39), (1.0, 1.0, 1.0)),
}


def made(kind: Kind, seed: int) -> tuple[list[npt.NDArray[np.float32]], npt.NDArray[np.uint8]]:
    """Channels of a scan with two bright blocks, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.zeros(kind.shape, dtype=np.uint8)
    top = kind.shape[0] // 2 + 1
    y, x = rng.integers(4, 12, 2)
    labels[:top, y : y + 12, x : x + 12] = 1
    labels[-top:, 28:34, 20:28] = 2
    images = [
        (rng.normal(0, 5, kind.shape) + (200 - 50 * i) * labels).astype(np.float32)
        for i in range(len(kind.channels))
    ]
    return images, labels


def write_set(folder: Path, kind: Kind, count: int = 3) -> Path:
    """Cases as nnU-Net names them."""
    for i in range(count):
        images, labels = made(kind, i)
        for number, image in enumerate(images):
            write(folder / "images" / f"c{i}_{number:04}.nii.gz", image, kind.spacing)
        write(folder / "labels" / f"c{i}.nii.gz", labels, kind.spacing)
    return folder


def changes_for(network: str, kind: Kind) -> dict[str, Any]:
    """Keys of a recipe that leaves to the plan what it can."""
    return {
        "network": network,
        "network_sizes": TINY[network],
        "data": {
            "folder": "set",
            "images": "images/{case}_{channel}.*",
            "channels": list(kind.channels),
            "classes": {"high": 1, "low": 2},
            "validation": ["c0"],
        },
        "plan": {"step_voxels": 1 << 16, "batch_size": 2},
        "validation": {"overlap": 0.0, "final_overlap": 0.0},
        "register": False,
        "schedule": {"steps": 1, "precision": "fp32", "log_every": 1},
    }
