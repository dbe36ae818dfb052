"""Networks whose answer can be written down, their checkpoints, and scans for them."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pumit.models.checkpoint import save_checkpoint
from pumit.networks.build import RECIPES, NetworkRecipe, build_network
from pumit.volume import Volume
from scipy.ndimage import gaussian_filter, map_coordinates
from scipy.spatial.transform import Rotation
from torch import Tensor, nn

OBLIQUE = Rotation.from_euler("xyz", [20, -15, 30], degrees=True).as_matrix()
CLASSES = [
    {"name": "soft", "terminology": "liver"},
    {"name": "hard", "color_rgb": [1.0, 0.5, 0.0]},
]
# What makes a model of regions, of the network "nested".
REGIONS: dict[str, Any] = {
    "sizes": {"num_classes": 2},
    "classes": [{"name": "whole", "values": [1, 2]}, {"name": "core", "values": [2]}],
    "regions": [[1, 2], [2]],
}
PLAN: dict[str, Any] = {
    "spacing_mm": [2.0, 1.0, 1.0],
    "patch_size": [8, 16, 16],
    "intensity": {"method": "range", "source": [-100, 300], "target": [0, 1]},
}


class Thresholds(nn.Module):
    """Class 1 above 0.3 of the first channel, class 2 above 0.7: a convolution of one voxel."""

    def __init__(self, *, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(in_channels, num_classes, 1)
        with torch.no_grad():
            self.conv.weight.zero_()
            self.conv.weight[:, 0, 0, 0, 0] = 20 * torch.arange(num_classes)
            self.conv.bias.zero_()
            self.conv.bias[1:3] = -20 * torch.tensor([0.3, 1.0])[: num_classes - 1]

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class Nested(Thresholds):
    """Regions: 0 above 0.3 of the first channel, 1 above 0.5, which lies within it."""

    def __init__(self, *, in_channels: int, num_classes: int) -> None:
        super().__init__(in_channels=in_channels, num_classes=num_classes)
        with torch.no_grad():
            self.conv.weight[:, 0] = 20
            self.conv.bias.copy_(torch.tensor([-6.0, -10.0])[:num_classes])


class Rising(nn.Module):
    """Class 1 + axis where the image rises most along an axis: knows left from right."""

    def __init__(self, *, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        slopes = torch.gradient(x[:, 0], dim=(1, 2, 3))
        background = torch.full_like(slopes[0], 1e-3)
        return torch.stack((background, *slopes), dim=1) * 1000 + self.zero


def know_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `build_network` know the networks of this file."""
    sizes = {"in_channels": 1, "num_classes": 3}
    for name, made in (("thresholds", Thresholds), ("nested", Nested), ("rising", Rising)):
        recipe = NetworkRecipe(__name__, made.__name__, sizes)
        monkeypatch.setitem(RECIPES, name, recipe)  # type: ignore[misc]


def save_model(path: Path, network: str = "thresholds", **changes: Any) -> Path:
    """Write a checkpoint; `changes` replace keys of its recipe."""
    recipe = {
        "name": path.stem,
        "version": "3",
        "network": network,
        "sizes": {},
        "classes": CLASSES,
        "plan": PLAN,
        **changes,
    }
    torch.manual_seed(0)
    state = build_network(network, **recipe["sizes"]).state_dict()
    save_checkpoint(path, state, recipe)
    return path


def smooth_scan(
    shape: tuple[int, int, int],
    spacing: tuple[float, float, float],
    direction: npt.NDArray[Any] = OBLIQUE,
) -> Volume:
    noise = np.random.default_rng(4).normal(size=shape)
    smooth = gaussian_filter(noise, [3 / s for s in spacing])
    smooth = (smooth - smooth.min()) / np.ptp(smooth) * 500 - 150
    return Volume(smooth.astype(np.float32), spacing, (5.0, -3.0, 8.0), direction)


def on_network_grid(volume: Volume) -> npt.NDArray[Any]:
    """A scan pre-processed slowly as `PLAN` says; its axes need no turning."""
    pairs = zip(volume.shape, volume.spacing_mm, PLAN["spacing_mm"], strict=True)
    shape = tuple(n if n == 1 else max(1, round(n * s / t)) for n, s, t in pairs)
    return np.clip((resampled(volume.array, shape) + 100) / 400, 0, 1)


def resampled(x: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    axes = [(np.arange(n) + 0.5) * (m / n) - 0.5 for n, m in zip(shape, x.shape, strict=True)]
    grid = np.meshgrid(*axes, indexing="ij")
    return map_coordinates(x.astype(np.float64), grid, order=1, mode="nearest")
