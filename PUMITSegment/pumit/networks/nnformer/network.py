"""nnFormer: one network class for the three published configurations and any others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from pumit.networks.nnformer.attention import AttentionSizes, Grid, RelativePositionBias, grid_of
from pumit.networks.nnformer.encoder import Encoder, SkipBlock, Up, VolumeBlock, shared_out
from pumit.networks.padding import padded, require_channels


class DecoderStage(nn.Module):
    """A skip attention block, then self-attention blocks, every second of which is shifted."""

    def __init__(
        self, dim: int, sizes: AttentionSizes, *, mlp_ratio: int, drop_path: Sequence[float]
    ) -> None:
        super().__init__()
        first, *others = drop_path
        self.blocks = nn.ModuleList([SkipBlock(dim, sizes, mlp_ratio=mlp_ratio, drop_path=first)])
        for i, rate in enumerate(others):
            self.blocks.append(
                VolumeBlock(dim, sizes, is_shifted=i % 2 == 0, mlp_ratio=mlp_ratio, drop_path=rate)
            )

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Map up-sampled and encoder tokens, both (B, D, H, W, C), to tokens of that shape."""
        for i, block in enumerate(self.blocks):
            x = block(x) if i else block(x, skip)
        return x


class Decoder(nn.Module):
    """Decoder of all stages but the coarsest.

    Args:
        merges: Down-sampling factors between stages, the finest first, (d, h, w) each.
        sizes: Attention settings of each stage, the finest first.
        mlp_ratio: Hidden width of the MLPs, in multiples of the stage's width.
        drop_path: Stochastic depth rate of the last block, rising linearly from 0 at the first, the
            coarsest.

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
            DecoderStage(width, size, mlp_ratio=mlp_ratio, drop_path=rate)
            for width, size, rate in zip(widths, sizes, rates, strict=True)
        )

    def forward(self, tokens: Sequence[Tensor]) -> list[Tensor]:
        """Map encoder tokens (B, d, h, w, C) to the decoder stages' tokens, both finest first."""
        *skips, x = tokens
        outputs = []
        for i in reversed(range(len(skips))):
            d, h, w = skips[i].shape[1:4]
            x = self.stages[i](self.ups[i](x, (d, h, w)), skips[i])
            outputs.append(x)
        return outputs[::-1]


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

    Raises:
        ValueError: If the sizes do not fit together.

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
        _require_numbers(
            {
                "in_channels": in_channels,
                "num_classes": num_classes,
                "dim": dim,
                "mlp_ratio": mlp_ratio,
            },
            drop_path=drop_path,
        )
        _require_stages(depths, num_heads, decoder_num_heads, windows, merges)
        if not 1 <= num_supervised_levels < len(depths):
            raise ValueError(
                f"num_supervised_levels must be 1 to {len(depths) - 1} with {len(depths)} depths, "
                f"got {num_supervised_levels}"
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

        Raises:
            PumitError: If the channels do not match, or the field is smaller than the stride.
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
    grids = [grid_of([-(-n // p) for n, p in zip(field, patch, strict=True)])]
    for merge in merges:
        grids.append(
            grid_of(
                [
                    n // f if rounds_down and n > 1 else -(-n // f)
                    for n, f in zip(grids[-1], merge, strict=True)
                ]
            )
        )
    return grids


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


def _require_numbers(least_one: dict[str, int], *, drop_path: float) -> None:
    for name, number in least_one.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if not 0 <= drop_path < 1:
        raise ValueError(f"drop_path must be at least 0 and less than 1, got {drop_path}")


def _require_stages(
    depths: Sequence[int],
    num_heads: Sequence[int],
    decoder_num_heads: Sequence[int],
    windows: Sequence[Sequence[int]],
    merges: Sequence[Sequence[int]],
) -> None:
    stages = len(depths)
    if stages < 2:
        raise ValueError(f"depths must be of at least two stages, got {tuple(depths)}")
    for name, given, expected in (
        ("num_heads", num_heads, stages),
        ("windows", windows, stages),
        ("decoder_num_heads", decoder_num_heads, stages - 1),
        ("merges", merges, stages - 1),
    ):
        if len(given) != expected:
            raise ValueError(
                f"{name} must have {expected} entries with {stages} depths, got {len(given)}"
            )
    for name, numbers in (
        ("depths", depths),
        ("num_heads", num_heads),
        ("decoder_num_heads", decoder_num_heads),
    ):
        if min(numbers) < 1:
            raise ValueError(f"{name} must be at least 1, got {tuple(numbers)}")


def _triple(name: str, numbers: Sequence[int], known: Sequence[int] = ()) -> Grid:
    if len(numbers) != 3 or any(n < 1 or (known and n not in known) for n in numbers):
        among = f", each of {', '.join(map(str, known))}" if known else " of at least 1"
        raise ValueError(f"{name} must be of three numbers (d, h, w){among}, got {numbers}")
    return grid_of(numbers)
