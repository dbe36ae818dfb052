"""Prompt tokens in NumPy, equal to `PromptEncoder.sparse` of the network.

Padding tokens are left out: nothing attends to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pumit.inference.engine.engine import FieldPrompts, Floats
from pumit.inference.engine.prompt_maps import MapGrid, trilinear, voxel_index
from pumit.networks.promptable.constants import BOX_LOWER, BOX_UPPER, NEGATIVE, POSITIVE


class PromptTokens:
    """Conversion of prompts to tokens.

    Args:
        weights: Weights of the whole network, by name.
        field_size: In-plane voxels of a training field.
    """

    def __init__(self, weights: Mapping[str, Floats], field_size: int) -> None:
        self._frequencies = weights["prompt_encoder.frequencies"]
        self._kinds = weights["prompt_encoder.kinds.weight"]
        self._feature = weights["prompt_encoder.feature.weight"]
        self._feature_bias = weights["prompt_encoder.feature.bias"]
        self._class_feature = weights.get("prompt_encoder.class_feature.weight")
        self._class_bias = weights.get("prompt_encoder.class_feature.bias")
        self._own = np.concatenate(
            [weights[f"mask_decoder.{name}.weight"] for name in ("iou_token", "mask_tokens")]
        )
        self._scale = np.float32(2 * math.pi / field_size)

    def positional(self, places: npt.NDArray[np.floating]) -> Floats:
        """Return Fourier features (..., dim) of positions (..., 3) in in-plane voxels."""
        phase = (self._scale * places.astype(np.float32)) @ self._frequencies
        return np.concatenate((np.sin(phase), np.cos(phase)), axis=-1)

    def of_grid(self, grid: MapGrid, slice_ratio: float) -> Floats:
        """Return position codes of a grid's voxels in raster order, (d h w, dim)."""
        places = np.meshgrid(*grid.centres(slice_ratio), indexing="ij")
        return self.positional(np.stack(places, -1).reshape(-1, 3))

    def of(
        self,
        prompts: FieldPrompts,
        features: Floats,
        full: tuple[int, int, int],
        class_vectors: Floats | None = None,
    ) -> Floats:
        """Return the network's output tokens, then point tokens and box tokens, (T, dim).

        Args:
            features: The encoder's tokens, (dim, d, h, w).
            class_vectors: Class vectors at the points, (P, E); None for a network without them.
        """
        parts = [self._own]
        if len(prompts.points):
            seen = np.zeros((len(prompts.points), len(features)), dtype=np.float32)
            for i, index in enumerate(voxel_index(prompts.points, prompts.slice_ratio)):
                for (d, h, w), weight in trilinear(index, full, features.shape[1:]):
                    seen[i] += np.float32(weight) * features[:, d, h, w]
            kinds = self._kinds[np.where(prompts.is_positive, POSITIVE, NEGATIVE)]
            tokens = self.positional(prompts.points) + kinds
            tokens = tokens + seen @ self._feature.T + self._feature_bias
            if self._class_feature is not None and class_vectors is not None:
                tokens = tokens + class_vectors @ self._class_feature.T + self._class_bias
            parts.append(tokens)
        if prompts.box is not None:
            parts.append(self.positional(prompts.box) + self._kinds[[BOX_LOWER, BOX_UPPER]])
        return np.concatenate(parts)
