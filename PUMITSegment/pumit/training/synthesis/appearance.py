"""Intensities for a label map: domain randomisation, then simulated acquisition."""

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.training.synthesis.grid import Grid, chance, log_uniform, uniform
from pumit.training.synthesis.shapes import Layout

# Shares of scenes that look like PET or SPECT, like ultrasound, and like cell membranes.
EMISSION, ECHOES, MEMBRANES = 0.07, 0.07, 0.05


def region_means(grid: Grid, layout: Layout) -> Tensor:
    """Draw a mean per label in [0, 1], mostly distinct from the label underneath; (labels,)."""
    g = grid.generator
    # 1. Random means; the background is often air.
    means = torch.rand(layout.count, generator=g)
    if chance(g, 0.5):
        means[0] = uniform(g, 0.0, 0.08)  # air
    # 2. Structures in order: the layout's mean if given, else distinct from the label underneath.
    least = log_uniform(g, 0.06, 0.35)
    for label in range(1, layout.count):
        if label in layout.means:
            means[label] = layout.means[label]
        elif label in layout.twins:
            means[label] = means[layout.twins[label]]
        elif label in layout.parents:
            under = float(means[layout.parents[label]])
            floor = max(least, layout.contrasts.get(label, 0.0))
            if abs(float(means[label]) - under) < floor and chance(g, 0.9):
                room = [x for x in (under - floor, under + floor) if 0 <= x <= 1]
                if room:
                    pick = room[int(torch.randint(len(room), (), generator=g))]
                    away = (pick - under) * uniform(g, 0.0, 0.8)
                    means[label] = min(max(pick + away, 0.0), 1.0)
    if 0 in layout.means:
        means[0] = layout.means[0]
    return means


def textured(grid: Grid, layout: Layout) -> Tensor:
    """Draw mean and texture per label, and shading; shape (D', H, W)."""
    g = grid.generator
    means = grid.on(region_means(grid, layout))
    image = means[layout.labels]
    if layout.shading is not None:
        image = image * layout.shading
    calm = 0.25 if layout.means else 1.0  # less texture where tissues differ little
    strength = torch.rand(layout.count, generator=g) * uniform(g, 0.0, 0.14) * calm
    image = image + grid.fractal(log_uniform(g, 1.5, 12.0)) * grid.on(strength)[layout.labels]
    if chance(g, 0.5):
        other = torch.rand(layout.count, generator=g) * uniform(g, 0.0, 0.10) * calm
        image = image + grid.fractal(log_uniform(g, 1.5, 5.0), 1) * grid.on(other)[layout.labels]
    if chance(g, 0.3):
        # Gradient across all regions, as from perfusion or coil sensitivity.
        image = image + grid.noise(max(grid.extent))[0] * uniform(g, 0.0, 0.12)
    if not layout.is_natural and chance(g, MEMBRANES):
        image = _membranes(grid, image, layout.labels)
    return image


def _membranes(grid: Grid, image: Tensor, labels: Tensor) -> Tensor:
    """Draw bright or dark walls between regions of similar intensity, as in microscopy of cells."""
    walls = torch.zeros_like(image)
    for axis, n in enumerate(labels.shape):
        if n > 1:
            differs = (labels.narrow(axis, 1, n - 1) != labels.narrow(axis, 0, n - 1)).float()
            walls.narrow(axis, 0, n - 1).add_(differs)
    width = uniform(grid.generator, 0.4, 1.2)
    along = width / grid.slice_ratio * grid.oversampling
    walls = gaussian_blur(walls.clamp_max(1), (along, width, width))
    strength = uniform(grid.generator, 0.5, 1.5) * (1 if chance(grid.generator, 0.7) else -1)
    return uniform(grid.generator, 0.0, 0.4) * image + strength * walls


