"""A whole image as a classifier sees it: one grid of fixed size, whatever the scan's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import numpy as np
import torch
from torch import Tensor

from pumit.errors import CheckpointError, VolumeError
from pumit.preprocessing.channels import image_channels
from pumit.preprocessing.network_axes import NetworkAxes, Orientation
from pumit.preprocessing.normalization import Normalization
from pumit.preprocessing.resize import resize
from pumit.volume import Volume

# Luminance is taken of colour images with these; any other number of channels must match.
COLOUR_CHANNELS = (3, 4)


@dataclass(frozen=True)
class ClassifierInput:
    """Grid and intensities of a classifier's images.

    The box of the scan is stretched to the grid without regard to its voxel size, as the source
    does: crop a scan to what is to be classified first.

    Attributes:
        size: Grid (d, h, w), voxels.
        channels: Channels of the network; a grey image stands for each of them.
        normalization: Scaling of intensities, by default to 0..1 between the percentiles
            0.5 and 99.5.
        orientation: Orientation of the axes, see `NetworkAxes.of`.
        factor: Factor of the scaled intensities when the network answers. 0.5
            after a training that multiplied them by a random number from 0 to 1.

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
        """Read `input` of a model's recipe, as `as_recipe` writes it.

        Raises:
            CheckpointError: If something is missing or cannot be used.
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
        """JSON values for `input` of a model's recipe."""
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
        """Scaled intensities on the classifier's grid, before `factor`.

        Returns:
            float32, (channels, *size), or (1, *size) where all channels are equal.

        Raises:
            VolumeError: If the volume has another number of channels than the network and is no
                grey or colour image.
        """
        if volume.channels not in (1, self.channels, *COLOUR_CHANNELS):
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
        return out
