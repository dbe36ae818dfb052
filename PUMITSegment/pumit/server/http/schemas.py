"""JSON bodies of the API, checked before anything else sees them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# A coordinate far outside any scan; a planar image's slice spacing is 1e8 mm.
_FAR_MM = 1e9
# No microscope's voxels are smaller than 1 nm; far below, arithmetic on them comes to no end.
SPACING_MM = (1e-6, _FAR_MM)
Coordinate = Annotated[float, Field(ge=-_FAR_MM, le=_FAR_MM, allow_inf_nan=False)]
Point = tuple[Coordinate, Coordinate, Coordinate]
VoxelSize = Annotated[float, Field(ge=SPACING_MM[0], le=SPACING_MM[1])]
Segment = Annotated[str, Field(min_length=1, max_length=256)]
Index = Annotated[int, Field(ge=0, le=2**31 - 1)]
Range = tuple[Index, Index]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PointIn(_Body):
    """A click, LPS mm."""

    kind: Literal["point"]
    point_lps: Point
    positive: bool = True


class BoxIn(_Body):
    """A box by its corners, LPS mm: eight, or four on one slice."""

    kind: Literal["box"]
    corners_lps: Annotated[list[Point], Field(min_length=4, max_length=8)]


class ScribbleIn(_Body):
    """A polyline, LPS mm."""

    kind: Literal["scribble"]
    points_lps: Annotated[list[Point], Field(min_length=1, max_length=20_000)]
    positive: bool = True


class MaskIn(_Body):
    """A mask prior by its hash, as `/mask_prior` answered it."""

    kind: Literal["mask"]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class AnswerIn(_Body):
    """The choice of another answer to the prompts before it, numbered from 1 by trust."""

    kind: Literal["answer"]
    number: Annotated[int, Field(ge=1, le=100, strict=True)]


AnyPrompt = PointIn | BoxIn | ScribbleIn | MaskIn | AnswerIn


class PredictIn(_Body):
    """A segment with all its prompts in order, and the number of uncertain regions to return."""

    segment: Segment = "1"
    prompts: list[Annotated[AnyPrompt, Field(discriminator="kind")]]
    places: Annotated[int, Field(ge=0, le=100)] = 0


class OptionalSegmentIn(_Body):
    """One segment, or all."""

    segment: Segment | None = None


ModelName = Annotated[str, Field(min_length=1, max_length=256)]


class AutomaticIn(_Body):
    """A model of `/capabilities`, and eight corners of a region, LPS mm, or none."""

    model: ModelName
    roi_corners_lps: Annotated[list[Point], Field(min_length=8, max_length=8)] | None = None


class FindIn(_Body):
    """A structure by its name; the best model that has it where none is named.

    `modality` is what made the scan, as DICOM writes it, where the client knows. With `only_check`
    nothing runs: the answer says what would. With `anyway` nothing is checked.
    """

    structure: Annotated[str, Field(min_length=1, max_length=1024)]
    model: ModelName | None = None
    modality: Annotated[str, Field(max_length=16)] = ""
    roi_corners_lps: Annotated[list[Point], Field(min_length=8, max_length=8)] | None = None
    only_check: bool = False
    anyway: bool = False


class ReconstructIn(_Body):
    """A tokenizer of `/capabilities`; the first one where it is left out."""

    model: ModelName | None = None


Share = Annotated[float, Field(ge=0, le=1)]


class ExportedSegment(_Body):
    """A mask by its hash, with a name, what it is (else by its name) and a colour."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    name: Annotated[str, Field(min_length=1, max_length=64)]
    terminology: Annotated[str, Field(max_length=1024)] = ""
    color_rgb: tuple[Share, Share, Share]


class ExportIn(_Body):
    """A format and the segments in their order; the model, where one found all of them itself."""

    format: Literal["nii.gz", "seg.nrrd", "dcm"]
    segments: Annotated[list[ExportedSegment], Field(min_length=1, max_length=64)]
    model: ModelName | None = None


class VolumeMeta(_Body):
    """Geometry of an uploaded volume, in `X-Meta`; as `pumit.Volume` has it."""

    spacing_mm: tuple[VoxelSize, VoxelSize, VoxelSize]
    origin_lps: Point = (0.0, 0.0, 0.0)
    direction: Annotated[list[Point], Field(min_length=3, max_length=3)] = [
        (1.0, 0.0, 0.0),
        (0.0, 1.0, 0.0),
        (0.0, 0.0, 1.0),
    ]
    channel: Index = 0


class MaskMeta(_Body):
    """Place of an uploaded mask, in `X-Meta`: half-open ranges along D, H and W."""

    bbox: tuple[Range, Range, Range]


class MaskOut(BaseModel):
    """Answer of `/mask_prior`: the hash by which prompts name the mask."""

    sha256: str


class ClaimOut(BaseModel):
    """Answer of `/claim`, as in the nnInteractive protocol."""

    lease_token: str
    idle_timeout_seconds: float
    liveness_timeout_seconds: float
    max_sessions: int


class CapabilitiesOut(BaseModel):
    """Answer of `/capabilities`: the nnInteractive protocol's fields, and ours under `pumit`.

    Of the protocol's own fields some speak of a network with one input channel for each kind of
    prompt; this server has none, and tells the protocol's usual numbers.
    """

    supported_interactions: dict[str, bool]
    channel_mapping: dict[str, int | list[int]]
    num_interaction_channels: int
    supports_initial_label: bool
    supports_zero_shot_label_refinement: bool
    preferred_scribble_thickness: list[int]
    interaction_decay: float | None
    patch_size: list[int] | None
    do_autozoom: bool
    inference_session_version: str
    license: str
    supports_undo: bool
    pumit: dict[str, Any]
