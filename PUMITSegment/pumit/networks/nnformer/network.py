"""nnFormer: one network class for the three published configurations and any others."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.monai import DropPath
from pumit.networks.nnformer.attention import (
    AttentionSizes,
    Grid,
    RelativePositionBias,
    SkipAttention,
    VolumeAttention,
    grid_of,
)
from pumit.networks.padding import padded, require_channels


class VolumeBlock(nn.Module):
    """Transformer block with volume self-attention, or with attention to the encoder's tokens.

    In the latter, both inputs share one norm, and their sum is the residual.

    Args:
        is_skip: Whether to attend to the encoder's tokens, as a decoder stage's first block does.
        is_shifted: Whether local volumes are shifted by half their size.
        mlp_ratio: Hidden width of the MLP, in multiples of `dim`.

    Source:
        nnFormer, eq. 1; section III-D, "Skip Attention", whose norm and residual are as in the
        authors' code.
    """

    def __init__(
        self,
        dim: int,
        sizes: AttentionSizes,
        *,
        is_skip: bool,
        is_shifted: bool,
        mlp_ratio: int,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention: nn.Module = (
            SkipAttention(dim, sizes)
            if is_skip
            else VolumeAttention(dim, sizes, is_shifted=is_shifted)
        )
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, mlp_ratio * dim), nn.GELU(), nn.Linear(mlp_ratio * dim, dim)
        )
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Map tokens, and those of the encoder, (B, D, H, W, C) to tokens of the same shape."""
        seen = (x,) if skip is None else (x, skip)
        attended = self.attention(*(self.norm1(tokens) for tokens in seen))
        x = sum(seen[1:], x) + self.drop_path(attended)
        out: Tensor = x + self.drop_path(self.mlp(self.norm2(x)))
        return out


class VolumeStage(nn.Module):
    """Blocks on one grid, every second one shifted; a decoder's begins with a skip block."""

    def __init__(
        self,
        dim: int,
        sizes: AttentionSizes,
        *,
        is_decoder: bool,
        mlp_ratio: int,
        drop_path: Sequence[float],
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            VolumeBlock(
                dim,
                sizes,
                is_skip=is_decoder and i == 0,
                is_shifted=i % 2 == 1,
                mlp_ratio=mlp_ratio,
                drop_path=rate,
            )
            for i, rate in enumerate(drop_path)
        )

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Map tokens, and those of the encoder, (B, D, H, W, C) to tokens of the same shape."""
        for i, block in enumerate(self.blocks):
            x = block(x, skip if i == 0 else None)
        return x


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

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
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


class Encoder(nn.Module):
    """Encoder that returns the normalised tokens of every stage; sizes as those of `NnFormer`.

    Source:
        nnFormer, sections III-B and III-C and figure 2.
    """

    def __init__(
        self,
        in_channels: int,
        dim: int,
        *,
        patch: Grid,
        merges: Sequence[Grid],
        rounds_down: bool,
        depths: Sequence[int],
        sizes: Sequence[AttentionSizes],
        mlp_ratio: int,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.embedding = ConvolutionalEmbedding(in_channels, dim, patch=patch)
        widths = [dim << i for i in range(len(depths))]
        self.stages = nn.ModuleList(
            VolumeStage(width, size, is_decoder=False, mlp_ratio=mlp_ratio, drop_path=rates)
            for width, size, rates in zip(widths, sizes, shared_out(drop_path, depths), strict=True)
        )
        self.downs = nn.ModuleList(
            Down(width, factor=factor, rounds_down=rounds_down)
            for width, factor in zip(widths[:-1], merges, strict=True)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Map an image (B, in_channels, D, H, W) to tokens (B, d, h, w, C), the finest first."""
        x = self.embedding(x)
        outputs = []
        for i, (stage, norm) in enumerate(zip(self.stages, self.norms, strict=True)):
            x = stage(self.downs[i - 1](x) if i else x)
            outputs.append(norm(x))
        return outputs


class Decoder(nn.Module):
    """Decoder of all stages but the coarsest; sizes of the stages as of `NnFormer`, finest first.

    Stochastic depth rises from the coarsest stage on.

    Source:
        nnFormer, section III-D and figure 2.
    """

    def __init__(
        self,
        dim: int,
        *,
        merges: Sequence[Grid],
        depths: Sequence[int],
        sizes: Sequence[AttentionSizes],
        mlp_ratio: int,
        drop_path: float,
    ) -> None:
        super().__init__()
        rates = shared_out(drop_path, depths[::-1])[::-1]
        widths = [dim << i for i in range(len(depths))]
        self.ups = nn.ModuleList(
            Up(2 * width, factor=factor) for width, factor in zip(widths, merges, strict=True)
        )
        self.stages = nn.ModuleList(
            VolumeStage(width, size, is_decoder=True, mlp_ratio=mlp_ratio, drop_path=rate)
            for width, size, rate in zip(widths, sizes, rates, strict=True)
        )

    def forward(self, tokens: Sequence[Tensor]) -> list[Tensor]:
        """Map encoder tokens (B, d, h, w, C) to the decoder stages' tokens, both finest first."""
        *skips, x = tokens
        outputs = []
        for i in reversed(range(len(skips))):
            x = self.stages[i](self.ups[i](x, skips[i].shape[1:4]), skips[i])
            outputs.append(x)
        return outputs[::-1]


