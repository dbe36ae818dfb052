"""JSON bodies of the nnInteractive protocol, version 2.6 (PyPI `nninteractive-client`).

Unlike PUMIT's own bodies these ignore unknown fields, which a newer client may send.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

# Far outside any grid; rounding still gives a valid integer.
_FAR = 2**31 - 1
Place = Annotated[float, Field(ge=-_FAR, le=_FAR, allow_inf_nan=False)]
Places = Annotated[list[Place], Field(min_length=3, max_length=3)]
Span = Annotated[list[Place], Field(min_length=2, max_length=2)]
Bounds = Annotated[list[Span], Field(min_length=3, max_length=3)]
WholeSpan = Annotated[
    list[Annotated[int, Field(ge=-_FAR, le=_FAR)]], Field(min_length=2, max_length=2)
]
WholeBounds = Annotated[list[WholeSpan], Field(min_length=3, max_length=3)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Interaction(_Body):
    """Keys of every prompt.

    `override_capability_checks` requests prompts that a model was not trained for. It has no
    effect: this server supports every prompt of the protocol.
    """

    include_interaction: bool
    run_prediction: bool = True
    override_capability_checks: bool = False


class PointInteraction(_Interaction):
    """A click on a voxel, in array order."""

    coordinates: Places


class BoxInteraction(_Interaction):
    """A box as half-open voxel ranges, in array order; a 2D box is one voxel thick."""

    bbox_coords: Bounds


class DrawnInteraction(_Interaction):
    """Metadata of a drawn mask: the part of the grid that it covers, by default all."""

    interaction_bbox: WholeBounds | None = None


class InitialSegmentation(_Body):
    """Metadata of an initial mask."""

    run_prediction: bool = False
    override_capability_checks: bool = False


class ImageMeta(_Body):
    """Metadata of an image; only `spacing` of its properties is used, mm in array order."""

    image_properties: dict[str, Any] | None = None


class TargetBuffer(_Body):
    """The client's target buffer: its grid, and an integer type or bool."""

    shape: Annotated[list[Annotated[int, Field(ge=1, le=_FAR)]], Field(min_length=3, max_length=3)]
    dtype: Annotated[str, Field(min_length=1, max_length=32)]


class AutoZoom(_Body):
    """Whether the field of view may grow beyond the prompt's surroundings."""

    do_autozoom: bool


class PredictPendingIn(_Body):
    """Request a prediction from prompts that were added without one."""

    force_full_refine: bool = False


class ImageOut(BaseModel):
    """Answer of `/set_image`."""

    original_image_shape: list[int]
