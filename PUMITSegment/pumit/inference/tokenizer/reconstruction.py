"""Image reconstruction with a visual tokenizer, window by window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from skimage.metrics import structural_similarity
from torch import Tensor
from torch.nn import functional as F

from pumit.errors import CheckpointError, VolumeError
from pumit.inference.loading import build_from, computing_in, open_model, pick_precision
from pumit.inference.tokenizer.familiarity import FamiliarityScale
from pumit.inference.tokenizer.image_figures import LEAST_CELLS, colour_of, figures_of
from pumit.inference.tokenizer.token_use import Reconstruction, TokenUse, quality
from pumit.models.card import installed_models
from pumit.networks.pumit import Anisotropy
from pumit.networks.pumit.tokenizer import VisualTokenizer
from pumit.preprocessing.channels import grey
from pumit.preprocessing.network_axes import depth_first
from pumit.preprocessing.normalization import Normalization, Scaling
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume

Grid = tuple[int, int, int]
NO_TOKENIZER = (
    "No tokenizer is installed, and the one that comes with this program is missing. Install the "
    "program again, add a tokenizer to the model index, or give a checkpoint file as the model."
)
_HALVINGS = 4  # the tokenizer reduces 16 times in-plane
_OVERLAP = 0.25
_SSIM_WINDOW = 7
_SSIM_SLICES = 100


class TokenCells:
    """Accumulator over the real cells (d, h, w) of an image, without padding.

    Each cell counts once, however many windows see it.
    """

    def __init__(self, real: Grid) -> None:
        self.real = real
        self._expected = torch.zeros(real)
        self._shares: Tensor | None = None
        self._entropy = torch.zeros(real)

    def expect(self, start: Grid, weights: Tensor) -> None:
        """Register the weights (d, h, w) of a window's cells; all before the first `add`."""
        place, inside = self._within(start, weights.shape)
        self._expected[place] += weights[inside]

    def add(self, start: Grid, weights: Tensor, probabilities: Tensor) -> None:
        """Add the token probabilities of a window, (K, d, h, w), of any precision and device."""
        place, inside = self._within(start, weights.shape)
        share = weights[inside] / self._expected[place]
        p = probabilities[(slice(None), *inside)].float()
        entropy = -(p * p.clamp_min(torch.finfo(p.dtype).tiny).log()).sum(0)
        self._entropy[place] += entropy.cpu() * share
        sums = (p * share.to(p.device)).flatten(1).sum(1).double().cpu()
        self._shares = sums if self._shares is None else self._shares + sums

    def use(self) -> TokenUse:
        """Return the usage of the codebook."""
        assert self._shares is not None
        count = self._entropy.numel()
        shares = self._shares.numpy() / count
        return TokenUse(shares / shares.sum(), float(self._entropy.double().mean()))

    def _within(
        self, start: Grid, shape: tuple[int, ...]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return a window's slices in the image's cells, and the matching slices in the window."""
        sizes = [max(0, min(n, m - s)) for s, n, m in zip(start, shape, self.real, strict=True)]
        place = tuple(slice(s, s + n) for s, n in zip(start, sizes, strict=True))
        return place, tuple(map(slice, sizes))


@dataclass(frozen=True)
class TokenizerPlan:
    """Window size, normalisation and reference metrics of a tokenizer.

    Attributes:
        in_plane: In-plane side of a window, voxels, a multiple of 16.
        depth: Slices of a window at isotropic spacing; fewer if they are thicker.
        reference: Reference metrics; see `pumit.inference.tokenizer.familiarity`.
    """

    in_plane: int = 128
    depth: int = 64
    normalization: Normalization = field(default_factory=Normalization)
    reference: object = None

    @staticmethod
    def from_recipe(recipe: Mapping[str, Any]) -> TokenizerPlan:
        """Read `plan` (`in_plane`, `depth`, `intensity`) and `reference`, all optional.

        Raises:
            CheckpointError: If a value is invalid.
        """
        plan = recipe.get("plan", {})
        try:
            in_plane, depth = int(plan.get("in_plane", 128)), int(plan.get("depth", 64))
            intensity = plan.get("intensity")
        except (TypeError, ValueError, AttributeError):
            raise CheckpointError("The tokenizer's plan cannot be read; fetch it again.") from None
        if min(in_plane, depth) < 16 or in_plane % 16 or depth % 16:
            raise CheckpointError(
                f"The tokenizer's windows of {depth} x {in_plane} x {in_plane} voxels must be "
                "multiples of 16; train or fetch it again."
            )
        scaled = Normalization() if intensity is None else Normalization.from_recipe(intensity)
        return TokenizerPlan(in_plane, depth, scaled, recipe.get("reference"))

    def window(self, shape: Grid, anisotropy: Anisotropy) -> tuple[Grid, Grid]:
        """Return the window size for a grid, and the number that each axis is a multiple of."""
        unit = _unit(anisotropy)
        largest = (anisotropy.depth_at(self.depth), self.in_plane, self.in_plane)
        d, h, w = (
            min(max(size, u), math.ceil(n / u) * u)
            for size, n, u in zip(largest, shape, unit, strict=True)
        )
        return (d, h, w), unit


@dataclass
class Tokenizer:
    """A visual tokenizer ready for inference; a grey image is repeated in `channels`."""

    network: VisualTokenizer
    plan: TokenizerPlan
    channels: int
    name: str
    version: str
    torch_device: torch.device
    precision: torch.dtype

    def reconstruct(
        self, volume: Volume, *, channel: int = 0, watch: Watch = UNWATCHED
    ) -> Reconstruction:
        """Tokenise and reconstruct a scan.

        Args:
            volume: The scan; colour is converted to grey.
            channel: Channel of a multi-channel image; ignored for colour images.

        Raises:
            Cancelled: If the caller cancelled it.
            VolumeError: If all voxels are equal, or some are not finite.
        """
        # 1. Pre-process: depth first, normalised intensities, (D, H, W).
        order = depth_first(volume.spacing_mm, volume.shape)
        source = grey(volume, channel).transpose(order)
        scaling = self._scaling(source)
        seen = (source * np.float32(scaling.factor) + np.float32(scaling.offset)).astype(np.float32)
        low, high = self.plan.normalization.target
        np.clip(seen, low, high, out=seen)
        # 2. Run the network window by window: reconstruction, and token usage of each cell.
        spacing = tuple(volume.spacing_mm[a] for a in order)
        scale = FamiliarityScale.from_reference(
            self.plan.reference, len(self.network.quantizer.codebook)
        )
        anisotropy = Anisotropy.from_spacing(spacing)
        back, cells = self._through(torch.from_numpy(seen), anisotropy, watch)
        np.clip(back, low, high, out=back)
        # 3. Codebook usage, errors, and metrics of unusual images.
        use, span = cells.use(), high - low
        error = float(np.mean(np.square(back - seen), dtype=np.float64)) / span**2
        psnr = 10 * math.log10(1 / max(error, 1e-12))
        measured = figures_of(
            *((x if (low, span) == (0, 1) else (x - low) / span) for x in (seen, back)),
            use=use,
            usual_shares=None if scale is None else scale.usual_shares,
            cell=_unit(anisotropy),
            spacing=(spacing[0], spacing[1], spacing[2]),
            colour=colour_of(volume),
        )
        judged, prefix = None, ""
        if scale is not None and math.prod(cells.real) >= LEAST_CELLS:
            judged = scale.rate(measured)
            prefix = f"{judged.sentence} "
        elif scale is not None:
            prefix = "The image is too small to measure its familiarity. "
        # 4. Restore the scan's axes and intensities.
        undo = np.argsort(order)
        return Reconstruction(
            scaling.inverted(back).astype(np.float32).transpose(undo),
            ((back - seen) / np.float32(scaling.factor)).transpose(undo),
            use,
            psnr,
            _ssim(seen, back, span),
            f"{prefix}{quality(psnr, self.plan.reference)}",
            judged,
            None if scale is None else scale.usual_shares,
            measured,
        )

    def _scaling(self, source: npt.NDArray[Any]) -> Scaling:
        """Return the planned scaling, or minimum to maximum if the planned one is degenerate."""
        lowest, highest = float(source.min()), float(source.max())
        if not (math.isfinite(lowest) and math.isfinite(highest)):
            raise VolumeError(
                "The volume has voxels that are NaN or infinite; repair the scan or export it "
                "again."
            )
        if lowest == highest:
            raise VolumeError(
                f"Every voxel has the same value ({lowest:g}); there is nothing to reconstruct."
            )
        planned = self.plan.normalization
        scaling = planned.scaling(source)
        ends = [scaling.factor * v + scaling.offset for v in (lowest, highest)]
        # In a mask all values above the minimum are equal, so percentiles do not work.
        if not np.ptp(np.clip(ends, *planned.target)) > 1e-6:
            return Scaling.between((lowest, highest), planned.target)
        return scaling

    def _through(
        self, image: Tensor, anisotropy: Anisotropy, watch: Watch
    ) -> tuple[npt.NDArray[np.float32], TokenCells]:
        """Reconstruct a normalised image (d, h, w), blending overlapping windows."""
        d, h, w = image.shape
        # 1. Overlapping windows, aligned to cells.
        window, unit = self.plan.window((d, h, w), anisotropy)
        total, weights = torch.zeros(d, h, w), torch.zeros(d, h, w)
        places = list(_windows((d, h, w), window, unit))
        # Cells at least half inside the image count; the rest is padding.
        a, b, c = (max(1, round(n / u)) for n, u in zip(image.shape, unit, strict=True))
        # 2. Weights of a window's cells, highest in its middle.
        cells = TokenCells((a, b, c))
        first = [_divided(start, unit) for start in places]
        cell_weights = _bump(_divided(window, unit))
        for start in first:
            cells.expect(start, cell_weights)
        # 3. Run the network on each window, and blend the results.
        for i, start in enumerate(places):
            watch.check()
            watch.report(i / len(places))
            inside = tuple(slice(s, s + n) for s, n in zip(start, window, strict=True))
            crop = image[inside]
            back, probabilities = self._window(crop, window, anisotropy)
            bump = _bump(crop.shape)
            total[inside] += back * bump
            weights[inside] += bump
            cells.add(first[i], cell_weights, probabilities)
        watch.report(1.0)
        return (total / weights.clamp_min(1e-8)).numpy(), cells

    @torch.inference_mode()
    def _window(self, crop: Tensor, window: Grid, anisotropy: Anisotropy) -> tuple[Tensor, Tensor]:
        """Return one window's image (d, h, w) on the CPU, and its probabilities (K, d', h', w')."""
        low, high = self.plan.normalization.target
        pad = [(0, n - m) for n, m in zip(window, crop.shape, strict=True)]
        x = F.pad(crop[None, None], [n for p in reversed(pad) for n in p], mode="replicate")
        x = ((x - low) * (2 / (high - low)) - 1).expand(-1, self.channels, -1, -1, -1)
        with computing_in(self.precision, self.torch_device):
            out = self.network(x.to(self.torch_device), anisotropy)
        unit = (out.reconstruction[0].float().mean(0).cpu() + 1) / 2
        d, h, w = crop.shape
        return (unit * (high - low) + low)[:d, :h, :w], out.tokens.probabilities[0]


def load_tokenizer(model: str | Path | None = None, device: str = "auto") -> Tokenizer:
    """Load a tokenizer.

    Args:
        model: A name from the model index, or a checkpoint file; None for the first installed
            tokenizer.

    Raises:
        CheckpointError: If there is no tokenizer, the model is damaged or of another kind, or its
            licence was not accepted.
        PumitError: If the device is absent.
    """
    if model is None:
        names = [card.name for card in installed_models() if card.kind == "tokenizer"]
        if not names:
            raise CheckpointError(NO_TOKENIZER)
        model = names[0]
    path, checkpoint, target = open_model(model, "tokenizer", device)
    recipe, header = checkpoint.recipe, checkpoint.header
    plan = TokenizerPlan.from_recipe(recipe)
    network = build_from(checkpoint, path, target)
    if not isinstance(network, VisualTokenizer):
        raise CheckpointError(f"{path.name} is not a tokenizer; choose another model.")
    return Tokenizer(
        network,
        plan,
        int(header.sizes.get("in_channels", 3)),
        header.name or path.stem,
        header.version,
        target,
        pick_precision(target),
    )


def _unit(anisotropy: Anisotropy) -> Grid:
    """Return the voxels per cell along (d, h, w)."""
    return (anisotropy.depth_stride(_HALVINGS), 16, 16)


def _divided(voxels: Grid, unit: Grid) -> Grid:
    d, h, w = (n // u for n, u in zip(voxels, unit, strict=True))
    return (d, h, w)


def _windows(shape: Grid, window: Grid, unit: Grid) -> Iterator[Grid]:
    """Yield the first voxels of windows that cover a grid, aligned to its cells."""
    axes = []
    for n, size, u in zip(shape, window, unit, strict=True):
        step = max(u, round(size * (1 - _OVERLAP) / u) * u)
        last = math.ceil((n - size) / u) * u
        axes.append([0] if n <= size else [*range(0, last, step), last])
    yield from itertools.product(*axes)


def _bump(shape: tuple[int, ...]) -> Tensor:
    """Return blending weights: 1 in the middle, falling to a small positive value at the rim."""
    out = torch.ones(shape)
    for axis, n in enumerate(shape):
        t = (torch.arange(n) + 0.5) / n
        ramp = (torch.minimum(t, 1 - t) / _OVERLAP).clamp(1e-3, 1)
        out = out * ramp.view([-1 if a == axis else 1 for a in range(3)])
    return out


def _ssim(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], span: float) -> float | None:
    """Return the mean SSIM of evenly spaced slices; None if smaller than the SSIM window."""
    if min(a.shape[1:]) < _SSIM_WINDOW:
        return None
    chosen = np.unique(np.linspace(0, len(a) - 1, min(len(a), _SSIM_SLICES)).round().astype(int))
    return float(np.mean([structural_similarity(a[i], b[i], data_range=span) for i in chosen]))
