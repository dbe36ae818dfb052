"""Pre-processing of whole images for classifiers: resampling to a fixed grid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import numpy as np
import torch
from torch import Tensor

from pumit.errors import CheckpointError, VolumeError
from pumit.preprocessing.channels import image_channels, is_colour
from pumit.preprocessing.network_axes import NetworkAxes, Orientation
from pumit.preprocessing.normalization import Normalization
from pumit.preprocessing.resize import resize
from pumit.volume import Volume


@dataclass(frozen=True)
class ClassifierInput:
    """Grid and normalisation of a classifier's images.

    The scan is stretched to the grid regardless of its voxel size, as in the source, so crop it to
    the object of interest first.

    Attributes:
        size: Grid (d, h, w), voxels.
        channels: Channels of the network; a grey image is repeated.
        normalization: Intensity normalisation, by default the percentiles 0.5 and 99.5 to 0..1.
        factor: Intensity factor at inference; 0.5 after training with random factors from 0 to 1.

    Source:
        PUMIT, section "Classification Experiments" and Table 5; Yang et al., MedMNIST v2, 2023.
    """

    size: tuple[int, int, int]
    channels: int
    normalization: Normalization = field(default_factory=Normalization)
    orientation: Orientation = "anatomical"
    factor: float = 1.0

    @staticmethod
    def from_recipe(recipe: Mapping[str, Any]) -> ClassifierInput:
        """Read `input` of a model's recipe, as written by `as_recipe`.

        Raises:
            CheckpointError: If something is missing or invalid.
        """
        try:
            row = recipe["input"]
            d, h, w = (int(n) for n in row["size"])
            channels, factor = int(row["channels"]), float(row.get("factor", 1.0))
            orientation = row.get("orientation", "anatomical")
            intensity = row["intensity"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                "The model's recipe does not describe the classifier's input "
                f"({type(error).__name__}: {error}); train or fetch it again."
            ) from None
        is_usable = min(d, h, w, channels) >= 1 and math.isfinite(factor)
        if not is_usable or orientation not in get_args(Orientation):
            raise CheckpointError(
                f"The classifier's input cannot be used: size {d} x {h} x {w}, {channels} "
                f"channels, factor {factor}, orientation {orientation!r}."
            )
        return ClassifierInput(
            (d, h, w),
            channels,
            Normalization.from_recipe(intensity),
            cast(Orientation, orientation),
            factor,
        )

    def as_recipe(self) -> dict[str, Any]:
        """Return JSON values for `input` of a model's recipe."""
        scaling = self.normalization
        return {
            "size": list(self.size),
            "channels": self.channels,
            "intensity": {
                "method": scaling.method,
                "source": list(scaling.source),
                "target": list(scaling.target),
                "above_minimum": scaling.above_minimum,
            },
            "orientation": self.orientation,
            "factor": self.factor,
        }

    def prepare(self, volume: Volume) -> Tensor:
        """Resample and normalise a volume, without applying `factor`.

        Returns:
            float32, (channels, *size), or (1, *size) if all channels are equal.

        Raises:
            VolumeError: If the number of channels is neither the network's nor that of a grey or
                colour image, or some voxels are not finite.
        """
        if volume.channels not in (1, self.channels) and not is_colour(volume):
            raise VolumeError(
                f"The image has {volume.channels} channels, but the classifier needs "
                f"{self.channels}."
            )
        axes = NetworkAxes.of(volume, self.orientation)
        sources = image_channels(volume, self.channels)
        if all(source is sources[0] for source in sources):
            sources = sources[:1]
        out = torch.empty((len(sources), *self.size))
        for i, source in enumerate(sources):
            scaling = self.normalization.scaling(source)
            view = axes.apply(source)
            if view.shape == self.size:
                x = torch.from_numpy(view.astype(np.float32, order="C"))  # always a copy
            else:
                x = resize(view, self.size)
            x = x.mul_(scaling.factor).add_(scaling.offset)
            out[i] = x.clamp_(*scaling.limits) if scaling.limits else x
        if not bool(out.isfinite().all()):
            raise VolumeError(
                "The image holds NaN or infinite voxels; repair it or export it again."
            )
        return out
