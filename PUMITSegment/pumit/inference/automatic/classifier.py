"""Classification of whole scans."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pumit.errors import CheckpointError, VolumeError
from pumit.inference.loading import build_from, computing_in, open_model, pick_precision
from pumit.models.card import classes_of
from pumit.networks.pumit.vit import VitClassifier
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.volume import Volume


@dataclass(frozen=True)
class Classification:
    """Class probabilities of one scan.

    Attributes:
        probabilities: Probabilities by class name, in the model's order, 0 to 1.
        is_multi_label: Whether several classes may apply at once; otherwise they sum to 1.
    """

    probabilities: dict[str, float]
    is_multi_label: bool

    @property
    def most_probable(self) -> str:
        """Class with the highest probability."""
        return max(self.probabilities, key=lambda name: self.probabilities[name])


@torch.no_grad()
def class_probabilities(
    network: Callable[[Tensor], Tensor],
    images: Tensor,
    form: ClassifierInput,
    *,
    is_multi_label: bool,
    device: torch.device,
    precision: torch.dtype,
) -> npt.NDArray[np.float32]:
    """Compute class probabilities (B, classes) of a batch of images prepared by `form`.

    Args:
        network: Maps images (B, channels, d, h, w) to logits (B, classes).
    """
    x = (images * form.factor).to(device).expand(-1, form.channels, -1, -1, -1)
    with computing_in(precision, device):
        logits = network(x)
    logits = logits.float()
    return (logits.sigmoid() if is_multi_label else logits.softmax(1)).cpu().numpy()


@dataclass
class Classifier:
    """A classifier ready for inference."""

    network: nn.Module
    form: ClassifierInput
    classes: tuple[str, ...]
    is_multi_label: bool
    name: str
    version: str
    torch_device: torch.device
    precision: torch.dtype

    def classify(self, volume: Volume) -> Classification:
        """Classify a scan.

        Raises:
            VolumeError: If its channels do not fit the classifier, or the output is not finite.
            CheckpointError: If the network's outputs do not match its recipe.
        """
        found = class_probabilities(
            self.network,
            self.form.prepare(volume)[None],
            self.form,
            is_multi_label=self.is_multi_label,
            device=self.torch_device,
            precision=self.precision,
        )[0]
        if len(found) != len(self.classes):
            raise CheckpointError(
                f"The classifier {self.name!r} has {len(found)} outputs for {len(self.classes)} "
                "classes; train or fetch it again."
            )
        if not np.isfinite(found).all():
            raise VolumeError(
                "The classifier's output is NaN or infinite; check the intensities of the scan."
            )
        pairs = zip(self.classes, found.tolist(), strict=True)
        return Classification(dict(pairs), self.is_multi_label)


def load_classifier(model: str | Path, device: str = "auto") -> Classifier:
    """Load a classifier.

    Args:
        model: A name from the model index, or a checkpoint file.

    Raises:
        CheckpointError: If the model is unknown, damaged, or of another kind, or its licence was
            not accepted.
        PumitError: If the device is absent.
    """
    path, checkpoint, target = open_model(model, "classifier", device)
    recipe, header = checkpoint.recipe, checkpoint.header
    form = ClassifierInput.from_recipe(recipe)
    classes = tuple(label.name for label in classes_of(recipe))
    network = build_from(checkpoint, path, target)
    patch = network.vit.fixed_patch if isinstance(network, VitClassifier) else None
    if patch is not None and any(n % p for n, p in zip(form.size, patch, strict=True)):
        raise CheckpointError(
            f"{path.name} has an input size of {form.size} voxels that is not a multiple of "
            f"its patch size {patch}; train or fetch it again."
        )
    return Classifier(
        network,
        form,
        classes,
        bool(recipe.get("is_multi_label", False)),
        header.name or path.stem,
        header.version,
        target,
        pick_precision(target),
    )
