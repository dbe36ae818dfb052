"""Fields of any size: padding to a network's stride, cropping of its output, and 2D networks."""

import math
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from pumit.errors import PumitError
from pumit.system.wording import times

Stride = tuple[int, int, int]


def padded(
    x: Tensor, stride: Stride, *, name: str, cells: int = 1
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Pad a field at its far ends to a multiple of a network's stride.

    Pads by replication. Zero padding would be the mean of a normalised scan, a grey wall next to
    air that affects instance norms and attention. Reflection may need more slices than there are.

    Args:
        x: Intensities (B, C, D, H, W).
        stride: The network's stride along (d, h, w).
        cells: Minimum number of voxels at the coarsest level, over the axes that are reduced; an
            instance norm needs two.

    Returns:
        The padded field, or x itself if it fits, and a function that crops an output (B, K, ...) to
        (B, K, D, H, W). A coarser level of deep supervision is cropped to the cells that contain
        voxels of the field.

    Raises:
        PumitError: If x is not 5D, or smaller than the stride along an axis.
    """
    if x.ndim != 5:
        raise PumitError(f"{name} expects an image (B, C, D, H, W), got shape {tuple(x.shape)}.")
    size = tuple(x.shape[2:])
    if any(n < s for n, s in zip(size, stride, strict=True)):
        raise PumitError(
            f"A field of {times(size)} voxels is smaller than the {times(stride)} that {name} "
            "needs at least; give it a larger field (plan.patch_size), or sizes with fewer "
            "halvings along the short axis (network_sizes)."
        )
    far = [-n % s for n, s in zip(size, stride, strict=True)]
    places = [(n + more) // s for n, more, s in zip(size, far, stride, strict=True) if s > 1]
    if math.prod(places) < cells:
        far[2] += (cells - 1) * stride[2]
    if not any(far):
        return x, lambda answer: answer
    full = tuple(n + more for n, more in zip(size, far, strict=True))
    d, h, w = far
    field = F.pad(x, (0, w, 0, h, 0, d), mode="replicate")

    def cropped(answer: Tensor) -> Tensor:
        d, h, w = (
            math.ceil(n * level / whole)
            for n, whole, level in zip(size, full, answer.shape[2:], strict=True)
        )
        return answer[:, :, :d, :h, :w]

    return field, cropped


def require_channels(x: Tensor, expected: int, *, name: str) -> None:
    """Raise PumitError unless x, shape (B, C, ...), has the expected number of channels."""
    if x.ndim < 2 or x.shape[1] != expected:
        found = x.shape[1] if x.ndim > 1 else 0
        raise PumitError(
            f"{name} reads {expected} image channel{'s' if expected != 1 else ''}, got {found}; "
            f"give images with {expected}, or build it with in_channels: {found}."
        )


def by_slices(network: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Wrap a 2D network, (B, C, H, W) to (B, K, h, w), so that it processes volumes by slices."""

    def answer(x: Tensor) -> Tensor:
        out = network(x.movedim(2, 1).flatten(0, 1))  # (B * D, K, h, w)
        return out.reshape(x.shape[0], x.shape[2], *out.shape[1:]).movedim(1, 2)

    return answer