def shared_out(drop_path: float, depths: Sequence[int]) -> list[list[float]]:
    """Return each stage's stochastic depth rates, rising linearly from 0 to `drop_path`."""
    rates = np.linspace(0.0, drop_path, sum(depths))
    return [part.tolist() for part in np.split(rates, np.cumsum(depths)[:-1])]


class NnFormer(nn.Module):
    """Transformer of local and global volume attention, interleaved with convolutions.

    Args:
        dim: Width of the first stage; doubles with each stage.
        patch: Voxels of a first-stage token along (d, h, w), each 1, 2 or 4.
        merges: Down-sampling factors between stages, 1 or 2 along (d, h, w).
        depths: Blocks of the encoder's stages; the decoder's stages have the same, without the
            last.
        decoder_num_heads: Heads of the decoder's stages, the finest first.
        rounds_down: Whether halving an odd grid rounds down, as the authors' ACDC network does for
            7 slices; otherwise it rounds up.
        windows: Largest local volume of each stage (d, h, w), tokens; attention is global if it
            covers the grid. See `global_windows`.
        mlp_ratio: Hidden width of the MLPs, in multiples of the stage's width.
        drop_path: Stochastic depth rate of the last block of both encoder and decoder.
        num_supervised_levels: Decoder stages with a head, from the finest.
        official_index: Whether relative positions share biases as in the authors' code, for
            comparison.
        official_unmasked_shift: Whether opposite ends of the grid see each other in shifted
            volumes, as in the authors' ACDC network.

    Attributes:
        stride: Field sizes are padded to multiples of this, (d, h, w).
        heads: Transposed convolutions from tokens to logits, the finest first.

    Source:
        Zhou et al., nnFormer: Volumetric Medical Image Segmentation via a 3D Transformer, IEEE TIP
        2023. Differs from the source: by default, relative positions and shifted volumes follow the
        paper, not the authors' code. Any grid size works, while the authors' networks support only
        one.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        num_classes: int,
        dim: int,
        patch: Sequence[int],
        merges: Sequence[Sequence[int]],
        rounds_down: bool,
        depths: Sequence[int],
        num_heads: Sequence[int],
        decoder_num_heads: Sequence[int],
        windows: Sequence[Sequence[int]],
        mlp_ratio: int,
        drop_path: float,
        num_supervised_levels: int,
        official_index: bool,
        official_unmasked_shift: bool,
    ) -> None:
        super().__init__()
        stages = len(depths)
        if stages < 2:
            raise ValueError(f"depths must be of at least two stages, got {tuple(depths)}")
        lists: dict[str, tuple[Sequence[object], int]] = {
            "num_heads": (num_heads, stages),
            "windows": (windows, stages),
            "decoder_num_heads": (decoder_num_heads, stages - 1),
            "merges": (merges, stages - 1),
        }
        for name, (given, expected) in lists.items():
            if len(given) != expected:
                raise ValueError(
                    f"{name} must have {expected} entries with {stages} depths, got {len(given)}"
                )
        numbers = {
            "in_channels": (in_channels,),
            "num_classes": (num_classes,),
            "dim": (dim,),
            "mlp_ratio": (mlp_ratio,),
            "depths": depths,
            "num_heads": num_heads,
            "decoder_num_heads": decoder_num_heads,
        }
        for name, values in numbers.items():
            if min(values) < 1:
                raise ValueError(f"{name} must be at least 1, got {', '.join(map(str, values))}")
        if not 0 <= drop_path < 1:
            raise ValueError(f"drop_path must be at least 0 and less than 1, got {drop_path}")
        if not 1 <= num_supervised_levels < stages:
            raise ValueError(
                f"num_supervised_levels must be 1 to {stages - 1} with {stages} depths, got "
                f"{num_supervised_levels}"
            )
        token = _triple("patch", patch, (1, 2, 4))
        factors = [_triple("merges", merge, (1, 2)) for merge in merges]
        sizes = [
            [
                AttentionSizes(n, _triple("windows", w), official_index, official_unmasked_shift)
                for n, w in zip(heads, windows, strict=False)  # the decoder lacks the coarsest
            ]
            for heads in (num_heads, decoder_num_heads)
        ]
        self.in_channels = in_channels
        self.stride = field_stride(token, factors)
        self.encoder = Encoder(
            in_channels,
            dim,
            patch=token,
            merges=factors,
            rounds_down=rounds_down,
            depths=depths,
            sizes=sizes[0],
            mlp_ratio=mlp_ratio,
            drop_path=drop_path,
        )
        self.decoder = Decoder(
            dim,
            merges=factors,
            depths=depths[:-1],
            sizes=sizes[1],
            mlp_ratio=mlp_ratio,
            drop_path=drop_path,
        )
        self.heads = nn.ModuleList(
            nn.ConvTranspose3d(dim << i, num_classes, token, stride=token)
            for i in range(num_supervised_levels)
        )
        self.apply(_begin)

    def forward(self, x: Tensor, *, deep_supervision: bool = False) -> Tensor | list[Tensor]:
        """Segment a field.

        Args:
            x: Intensities (B, in_channels, D, H, W).
            deep_supervision: Whether to return the coarser levels, too.

        Returns:
            Logits (B, num_classes, D, H, W); with `deep_supervision` a list of the logits of all
            heads, each on its own grid, the finest first.
        """
        require_channels(x, self.in_channels, name="nnFormer")
        field, cropped = padded(x, self.stride, name="nnFormer")
        tokens = self.decoder(self.encoder(field))
        used = len(self.heads) if deep_supervision else 1
        logits = [
            cropped(head(level.movedim(-1, 1)))
            for head, level in zip(self.heads[:used], tokens, strict=False)
        ]
        return logits if deep_supervision else logits[0]


def tables_for(
    network: NnFormer, state: Mapping[str, Tensor], windows: Sequence[Sequence[int]]
) -> dict[str, Tensor]:
    """Adapt the position tables of weights trained with other local volumes.

    Args:
        network: Target network; its own tables are overwritten.
        windows: Local volumes of each stage in the weights' training.
    """
    fitted = dict(state)
    for name, module in network.named_modules():
        key = f"{name}.table"
        if isinstance(module, RelativePositionBias) and key in state:
            window = grid_of(windows[int(name.split(".")[2])])  # of encoder.stages.N
            if window != module.window:
                module.take(state[key], window)
                fitted[key] = module.table.detach()
    return fitted


def field_stride(patch: Sequence[int], merges: Sequence[Sequence[int]]) -> Grid:
    """Return the stride that field sizes (d, h, w) are padded to.

    The last merge is left out: it may round an odd grid, as for the 14 slices of ACDC.
    """
    return grid_of([math.prod(axis) for axis in zip(patch, *merges[:-1], strict=True)])


def stage_grids(
    patch: Sequence[int],
    merges: Sequence[Sequence[int]],
    field: Sequence[int],
    *,
    rounds_down: bool,
) -> list[Grid]:
    """Return the token grid (d, h, w) of every stage, the finest first.

    Args:
        field: Input size (d, h, w), voxels.
    """
    grids = [[math.ceil(n / p) for n, p in zip(field, patch, strict=True)]]
    for merge in merges:
        pairs = zip(grids[-1], merge, strict=True)
        grids.append([n // f if rounds_down and n > 1 else math.ceil(n / f) for n, f in pairs])
    return [grid_of(grid) for grid in grids]


def global_windows(windows: Sequence[Sequence[int]], grids: Sequence[Grid]) -> list[Grid]:
    """Return local volumes with global attention in the last two stages.

    The last two encoder stages and the decoder stage after them have six layers in the published
    networks, the paper's bottleneck. Earlier stages keep their volumes, with twice the in-plane
    side for a single slice.

    Args:
        windows: Volumes of each stage (d, h, w).

    Source:
        nnFormer, section III-C, "Bottleneck": six layers of GV-MSA.
    """
    is_slice = grids[0][0] == 1
    local = [(1, 2 * h, 2 * w) if is_slice else grid_of((d, h, w)) for d, h, w in windows]
    return [*local[:-2], *grids[-2:]]


def _begin(module: nn.Module) -> None:
    """Initialise linear layers as Swin Transformer does; convolutions keep torch's default."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)


def _triple(name: str, numbers: Sequence[int], known: Sequence[int] = ()) -> Grid:
    if len(numbers) != 3 or any(n < 1 or (known and n not in known) for n in numbers):
        among = f", each of {', '.join(map(str, known))}" if known else " of at least 1"
        raise ValueError(f"{name} must be of three numbers (d, h, w){among}, got {numbers}")
    return grid_of(numbers)
