"""Convolutional embedding, down-sampling and up-sampling."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.nnformer.windows import Grid, grid_of


class ConvolutionalEmbedding(nn.Module):
    """Token embedding by four 3^3 convolutions, of which the first and third are strided.

    Args:
        patch: Voxels of a token along (d, h, w), each 1, 2 or 4.

    Source:
        nnFormer, section III-B, "The embedding layer".
    """

    def __init__(self, in_channels: int, dim: int, *, patch: Grid) -> None:
        super().__init__()
        if dim % 2 or any(n not in (1, 2, 4) for n in patch):
            raise ValueError(
                f"tokens need an even width and 1, 2 or 4 voxels along an axis, got {dim}, {patch}"
            )
        first = grid_of([min(n, 2) for n in patch])
        second = grid_of([n // f for n, f in zip(patch, first, strict=True)])
        widths = (in_channels, dim // 2, dim // 2, dim, dim)
        self.convolutions = nn.ModuleList(
            nn.Conv3d(widths[i], widths[i + 1], 3, stride=stride, padding=1)
            for i, stride in enumerate((first, (1, 1, 1), second, (1, 1, 1)))
        )
        self.norms = nn.ModuleList(nn.LayerNorm(n) for n in widths[1:])
        self.activation = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """Map an image (B, in_channels, D, H, W) to tokens (B, D / d, H / h, W / w, dim)."""
        last = len(self.convolutions) - 1
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = convolution(x)
            x = norm((x if i == last else self.activation(x)).movedim(1, -1)).movedim(-1, 1)
        return x.movedim(1, -1)


class Down(nn.Module):
    """Strided convolution that halves the grid and doubles the width.

    Args:
        factor: 1 or 2 along (d, h, w). The kernel is 3 along halved axes and 1 along others.
        rounds_down: Whether halving an odd number of at least 3 tokens rounds down, by omitting the
            padding along that axis, as in the authors' third down-sampling for ACDC.

    Source:
        nnFormer, section III-B, "The down-sampling layer"; activation and norm before the
        convolution as in the authors' code.
    """

    def __init__(self, dim: int, *, factor: Grid, rounds_down: bool) -> None:
        super().__init__()
        self.activation = nn.GELU()
        self.norm = nn.LayerNorm(dim)
        self.factor, self.rounds_down = factor, rounds_down
        kernel = grid_of([3 if n == 2 else 1 for n in factor])
        self.convolution = nn.Conv3d(dim, 2 * dim, kernel, stride=factor)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (B, D, H, W, C) to (B, D / d, H / h, W / w, 2 C), sizes rounded."""
        cut = [
            f == 1 or (self.rounds_down and n % 2 == 1 and n >= 3)
            for n, f in zip(x.shape[1:4], self.factor, strict=True)
        ]
        x = self.norm(self.activation(x)).movedim(-1, 1)
        layer = self.convolution
        x = F.conv3d(x, layer.weight, layer.bias, self.factor, [0 if c else 1 for c in cut])
        return x.movedim(1, -1)


class Up(nn.Module):
    """Transposed convolution that doubles the grid and halves the width.

    Args:
        factor: 1 or 2 along (d, h, w).

    Source:
        nnFormer, section III-D and figure 2d.
    """

    def __init__(self, dim: int, *, factor: Grid) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.convolution = nn.ConvTranspose3d(dim, dim // 2, factor, stride=factor)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """Map tokens (B, D, H, W, C) to (B, *grid, C / 2).

        A grid that was rounded up is cropped; one that was rounded down gets only the bias at its
        end.
        """
        d, h, w = grid
        x = self.norm(x).movedim(-1, 1)
        doubled = [n * f for n, f in zip(x.shape[2:], self.convolution.stride, strict=True)]
        size = [max(n, least) for n, least in zip(doubled, grid, strict=True)]
        out: Tensor = self.convolution(x, output_size=size).movedim(1, -1)
        return out[:, :d, :h, :w]
