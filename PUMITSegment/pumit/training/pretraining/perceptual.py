"""Perceptual loss: distance of two images in the features of a frozen network.

The recipe chooses the network with `perceptual: vgg16 | default | none`:

- vgg16: LPIPS on VGG16, as in the training of PUMIT's tokenizer. The weights are downloaded by
  torchvision if installed, or read from a safetensors file.
- default: convolutional stem of the default promptable model. It was trained on scans, works in 3D
  and takes the spacing into account; nothing is downloaded.
- none: no perceptual loss.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.errors import CheckpointError, PumitError
from pumit.inference.loading import build_from, read_model
from pumit.models.index import find_model
from pumit.models.public_weights import read_public_weights
from pumit.networks.promptable.image_encoder import ImageEncoder
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.pumit import Anisotropy
from pumit.networks.pumit.anisotropy import require_reducible
from pumit.networks.vgg import STAGES, Vgg16Features
from pumit.preprocessing.fields import BINS, equalizing_steps

CHOICES = ("vgg16", "default", "none")
# Slices per volume and step in PUMIT.
MAX_SLICES = 24
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_VGG_FILE = (
    "the safetensors file of VGG16's weights, such as model.safetensors of timm/vgg16.tv_in1k on "
    "the Hugging Face hub"
)
# Maps an image to its features and their channel weights (None means 1), one of each per layer.
View = Callable[[Tensor], Sequence[tuple[Tensor, Tensor | None]]]


class PerceptualLoss(nn.Module):
    """Base class of perceptual losses; has no trainable parameters."""

    scale = 1.0

    def forward(
        self,
        reconstruction: Tensor,
        image: Tensor,
        anisotropy: Anisotropy,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Compute the mean distance over a batch, a scalar; 0 for equal images.

        Args:
            reconstruction: Shape (B, C, D, H, W), about -1 to 1, not clipped; receives gradients.
            image: The same shape, -1 to 1.

        Raises:
            ValueError: If the shapes differ.
        """
        if reconstruction.shape != image.shape or image.ndim != 5:
            raise ValueError(
                f"Expected two images (B, C, D, H, W), got {tuple(reconstruction.shape)} and "
                f"{tuple(image.shape)}."
            )
        see = self.view_of(image, anisotropy, generator)
        with torch.no_grad():
            expected = see(image)
        layers = zip(see(reconstruction), expected, strict=True)
        return self.scale * torch.stack([_difference(a, b, w) for (a, w), (b, _) in layers]).sum()

    def view_of(
        self, image: Tensor, anisotropy: Anisotropy, generator: torch.Generator | None
    ) -> View:
        """Return a function that computes features of random slices, fixed for both images."""
        raise NotImplementedError


class VggPerceptualLoss(PerceptualLoss):
    """LPIPS on VGG16, computed slice by slice and scaled by 2.

    Args:
        channel_weights: Channel weights of the five layers, (C,) each; None means 1.

    Source:
        Zhang et al., "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric",
        CVPR 2018; PUMIT, section "Universal Visual Tokenizer".
        Differs from the source: intensities are mapped from -1..1 to ImageNet's by
        (x - (2 mean - 1)) / (2 std), where PUMIT's code shifts by 1 - 2 mean, against the sign.
        Without `channel_weights`, all channels have weight 1, LPIPS's "baseline". The published
        weights average 0.07 to 0.11, so this loss is about ten times as large.
    """

    scale = 2.0

    def __init__(self, features: Vgg16Features, channel_weights: list[Tensor] | None) -> None:
        super().__init__()
        self.features = features
        ones = [torch.ones(widths[-1]) for widths in STAGES]
        for i, weight in enumerate(channel_weights or ones):
            self.register_buffer(f"channel_weight{i}", weight.reshape(1, -1, 1, 1))
        mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
        self.register_buffer("shift", (2 * mean - 1).reshape(1, 3, 1, 1))
        self.register_buffer("spread", (2 * std).reshape(1, 3, 1, 1))
        self.requires_grad_(False).eval()

    def view_of(
        self, image: Tensor, anisotropy: Anisotropy, generator: torch.Generator | None
    ) -> View:
        """Return features of random slices as 2D images, with the channel weights of LPIPS."""
        depth = image.shape[2]
        chosen = [torch.randperm(depth, generator=generator)[:MAX_SLICES] for _ in image]
        weights = [self.get_buffer(f"channel_weight{i}") for i in range(len(STAGES))]

        def see(x: Tensor) -> list[tuple[Tensor, Tensor | None]]:
            # Slices (B n, 3, H, W) of (B, C, D, H, W), normalised as for ImageNet.
            rows = [x[b][:, at.to(x.device)].movedim(1, 0) for b, at in enumerate(chosen)]
            pictures = torch.cat(rows).float().expand(-1, 3, -1, -1)
            pictures = (pictures - self.get_buffer("shift")) / self.get_buffer("spread")
            return list(zip(self.features(pictures), weights, strict=True))

        return see


