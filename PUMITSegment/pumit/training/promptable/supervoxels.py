"""Pseudo-targets for unlabelled scans: intensity bands, and regions of merged supervoxels."""

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage
from skimage.segmentation import watershed
from torch import Tensor

from pumit.preprocessing.fields import field_channels
from pumit.training.synthesis.scene import MIN_SHARE

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]


def supervoxels(image: Floats, sigma: float, ratio: float) -> Labels:
    """Compute watershed supervoxels of the gradient magnitude, labels from 1, shape (D, H, W).

    Args:
        sigma: Standard deviation of the Gaussian smoothing, in-plane voxels.
        ratio: Slice spacing over in-plane spacing.
    """
    width = [
        0.0 if n == 1 else sigma / (ratio if a == 0 else 1.0) for a, n in enumerate(image.shape)
    ]
    steps = [1.0 if a else 1 / ratio for a in range(3)]
    smooth = ndimage.gaussian_filter(image, width)
    parts = [np.gradient(smooth, axis=a) * steps[a] for a, n in enumerate(image.shape) if n > 1]
    slope = np.sqrt(np.sum(np.square(parts), axis=0)).astype(np.float32)
    return np.asarray(watershed(slope), dtype=np.int32)


def merge_regions(image: Floats, labels: Labels, scale: float) -> Labels:
    """Merge adjacent regions, numbered from 1, that differ less than they vary inside.

    The most similar are merged first. The result is labelled from 1.

    Args:
        scale: Larger values give larger regions; in units of intensity times voxels.

    Source:
        Felzenszwalb and Huttenlocher, Efficient graph-based image segmentation, 2004, on the
        graph of supervoxels.
    """
    # 1. Size and mean intensity of every region.
    count = int(labels.max()) + 1
    sizes = np.bincount(labels.ravel(), minlength=count).astype(np.float64)
    means = np.bincount(labels.ravel(), image.ravel(), minlength=count) / np.maximum(sizes, 1)
    # 2. Edges (E, 2) between adjacent regions, with the difference of their means.
    pairs = []
    for axis in range(3):
        n = labels.shape[axis]
        a, b = np.take(labels, range(n - 1), axis), np.take(labels, range(1, n), axis)
        touching = a != b
        pairs.append(np.stack((a[touching], b[touching]), axis=1))
    edges = np.unique(np.sort(np.concatenate(pairs), axis=1), axis=0)
    difference = np.abs(means[edges[:, 0]] - means[edges[:, 1]])
    # 3. Union-find over the edges, smallest difference first.
    parent = np.arange(count)
    inner = np.zeros(count)

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    for index in np.argsort(difference, kind="stable"):
        i, j = root(int(edges[index, 0])), root(int(edges[index, 1]))
        weight = difference[index]
        if i != j and weight <= min(inner[i] + scale / sizes[i], inner[j] + scale / sizes[j]):
            parent[j] = i
            sizes[i] += sizes[j]
            inner[i] = weight
    # 4. Relabel the voxels by the root of their region.
    roots = np.array([root(i) for i in range(count)])
    return np.asarray(np.unique(roots, return_inverse=True)[1].reshape(-1)[labels], dtype=np.int32)


def region_pieces(
    image: Floats, inside: npt.NDArray[np.bool_], ratio: float, rng: np.random.Generator
) -> list[npt.NDArray[np.bool_]]:
    """Draw up to four merged regions at a random scale; larger ones are more likely.

    The image has intensities of about [0, 1].
    """
    labels = supervoxels(image, rng.uniform(0.7, 1.6), max(ratio, 1.0))
    scale = float(np.exp(rng.uniform(np.log(3.0), np.log(300.0))))
    labels = np.where(inside, merge_regions(image, labels, scale), 0)
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    shares = sizes / labels.size
    usable = np.flatnonzero((shares >= 0.004) & (shares <= 0.4))
    if len(usable) == 0:
        return []
    weight = np.sqrt(sizes[usable])
    chosen = rng.choice(usable, min(4, len(usable)), replace=False, p=weight / weight.sum())
    return [ndimage.binary_fill_holes(labels == i) for i in chosen]


def pseudo_targets(
    image: Tensor, inside: Tensor, ratio: float, rng: np.random.Generator
) -> list[Tensor]:
    """Draw targets from an image without labels: intensity bands, or regions of one scale."""
    is_inside = inside.numpy() > 0
    if rng.random() < 0.6:
        return coherent_pieces(image.numpy(), is_inside, rng)
    # The equalised channel gives soft tissue as much contrast as bone and air.
    equal = field_channels(image.numpy(), inside.numpy())[1]
    return [torch.from_numpy(p) for p in region_pieces(equal, is_inside, ratio, rng)]


def coherent_pieces(
    image: npt.NDArray[np.float32], inside: npt.NDArray[np.bool_], rng: np.random.Generator
) -> list[Tensor]:
    """Draw connected components of intensity bands of the smoothed image.

    They have real borders and textures, and stand out enough that a user might click on them.
    """
    sigma = rng.uniform(0.6, 2.0)
    smooth = ndimage.gaussian_filter(image, [0 if n == 1 else sigma for n in image.shape])
    cuts = np.quantile(smooth[inside], np.sort(rng.uniform(0.05, 0.95, int(rng.integers(2, 5)))))
    bands = np.digitize(smooth, cuts)
    targets = []
    for band in rng.permutation(int(bands.max()) + 1)[:3]:
        mask = (bands == band) & inside
        # Opening disconnects noise.
        mask = ndimage.binary_opening(mask, np.ones((1, 3, 3))) if rng.random() < 0.8 else mask
        labels, count = ndimage.label(mask)
        sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
        for index in np.argsort(-sizes)[:3]:
            piece = ndimage.binary_fill_holes(labels == index + 1)
            if max(MIN_SHARE, 0.004) <= piece.mean() <= 0.4:
                targets.append(torch.from_numpy(np.ascontiguousarray(piece)))
    return targets
