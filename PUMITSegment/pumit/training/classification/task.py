"""Training task of a classifier: prepared images, and cross-entropy of the class token's logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.errors import VolumeError
from pumit.inference.automatic.classifier import class_probabilities
from pumit.inference.loading import pick_precision
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.training.classification.cases import Cases
from pumit.training.data.volume_cache import VolumeCache
from pumit.training.loop.task import Batch, SourceTask
from pumit.training.recipes.schedule import Schedule


@dataclass(frozen=True)
class PreparedImages:
    """Pre-processed images by index.

    Attributes:
        kept: File of each image, written by `keep_prepared`; None to prepare on demand.
    """

    cases: Cases
    form: ClassifierInput
    kept: Sequence[Path] | None = None

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, index: int) -> Tensor:
        """Return an image (C, d, h, w), float32; C is 1 if all channels are equal."""
        if self.kept is not None:
            array = np.load(self.kept[index], allow_pickle=False)
            return torch.from_numpy(array.astype(np.float32))
        return self.form.prepare(self.cases.volume(index))


def keep_prepared(cases: Cases, form: ClassifierInput, folder: Path) -> PreparedImages:
    """Pre-process all images once and cache them in half precision.

    All files are read before training, so an unreadable one fails early. Files whose image is
    cached already are not read again.

    Raises:
        VolumeError: If a file cannot be read, or the images differ in their channels.
        ExportError: If the folder cannot be written.
    """
    cache = VolumeCache(folder, {"input": form.as_recipe()})
    kept, counts = [], []
    for i, file in enumerate(cases.files):
        files = cache.files(file, partial(_made, cases, form, i))
        kept.append(files["image"])
        counts.append(int(np.load(files["channels"], allow_pickle=False)[0]))
        if counts[i] != counts[0]:
            raise VolumeError(
                f"{cases.names[i]} has {counts[i]} channels, {cases.names[0]} {counts[0]}; all "
                "images must have as many."
            )
    return PreparedImages(cases, form, kept)


def _made(cases: Cases, form: ClassifierInput, index: int) -> dict[str, npt.NDArray[np.generic]]:
    volume = cases.volume(index)
    try:
        image = form.prepare(volume)
    except VolumeError as error:
        raise VolumeError(f"{cases.names[index]}: {error}") from None
    return {"image": image.numpy().astype(np.float16), "channels": np.array([volume.channels])}


@dataclass
class LabelledImages(Batch):
    """Batch of labelled images.

    Attributes:
        images: (B, C, D, H, W); C is 1 if all channels are equal.
        labels: Class indices (B,), or multi-label 0 or 1 (B, classes).
    """

    images: Tensor
    labels: Tensor
    cases: list[str]

    def __len__(self) -> int:
        return len(self.cases)


@dataclass(frozen=True)
class CaseDraw:
    """Source of augmented batches, with cases drawn uniformly.

    Attributes:
        random_intensity: Whether to multiply each image by a random number from 0 to 1.

    Source:
        Yang et al., MedMNIST v2, 2023, whose regularisation of its binary shapes is
        `random_intensity`.

    Differs from the source:
        Cases are drawn with replacement, so that a batch depends only on its step and a stopped
        run resumes exactly; an epoch is as many batches as would hold every case once.
    """

    images: PreparedImages
    batch_size: int
    random_intensity: bool = False
    flips: bool = False

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> LabelledImages:
        """Draw a batch; the degree of anisotropy is ignored, as the patch is fixed."""
        cases = self.images.cases
        chosen = torch.randint(len(self.images), (self.batch_size,), generator=generator).tolist()
        images = torch.stack([self._vary(self.images[i], generator) for i in chosen])
        return LabelledImages(
            images,
            torch.from_numpy(cases.labels[chosen]),
            [cases.names[i] for i in chosen],
        )

    def _vary(self, image: Tensor, generator: torch.Generator) -> Tensor:
        if self.random_intensity:
            image = image * torch.rand((), generator=generator)
        if self.flips:
            reflected = torch.rand(3, generator=generator) < 0.5
            image = image.flip([axis + 1 for axis in range(3) if reflected[axis]])
        return image


class ClassificationTask(SourceTask):
    """Training task of a classifier.

    Args:
        network: Maps images (B, C, D, H, W) to logits (B, classes).
        source: Source of the images; a single image channel is repeated for the network.
    """

    def __init__(self, network: nn.Module, source: CaseDraw) -> None:
        super().__init__(network, source)
        self.channels = source.images.form.channels

    def parameter_groups(self, schedule: Schedule) -> list[dict[str, Any]]:
        """Return parameter groups with no weight decay on biases and norms, as in the source."""
        trained = [p for p in self.network.parameters() if p.requires_grad]
        return [
            {
                "params": [p for p in trained if p.ndim > 1],
                "weight_decay": schedule.weight_decay,
            },
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ]

    def forward(self, batch: LabelledImages) -> dict[str, Tensor]:
        """Compute the loss of a batch.

        Returns:
            `loss`, the cross-entropy (binary for multi-label data), and `accuracy`, the share of
            correct decisions.
        """
        device = next(self.network.parameters()).device
        images = batch.images.to(device, non_blocking=True)
        labels = batch.labels.to(device, non_blocking=True)
        logits = self.network(images.expand(-1, self.channels, -1, -1, -1)).float()
        if labels.ndim == 2:
            loss = F.binary_cross_entropy_with_logits(logits, labels.float())
            right = (logits > 0) == (labels > 0)
        else:
            loss = F.cross_entropy(logits, labels)
            right = logits.argmax(1) == labels
        return {"loss": loss, "accuracy": right.float().mean()}


def probabilities_of(
    network: nn.Module, images: PreparedImages, *, batch_size: int, is_multi_label: bool
) -> npt.NDArray[np.float32]:
    """Return the class probabilities of all images, (N, classes), 0 to 1, as at inference."""
    device = next(network.parameters()).device
    numbers = range(len(images))
    found = [
        class_probabilities(
            network,
            torch.stack([images[i] for i in numbers[start : start + batch_size]]),
            images.form,
            is_multi_label=is_multi_label,
            device=device,
            precision=pick_precision(device),
        )
        for start in range(0, len(images), batch_size)
    ]
    return np.concatenate(found)
