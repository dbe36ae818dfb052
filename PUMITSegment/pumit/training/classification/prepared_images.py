"""Pre-processed images of a classifier, computed on demand or cached in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pumit.errors import VolumeError
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.training.classification.cases import Cases
from pumit.training.data.volume_cache import VolumeCache


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
