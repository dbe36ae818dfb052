"""JSON of the nnInteractive protocol, version 2.6 (PyPI `nninteractive-client`).

Unlike our own bodies these let unknown fields pass: a newer client of the protocol may send more.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

# Far outside any grid, and still a whole number after rounding.
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

    `override_capability_checks` asks to try what a model was not trained for; there is nothing of
    the protocol that this server refuses for that reason.
    """

    include_interaction: bool
    run_prediction: bool = True
    override_capability_checks: bool = False


class PointInteraction(_Interaction):
    """A click on a voxel, in array order."""

    coordinates: Places


class BoxInteraction(_Interaction):
    """A box by half-open voxel ranges, in array order; one voxel thick it is a 2D box."""

    bbox_coords: Bounds


class DrawnInteraction(_Interaction):
    """Beside a drawn mask: which part of the grid it covers, the whole where left out."""

    interaction_bbox: WholeBounds | None = None


class InitialSegmentation(_Body):
    """Beside a mask to continue from."""

    run_prediction: bool = False
    override_capability_checks: bool = False


class ImageMeta(_Body):
    """Beside an image; of its properties only `spacing` is used, mm in array order."""

    image_properties: dict[str, Any] | None = None


class TargetBuffer(_Body):
    """Where the client writes answers: a grid, and a type of whole numbers or bool."""

    shape: Annotated[list[Annotated[int, Field(ge=1, le=_FAR)]], Field(min_length=3, max_length=3)]
    dtype: Annotated[str, Field(min_length=1, max_length=32)]


class AutoZoom(_Body):
    """Whether the field may grow beyond the prompt's surroundings."""

    do_autozoom: bool


class PredictPendingIn(_Body):
    """Ask for the answer to what was added without one."""

    force_full_refine: bool = False


class ImageOut(BaseModel):
    """Answer of `/set_image`."""

    original_image_shape: list[int]
