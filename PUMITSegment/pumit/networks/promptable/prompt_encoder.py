"""Prompt encoder: prompts as tokens and as maps on the image grid."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.promptable.constants import (
    BOX_LOWER,
    BOX_SHARPNESS,
    BOX_UPPER,
    CLASS_MAPS,
    FAR_SHARE,
    GEODESIC_CHANNELS,
    LIKENESS_BINS,
    LIKENESS_WIDTH,
    NEAR_VOXELS,
    NEGATIVE,
    POSITIVE,
)
from pumit.networks.promptable.geodesic import distance_to, nearness, path_costs
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.layers import pooled


@dataclass
class PromptBatch:
    """Prompts of a batch of fields, in field coordinates.

    The unit of all three coordinates is one in-plane voxel; the origin is the centre of the field's
    first voxel. Neighbouring slices are `slice_ratio` apart.

    Attributes:
        points: (B, P, 3), (z, h, w).
        labels: (B, P) long: `POSITIVE`, `NEGATIVE`, or `NO_LABEL` for padding.
        boxes: (B, 2, 3), lower and upper corner.
        has_box: (B,) bool.
        prior: (B, 1, D, H, W) foreground probability of the previous answer; zeros without one.
        has_prior: (B,) bool.
        slice_ratio: (B,) slice spacing over in-plane spacing; 0 for a planar image, which ignores
            depth.
    """

    points: Tensor
    labels: Tensor
    boxes: Tensor
    has_box: Tensor
    prior: Tensor
    has_prior: Tensor
    slice_ratio: Tensor


def _everywhere(flags: Tensor) -> Tensor:
    """Reshape one number per image (B,) to be combined with maps (B, d, h, w)."""
    return flags[:, None, None, None]


def _voxels(places: Tensor, slice_ratio: Tensor) -> Tensor:
    """Convert places (B, P, 3) from in-plane voxels to voxels; a planar image has no depth."""
    scale = torch.ones(len(places), 1, 3, device=places.device)
    scale[:, 0, 0] = torch.where(slice_ratio > 0, slice_ratio, torch.inf)
    return places / scale


def _inside_and_around(margin: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Return which cells are in a box, and in a shell of half its size around it, (B, d, h, w)."""
    extent = (boxes[:, 1] - boxes[:, 0])[:, 1:].amax(-1)
    inside = (margin > -0.5).float()
    return inside, (margin > -0.5 - 0.5 * _everywhere(extent)).float() - inside


def box_likeness(image: Tensor, margin: Tensor, prompts: PromptBatch) -> list[Tensor]:
    """Return how much more often an intensity occurs inside a box than around it.

    Replaces the likeness to clicked intensities if there is a box but no positive click. The value
    is 2 P(inside | intensity) - 1, from the histograms inside and around the box, at least 0.

    Args:
        image: Shape (B, C, d, h, w), values in [0, 1].
        margin: Distance to the faces of the box, positive inside, in-plane voxels, (B, d, h, w).

    Returns:
        Per channel a map (B, d, h, w) in [0, 1]; 0 where it does not apply.
    """
    applies = prompts.has_box & ~(prompts.labels == POSITIVE).any(1)
    if not bool(applies.any()):
        return [torch.zeros_like(margin) for _ in range(image.shape[1])]
    inside, around = (m.flatten(1) for m in _inside_and_around(margin, prompts.boxes))
    # A box that fills the field has nothing around it to compare with.
    applies = applies & (around.sum(1) > 8) & (inside.sum(1) > 0)
    maps = []
    for c in range(image.shape[1]):
        index = (image[:, c] * (LIKENESS_BINS - 1)).round().long().flatten(1)
        shares = []
        for weight in (inside, around):
            counts = torch.zeros(len(image), LIKENESS_BINS, device=image.device)
            counts = counts.scatter_add(1, index, weight)
            counts = F.avg_pool1d(counts[:, None], 3, 1, 1, count_include_pad=False)[:, 0]
            shares.append(counts / counts.sum(1, keepdim=True).clamp_min(1e-6))
        ratio = (2 * shares[0] / (shares[0] + shares[1]).clamp_min(1e-6) - 1).clamp_min(0)
        maps.append(ratio.gather(1, index).view_as(margin) * _everywhere(applies))
    return maps