class StemPerceptualLoss(PerceptualLoss):
    """Perceptual loss on a promptable model's convolutional stem at full, 1/2 and 1/4 resolution.

    Both images are equalised by the histogram of the true image, as the stem expects. Colour
    channels are averaged. The compared slices are adjacent, so that structure along depth counts.

    Args:
        encoder: Image encoder of a promptable network; its ViT blocks are removed.
    """

    def __init__(self, encoder: ImageEncoder) -> None:
        super().__init__()
        encoder.blocks = nn.ModuleList()
        self.encoder = encoder
        self.requires_grad_(False).eval()

    def view_of(
        self, image: Tensor, anisotropy: Anisotropy, generator: torch.Generator | None
    ) -> View:
        """Return stem features of a random slab.

        Raises:
            PumitError: If the in-plane size is not a multiple of 4.
        """
        require_reducible(image, anisotropy, 2)
        # Up to `MAX_SLICES` adjacent slices, a multiple of the stem's stride along depth.
        depth, step = image.shape[2], anisotropy.depth_stride(2)
        size = max(min(depth, MAX_SLICES) // step, 1) * step
        start = int(torch.randint(depth - size + 1, (), generator=generator))

        def grey(x: Tensor) -> Tensor:  # (B, D, H, W), 0 to 1
            return (x[:, :, start : start + size].float().mean(1) + 1) / 2

        true = grey(image).detach().clamp(0, 1).cpu().numpy()
        steps = [torch.from_numpy(equalizing_steps(one)).to(image.device) for one in true]

        def see(x: Tensor) -> list[tuple[Tensor, Tensor | None]]:
            # The stem's input (B, 3, D, H, W): linear, equalised, inside.
            linear = grey(x)
            equal = torch.stack([_equalized(x, s) for x, s in zip(linear, steps, strict=True)])
            channels = torch.stack((linear, equal, torch.ones_like(linear)), dim=1)
            return [(x, None) for x in self.encoder.stem_features(channels, anisotropy)]

        return see


def build_perceptual(
    choice: str, device: torch.device | str, *, weights: str | None = None
) -> PerceptualLoss | None:
    """Build the perceptual loss of a recipe.

    Args:
        weights: For vgg16, a safetensors file with VGG16's features under torchvision's names
            (`features.0.weight`, ...), LPIPS's linear layers (`lin0.model.1.weight`, ...), or both.
            LPIPS publishes its layers as weights/v0.1/vgg.pth; convert it to safetensors first.
            For default, name or file of another promptable model.

    Returns:
        The frozen loss, or None for `none`.

    Raises:
        PumitError: If the choice is unknown, or its weights are not available; names a remedy.
    """
    if choice not in CHOICES:
        raise PumitError(f"perceptual must be one of {', '.join(CHOICES)}, got {choice!r}.")
    if choice == "none":
        if weights is not None:
            raise PumitError("perceptual is none and takes no weights; remove them, or choose.")
        return None
    loss: PerceptualLoss = _vgg16(weights) if choice == "vgg16" else _stem(weights or "default")
    return loss.to(device)


def _stem(model: str) -> StemPerceptualLoss:
    path = find_model(model)
    checkpoint = read_model(path, "promptable")
    network = build_from(checkpoint, path, torch.device("cpu"))
    assert isinstance(network, PromptableNetwork)
    return StemPerceptualLoss(network.image_encoder)


def _vgg16(weights: str | None) -> VggPerceptualLoss:
    given: dict[str, Tensor] = {}
    if weights is not None:
        given = read_public_weights(
            Path(weights).expanduser(),
            instead=_VGG_FILE,
            select=lambda name: name.startswith(("features.", "lin")),
        )
        if not given:
            raise CheckpointError(
                f"{Path(weights).name} holds neither VGG16's features nor LPIPS's linear layers; "
                f"give {_VGG_FILE}."
            )
    features = Vgg16Features()
    is_from_file = any(name.startswith("features.") for name in given)
    state = given if is_from_file else _weights_of_torchvision()
    own = {k.removeprefix("features."): v for k, v in state.items() if k.startswith("features.")}
    try:
        features.load_state_dict(own)
    except RuntimeError:
        raise CheckpointError(f"These are not the weights of VGG16; give {_VGG_FILE}.") from None
    return VggPerceptualLoss(features, _linear_layers(given))


def _linear_layers(given: Mapping[str, Tensor]) -> list[Tensor] | None:
    """Extract LPIPS's five linear layers, (C,) each; None if there are none."""
    names = [f"lin{i}.model.1.weight" for i in range(len(STAGES))]
    if not any(name.startswith("lin") for name in given):
        return None
    expected = {name: widths[-1] for name, widths in zip(names, STAGES, strict=True)}
    sizes = {name: given[name].numel() for name in names if name in given}
    if sizes != expected:
        raise CheckpointError(f"LPIPS's linear layers for VGG16 are {expected}, got {sizes}.")
    return [given[name].flatten() for name in names]


def _weights_of_torchvision() -> Mapping[str, Tensor]:
    """Load VGG16's published weights from torchvision's cache or server, with `weights_only`."""
    other = f"or give as perceptual_weights {_VGG_FILE}, or choose perceptual: default or none."
    try:
        models = import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:  # missing, or made for another PyTorch
        is_missing = isinstance(error, ImportError)
        what = "is not installed; install it" if is_missing else "does not fit this PyTorch"
        raise PumitError(f"perceptual: vgg16 needs torchvision, which {what}, {other}") from None
    try:
        state: Mapping[str, Tensor] = models.VGG16_Weights.IMAGENET1K_V1.get_state_dict(
            progress=False, check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError, EOFError) as error:  # no network, or a damaged file
        reason = type(error).__name__
        raise PumitError(
            f"torchvision cannot fetch VGG16's weights ({reason}); check the network, {other}"
        ) from None
    return state


def _equalized(linear: Tensor, steps: Tensor) -> Tensor:
    """Equalise intensities piecewise linearly; outside 0 to 1, extrapolate the outermost bin."""
    position = linear * BINS
    lower = position.detach().floor().clamp(0, BINS - 1).long()
    return steps[lower] + (steps[lower + 1] - steps[lower]) * (position - lower)


def _difference(found: Tensor, expected: Tensor, weight: Tensor | None) -> Tensor:
    """Compute the squared distance of unit-normalised features (B, C, ...), averaged; a scalar."""
    a, b = (F.normalize(x.float(), dim=1, eps=1e-10) for x in (found, expected))
    squared = (a - b).square()
    return (squared if weight is None else squared * weight).sum(1).mean()