def gaussian_blur(image: Tensor, sigma: tuple[float, float, float]) -> Tensor:
    """Apply a separable Gaussian blur to (D, H, W); sigma in voxels, edges replicated."""
    x = image[None, None]
    for axis, s in enumerate(sigma):
        if s < 0.2 or image.shape[axis] == 1:
            continue
        radius = max(1, math.ceil(2.5 * s))
        t = torch.arange(-radius, radius + 1, dtype=x.dtype, device=x.device)
        kernel = torch.exp(-0.5 * (t / s) ** 2)
        shape, pad = [1, 1, 1, 1, 1], [0] * 6
        shape[2 + axis] = 2 * radius + 1
        pad[2 * (2 - axis)] = pad[2 * (2 - axis) + 1] = radius
        weight = (kernel / kernel.sum()).reshape(shape)
        x = F.conv3d(F.pad(x, pad, mode="replicate"), weight)
    return x[0, 0]


def _noise(grid: Grid, image: Tensor) -> Tensor:
    """Add Gaussian, Rician or speckle noise, sometimes correlated as by reconstruction."""
    g = grid.generator
    sigma = log_uniform(g, 0.004, 0.09)
    noise = grid.normal(tuple(image.shape))
    if chance(g, 0.4):
        blur = uniform(g, 0.4, 1.0)
        noise = gaussian_blur(noise, (0.0, blur, blur))
        noise = noise / noise.std().clamp_min(1e-3)
    kind = uniform(g, 0, 1)
    if kind < 0.6:
        return image + sigma * noise
    if kind < 0.85:
        other = grid.normal(tuple(image.shape))
        return torch.sqrt((image + sigma * noise).square() + (sigma * other).square())
    return image * (1 + 1.5 * sigma * noise)


def _streaks(grid: Grid, image: Tensor) -> Tensor:
    """Add streaks from a point, like metal artefacts in CT."""
    g = grid.generator
    xyz = grid.coordinates()[1:, : image.shape[0]]
    centre = torch.tensor([uniform(g, -0.4, 0.4) * grid.size for _ in range(2)])
    h, w = xyz - grid.on(centre)[:, None, None, None]
    angle = torch.atan2(h, w)
    rays = torch.cos(angle * round(uniform(g, 4, 14)) + uniform(g, 0, 6.3)).clamp_min(0) ** 6
    fade = torch.exp(-torch.sqrt(h * h + w * w) / (0.4 * grid.size))
    return image + uniform(g, -0.25, 0.25) * rays * fade


def _emission(grid: Grid, image: Tensor) -> Tensor:
    """Simulate PET and SPECT: hot structures, strong blur, signal-dependent noise."""
    g = grid.generator
    hot = image.clamp_min(0) ** uniform(g, 1.5, 4.0)
    width = uniform(g, 0.8, 2.5)
    hot = gaussian_blur(hot, (width / grid.slice_ratio, width, width))
    grain = uniform(g, 0.6, 1.5)
    noise = gaussian_blur(grid.normal(tuple(image.shape)), (grain / grid.slice_ratio, grain, grain))
    return hot + uniform(g, 0.02, 0.2) * hot.clamp_min(0).sqrt() * noise / noise.std()


def _echoes(grid: Grid, image: Tensor) -> Tensor:
    """Simulate ultrasound: speckle, acoustic shadows and attenuation with depth."""
    g = grid.generator
    # 1. Speckle, finer along the beam than across it.
    across = uniform(g, 0.8, 2.0)
    parts = [gaussian_blur(grid.normal(tuple(image.shape)), (0.5, 0.5, across)) for _ in range(2)]
    speckle = (parts[0].square() + parts[1].square()).sqrt()
    image = image.clamp_min(0) * (speckle / speckle.mean()) ** uniform(g, 0.4, 1.0)
    # 2. Attenuation with depth, strongest behind bright structures.
    n = image.shape[1]
    taken = (image - image.mean()).clamp_min(0).cumsum(1) / n
    depth = torch.linspace(0, 1, n, device=image.device)[:, None]
    image = image * torch.exp(-uniform(g, 0, 6) * taken - uniform(g, 0, 1.5) * depth)
    # 3. Log compression, as for display.
    return torch.log1p(uniform(g, 2, 20) * image)


