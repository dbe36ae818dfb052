"""A generated torso scan with known organs: for the demonstration, for tests and as sample data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pumit.training.synthesis.appearance import gaussian_blur
from pumit.training.synthesis.grid import Grid
from pumit.volume import Volume

SHAPE = (64, 176, 208)
SPACING_MM = (3.0, 1.8, 1.8)

# name: (centre, radii) in mm as (z, h, w) from the middle of the scan, HU; h grows to posterior,
# w to the patient's left.
ORGANS: dict[str, tuple[tuple[float, float, float], tuple[float, float, float], float]] = {
    "stomach": ((35, -28, 52), (38, 30, 34), 30.0),
    "spleen": ((30, 35, 92), (38, 32, 20), 105.0),
    "liver": ((22, -8, -62), (58, 62, 68), 100.0),
    "left kidney": ((-22, 42, 62), (44, 22, 24), 160.0),
    "right kidney": ((-30, 42, -60), (44, 22, 24), 160.0),
}


@dataclass
class Phantom:
    """A generated scan and what is in it.

    Attributes:
        volume: HU, int16, (D, H, W).
        masks: Bool masks by organ name, and "liver lesion".
    """

    volume: Volume
    masks: dict[str, npt.NDArray[np.bool_]]

    def centre_lps(self, name: str) -> tuple[float, float, float]:
        """A point deep inside an organ, LPS mm."""
        from scipy import ndimage

        depth = ndimage.distance_transform_edt(self.masks[name], sampling=self.volume.spacing_mm)
        index = np.unravel_index(int(depth.argmax()), depth.shape)
        x, y, z = self.volume.index_to_world(index)
        return (float(x), float(y), float(z))


def _ball(
    mm: Tensor, centre: tuple[float, ...], radii: tuple[float, ...], wobble: Tensor
) -> Tensor:
    offset = (mm - torch.tensor(centre)[:, None, None, None]) / torch.tensor(radii)[
        :, None, None, None
    ]
    return offset.square().sum(0).sqrt() < 1 + wobble


def torso_phantom(seed: int = 7) -> Phantom:
    """Generate a contrast-enhanced CT of an abdomen that nobody has.

    Args:
        seed: Another number gives other shapes and noise.
    """
    generator = torch.Generator().manual_seed(seed)
    grid = Grid(SHAPE[0], SHAPE[2], SPACING_MM[0] / SPACING_MM[2], 1, generator)
    size = grid.size

    def wobble(length_mm: float, amount: float) -> Tensor:
        noise = grid.fractal(length_mm / SPACING_MM[2])
        return amount * noise[:, (size - SHAPE[1]) // 2 :][:, : SHAPE[1]]

    axes = [
        (torch.arange(n, dtype=torch.float32) - (n - 1) / 2) * s
        for n, s in zip(SHAPE, SPACING_MM, strict=True)
    ]
    mm = torch.stack(torch.meshgrid(*axes, indexing="ij"))  # (3, D, H, W)
    z, h, w = mm
    body = ((h / 118) ** 2 + (w / 160) ** 2).sqrt() + wobble(120, 0.012)
    hu = torch.full(SHAPE, -1000.0)
    hu = torch.where(body < 1.0, -100 + wobble(20, 6), hu)
    hu = torch.where(body < 0.9, 55 + wobble(15, 6), hu)
    hu = torch.where(body < 0.8, -95 + wobble(25, 8), hu)
    masks: dict[str, Tensor] = {}
    for name, (centre, radii, value) in ORGANS.items():
        mask = _ball(mm, centre, radii, wobble(55, 0.09)) & (body < 0.84)
        for other in masks.values():
            mask &= ~other
        masks[name] = mask
        hu = torch.where(mask, value + wobble(12, 5), hu)
    for side in ("left", "right"):
        (cz, ch, cw), _, _ = ORGANS[f"{side} kidney"]
        hilum = _ball(mm, (cz, ch, cw * 0.8), (22, 8, 10), wobble(20, 0.15))
        hu = torch.where(hilum & masks[f"{side} kidney"], 40.0, hu)
    for k in range(5):  # vessels of the liver
        a, b = (torch.rand(2, generator=generator) - 0.5).tolist()
        line = (h + 10 + 60 * a + 0.4 * z).square() + (
            w + 62 + 70 * b - (0.5 - 0.2 * k) * z
        ).square()
        hu = torch.where((line.sqrt() < 5) & masks["liver"], 170.0, hu)
    lesion = _ball(mm, (28, -18, -82), (17, 16, 16), wobble(20, 0.12)) & masks["liver"]
    masks["liver lesion"] = lesion
    hu = torch.where(lesion, 45 + wobble(8, 5), hu)
    spine = ((h - 62) / 20).square() + (w / 23).square()
    hu = torch.where(spine < 1, 180 + wobble(6, 40), hu)
    hu = torch.where((spine < 1) & (spine > 0.75), 480.0, hu)
    disc = (spine < 1) & ((z % 36) < 7)
    hu = torch.where(disc, 80.0, hu)
    hu = torch.where(((h - 88) / 9).square() + (w / 9).square() < 1, 30.0, hu)
    masks["aorta"] = ((h - 26 - 6 * torch.sin(z / 60)) / 11).square() + ((w - 14) / 11).square() < 1
    hu = torch.where(masks["aorta"], 190 + wobble(10, 4), hu)
    angle = torch.atan2(h, w)
    ribs = (body > 0.815) & (body < 0.865) & (torch.sin(z / 9 + 2.4 * torch.cos(angle)) > 0.55)
    hu = torch.where(ribs, 420.0, hu)
    hu = gaussian_blur(hu, (0.4, 0.7, 0.7))
    noise = gaussian_blur(torch.randn(SHAPE, generator=generator), (0.0, 0.6, 0.6))
    hu = hu + 14 * noise / noise.std()
    array = hu.clamp(-1024, 3071).round().to(torch.int16).numpy()
    origin = tuple(float(a[0]) for a in reversed(axes))
    volume = Volume(array, SPACING_MM, (origin[0], origin[1], origin[2]))
    return Phantom(volume, {k: m.numpy() for k, m in masks.items()})