def _running_minimum(x: Tensor, dim: int) -> Tensor:
    """Return the running minimum along a dimension.

    On GPUs by shifts of doubling length: `cummin` is slower, as it also finds indices.
    """
    if not x.is_cuda:
        return x.cummin(dim).values
    step, n = 1, x.shape[dim]
    while step < n:
        shifted = torch.minimum(x.narrow(dim, step, n - step), x.narrow(dim, 0, n - step))
        x = torch.cat((x.narrow(dim, 0, step), shifted), dim)
        step *= 2
    return x


class PromptEncoder(nn.Module):
    """Encoder of points, boxes and a prior mask.

    Tokens as in SAM: Fourier features of the position plus a learned vector per kind, and in
    addition the image feature at the point. Maps, at 1/2 resolution: nearness to positive and
    negative points, likeness to the clicked intensities, the box, the prior mask, and geodesic
    distances to foreground and background seeds.

    Args:
        field_size: In-plane voxels of a training field; positions are scaled by it.
        class_channels: Channels of the class vectors, 0 for none.

    Source:
        Kirillov et al., Segment Anything, 2023, section "Prompt encoder".
    """

    frequencies: Tensor

    def __init__(
        self,
        dim: int,
        field_size: int,
        image_channels: int,
        *,
        geodesic: bool = False,
        class_channels: int = 0,
    ) -> None:
        super().__init__()
        self.field_size = field_size
        self.geodesic = geodesic
        self.image_channels = image_channels
        generator = torch.Generator().manual_seed(0)
        self.register_buffer(
            "frequencies", torch.randn(3, dim // 2, generator=generator), persistent=True
        )
        self.kinds = nn.Embedding(4, dim)
        self.no_point = nn.Parameter(torch.zeros(dim))
        self.feature = nn.Linear(dim, dim)
        self.class_feature = nn.Linear(class_channels, dim) if class_channels else None
        if self.class_feature is not None:
            nn.init.zeros_(self.class_feature.weight)
            nn.init.zeros_(self.class_feature.bias)

    @property
    def dense_channels(self) -> int:
        """Channels of the maps of `dense`."""
        own = 7 + 2 * self.image_channels + (GEODESIC_CHANNELS if self.geodesic else 0)
        return own + (0 if self.class_feature is None else CLASS_MAPS)

    @property
    def shown_channels(self) -> int:
        """Channels of the maps of `shown` plus the prior."""
        if not self.geodesic:
            return 0
        return GEODESIC_CHANNELS + 4 + (0 if self.class_feature is None else CLASS_MAPS)

    def positional(self, positions: Tensor) -> Tensor:
        """Return Fourier features (..., dim) of positions (..., 3) in in-plane voxels."""
        scaled = (2 * math.pi / self.field_size) * positions
        phase = scaled.to(self.frequencies.dtype) @ self.frequencies
        return torch.cat((phase.sin(), phase.cos()), dim=-1)

    def grid_positions(
        self, shape: torch.Size | tuple[int, ...], embedding: ImageEmbedding, slice_ratio: Tensor
    ) -> Tensor:
        """Return the cell centres of a feature grid, (B, d, h, w, 3), in in-plane voxels."""
        axes = [
            (torch.arange(n, device=slice_ratio.device) + 0.5) * (m / n) - 0.5
            for n, m in zip(shape, embedding.image.shape[2:], strict=True)
        ]
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
        scale = torch.ones(len(slice_ratio), 3, device=slice_ratio.device)
        scale[:, 0] = slice_ratio
        return grid[None] * _everywhere(scale)

    def _sample_at(
        self, feature: Tensor, prompts: PromptBatch, embedding: ImageEmbedding
    ) -> Tensor:
        """Sample (B, C, d, h, w) at the points by trilinear interpolation, (B, P, C)."""
        size = torch.tensor(embedding.image.shape[2:], device=feature.device)
        normal = (_voxels(prompts.points, prompts.slice_ratio) + 0.5) / size * 2 - 1
        grid = normal.flip(-1)[:, :, None, None].to(feature.dtype)  # (x, y, z) order
        out = F.grid_sample(feature, grid, padding_mode="border", align_corners=False)
        return out[..., 0, 0].transpose(1, 2)

    def sparse(self, prompts: PromptBatch, embedding: ImageEmbedding) -> tuple[Tensor, Tensor]:
        """Return prompt tokens (B, P + 2, dim) and their padding mask (B, P + 2)."""
        known = prompts.labels >= 0
        points = self.positional(prompts.points) + self.kinds(prompts.labels.clamp_min(0))
        points = points + self.feature(
            self._sample_at(embedding.tokens.float(), prompts, embedding)
        )
        if self.class_feature is not None and embedding.classes is not None:
            classes = self._sample_at(embedding.classes.detach(), prompts, embedding)
            points = points + self.class_feature(classes)
        points = torch.where(known[..., None], points, self.no_point.expand_as(points))
        corner_kinds = torch.tensor([BOX_LOWER, BOX_UPPER], device=points.device)
        corners = self.positional(prompts.boxes) + self.kinds(corner_kinds)
        padding = torch.cat((~known, ~prompts.has_box[:, None].expand(-1, 2)), dim=1)
        return torch.cat((points, corners), dim=1), padding

    def dense(self, prompts: PromptBatch, embedding: ImageEmbedding) -> Tensor:
        """Return prompt maps on the grid of `embedding.half`, (B, dense_channels, d, h, w)."""
        d, h, w = embedding.half.shape[2:]
        shape = (d, h, w)
        # 1. Image (B, C, d, h, w) and voxel positions on the grid of the maps.
        image = pooled(embedding.image[:, : self.image_channels].float(), shape)
        grid = self.grid_positions(shape, embedding, prompts.slice_ratio)
        # 2. Intensities at the points, from a smoothed image.
        kernel = (3 if shape[0] > 2 else 1, 3, 3)
        smooth = F.avg_pool3d(
            image, kernel, 1, tuple(k // 2 for k in kernel), count_include_pad=False
        )
        at_points = self._sample_at(smooth, prompts, embedding)  # (B, P, C)
        # 3. Positive, then negative points: short-range and long-range nearness, likeness. All
        #    points at once, (B, P, d, h, w): a loop would launch hundreds of GPU kernels.
        maps = []
        distance = (grid[:, None] - prompts.points[:, :, None, None, None]).square().sum(-1).sqrt()
        near = torch.exp(-0.5 * (distance / NEAR_VOXELS).square())
        far = torch.exp(-distance / (FAR_SHARE * self.field_size))
        difference = image[:, None] - at_points[..., None, None, None]  # (B, P, C, d, h, w)
        alike = torch.exp(-(difference / LIKENESS_WIDTH).square())
        for label in (POSITIVE, NEGATIVE):
            chosen = (prompts.labels == label).float()[..., None, None, None]
            maps += [(chosen * m).amax(1) for m in (near, far, *alike.unbind(2))]
        # 4. Box: saturating signed distance to its faces, intensity likeness, and presence.
        lower, upper = prompts.boxes[:, :, None, None, None].unbind(1)
        faces = torch.minimum(grid - lower, upper - grid)
        planar = _everywhere(prompts.slice_ratio == 0)
        faces[..., 0] = torch.where(planar, 1e3, faces[..., 0])
        margin = faces.amin(-1)
        for c, of_box in enumerate(box_likeness(image, margin, prompts), start=2):
            maps[c] = torch.maximum(maps[c], of_box)
        has_box = _everywhere(prompts.has_box)
        maps.append(torch.tanh(margin * (BOX_SHARPNESS / self.field_size)) * has_box)
        maps.append(has_box.expand_as(margin).to(margin.dtype))
        # 5. Prior mask, -1 to 1.
        prior = pooled(prompts.prior.float(), shape)[:, 0]
        maps.append((2 * prior - 1) * _everywhere(prompts.has_prior))
        # 6. Geodesic maps and class maps.
        if self.geodesic:
            maps += self._geodesic(prompts, image, embedding)
        if self.class_feature is not None:
            maps += self._class_maps(prompts, margin, embedding)
        return torch.stack(maps, dim=1)

    def _class_maps(
        self, prompts: PromptBatch, margin: Tensor, embedding: ImageEmbedding
    ) -> list[Tensor]:
        """Return cosines with the class vectors at positive and negative points, and a box map.

        The box map is the product of each voxel's class vector with the difference between the mean
        vectors inside and around the box.
        """
        assert embedding.classes is not None
        # Detached: the gradients of all voxels would accumulate in the vector of a point. The class
        # loss trains the vectors.
        classes = embedding.classes.detach().float()  # (B, E, d, h, w)
        at_points = F.normalize(self._sample_at(classes, prompts, embedding), dim=-1)  # (B, P, E)
        cosines = torch.einsum("bpe,bedhw->bpdhw", at_points, classes)
        maps = []
        for label in (POSITIVE, NEGATIVE):
            chosen = (prompts.labels == label)[..., None, None, None]  # (B, P, 1, 1, 1)
            best = cosines.masked_fill(~chosen, -1).amax(1)
            maps.append(best * chosen.any(1))
        means = [
            torch.einsum("bdhw,bedhw->be", w, classes)
            / w.flatten(1).sum(1, keepdim=True).clamp_min(1)
            for w in _inside_and_around(margin, prompts.boxes)
        ]
        difference = torch.einsum("be,bedhw->bdhw", means[0] - means[1], classes)
        return [*maps, difference * _everywhere(prompts.has_box)]

    def shown(self, dense: Tensor) -> Tensor:
        """Return the shown maps, which feed the output layers directly, as does the prior.

        A thresholded geodesic distance or class likeness is already a usable mask and need not be
        learned through coarse features.

        Args:
            dense: Prompt maps, see `dense`.

        Returns:
            Shape (B, shown_channels - 1, d, h, w): geodesic maps, nearness to positive and to
            negative points, box, class maps.
        """
        each = 2 + self.image_channels  # maps per kind of point
        end = dense.shape[1] - (0 if self.class_feature is None else CLASS_MAPS)
        geodesic = dense[:, end - GEODESIC_CHANNELS : end]
        return torch.cat((geodesic, dense[:, : 2 * each + 1 : each], dense[:, end:]), dim=1)

    def signed_prior(self, prompts: PromptBatch) -> Tensor:
        """Return the prior scaled to -1..1, (B, 1, D, H, W); 0 without one.

        The output mostly repeats the previous answer, except where a click corrects it.
        """
        return (2 * prompts.prior - 1) * prompts.has_prior[:, None, None, None, None]

    def _geodesic(
        self, prompts: PromptBatch, image: Tensor, embedding: ImageEmbedding
    ) -> list[Tensor]:
        """Return geodesic maps on the grid of `image`; outside a box counts as negative."""
        shape, full = image.shape[2:], embedding.image.shape[2:]
        device = image.device
        cell = torch.tensor([m / n for m, n in zip(full, shape, strict=True)], device=device)

        def cells(places: Tensor) -> Tensor:
            """Convert places to cells of this grid, the first one's centre at 0."""
            return (_voxels(places, prompts.slice_ratio) + 0.5) / cell - 0.5

        last = torch.tensor(shape, device=device) - 1
        at = cells(prompts.points).round().long().clamp_min(0).minimum(last)  # (B, P, 3)
        seeds = torch.zeros(2, len(image), *shape, dtype=torch.bool, device=device)
        for seed, label in zip(seeds, (POSITIVE, NEGATIVE), strict=True):
            b, p = torch.nonzero(prompts.labels == label, as_tuple=True)
            d, h, w = at[b, p].unbind(-1)
            seed[b, d, h, w] = True
        lower, upper = cells(prompts.boxes).unbind(1)
        for axis, n in enumerate(shape):
            if n == 1:
                continue
            place = torch.arange(n, device=device)
            beyond = (place < lower[:, axis, None] - 0.5) | (place > upper[:, axis, None] + 0.5)
            outside = beyond & prompts.has_box[:, None]
            seeds[1] |= outside.view(-1, *(n if a == axis else 1 for a in range(3)))
        depth = prompts.slice_ratio * cell[0] / cell[1]
        along = [path.repeat(2, 1, 1, 1) for path in path_costs(image, _everywhere(depth), torch)]
        near, far = distance_to(seeds.flatten(0, 1), along, _running_minimum, torch).chunk(2)
        has_near, has_far = (_everywhere(seed.flatten(1).any(1)).to(image.dtype) for seed in seeds)
        maps = [m * has_near for m in nearness(near, torch)]
        maps += [m * has_far for m in nearness(far, torch)]
        return [*maps, (far - near) / (far + near).clamp_min(1e-3) * has_near * has_far]