def _projected(grid: Grid, image: Tensor) -> Tensor:
    """Add overlying structures of a radiograph: ribs, lumps and a wide gradient."""
    g = grid.generator
    h, w = grid.coordinates()[1:, : image.shape[0]] / grid.size
    strength = uniform(g, 0.03, 0.25)
    if chance(g, 0.7):  # ribs: curved bands
        bent = h + uniform(g, -1.5, 1.5) * w.square() + uniform(g, -0.5, 0.5) * w.abs()
        bands = torch.sin(bent * uniform(g, 25, 70) + uniform(g, 0, 6.3)) - uniform(g, -0.2, 0.6)
        image = image + strength * (4 * bands).tanh().clamp_min(0)
    for _ in range(int(uniform(g, 0, 3.99))):
        lump = grid.fractal(log_uniform(g, 0.08, 0.5) * grid.size)[: image.shape[0]]
        image = image + uniform(g, -1, 1) * strength * (3 * lump - uniform(g, 0, 3)).sigmoid()
    return image + uniform(g, -0.4, 0.4) * (h + uniform(g, -1, 1) * w)


def _ghost(grid: Grid, image: Tensor) -> Tensor:
    """Add a faint copy shifted along one in-plane axis, like MR motion ghosts."""
    g = grid.generator
    shift = int(uniform(g, 0.1, 0.5) * grid.size)
    axis = 1 + int(chance(g, 0.5))
    return image + uniform(g, 0.03, 0.15) * torch.roll(image, shift, dims=axis)


def _ringing(grid: Grid, image: Tensor) -> Tensor:
    """Simulate Gibbs ringing by truncating the in-plane spectrum."""
    keep = uniform(grid.generator, 0.55, 0.9)
    spectrum = torch.fft.fftshift(torch.fft.fft2(image), dim=(-2, -1))
    n = grid.size
    t = (torch.arange(n, device=image.device) - n // 2).abs() <= keep * n / 2
    spectrum = spectrum * (t[:, None] & t[None, :])
    return torch.fft.ifft2(torch.fft.ifftshift(spectrum, dim=(-2, -1))).real


def acquire(grid: Grid, image: Tensor, *, is_natural: bool = False) -> Tensor:
    """Simulate acquisition: slices (D, H, W), partial volume, bias field, artefacts, noise.

    Args:
        grid: Grid with the over-sampling that the image was drawn at.
        image: Shape (D', H, W).
        is_natural: Whether intensities imitate a real scanner, and must not be inverted.

    Returns:
        Shape (D, H, W), about [0, 1].
    """
    g = grid.generator
    d, m = grid.depth, grid.oversampling
    # 1. Slices, (D', H, W) -> (D, H, W).
    if m > 1:
        slabs = image.reshape(d, m, *image.shape[1:])
        # With a gap, slices are thinner than their spacing.
        image = slabs.mean(1) if chance(g, 0.7) else slabs[:, m // 2]
    # 2. Resolution: blur in-plane, and along depth less or not at all.
    coarse = replace(grid, oversampling=1)
    style = 1.0 if is_natural else uniform(g, 0, 1)
    if style < EMISSION:
        return _emission(coarse, image)
    if style < EMISSION + ECHOES:
        image = _echoes(coarse, image)
    blur = uniform(g, 0.0, 1.0) if chance(g, 0.8) else uniform(g, 1.0, 1.8)
    along = blur / grid.slice_ratio if chance(g, 0.7) else 0.0
    image = gaussian_blur(image, (along, blur, blur))
    # 3. Bias field of the receive coils.
    if chance(g, 0.5):
        image = image * torch.exp(coarse.noise(max(grid.extent) * 0.8)[0] * uniform(g, 0.0, 0.3))
    # 4. Artefacts.
    if grid.depth == 1 and chance(g, 0.35):
        image = _projected(coarse, image)
    if chance(g, 0.06):
        image = _streaks(coarse, image)
    if chance(g, 0.06):
        image = _ghost(coarse, image)
    if chance(g, 0.06):
        image = _ringing(coarse, image)
    if chance(g, 0.15):
        image = image + grid.normal((d, 1, 1)) * 0.03  # slices of unequal brightness
    # 5. Noise, then the display curve, which may be inverted.
    image = _noise(coarse, image)
    if chance(g, 0.4):
        span = image.max() - image.min()
        image = ((image - image.min()) / span.clamp_min(1e-6)) ** log_uniform(g, 0.5, 2.0)
    return 1 - image if not is_natural and chance(g, 0.4) else image
