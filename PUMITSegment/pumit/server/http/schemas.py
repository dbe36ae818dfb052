"""JSON bodies of the API."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pumit.wire import protocol

# A coordinate far outside any scan; a planar image's slice spacing is 1e8 mm.
_FAR_MM = 1e9
# Smallest: 1 nm, below any microscope's voxels; far smaller spacings make computations endless.
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
    """A mask prior by the hash that `/mask_prior` returned."""

    kind: Literal["mask"]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class AnswerIn(_Body):
    """Choice among the candidate masks for the preceding prompts; 1 is the most trusted."""

    kind: Literal["answer"]
    number: Annotated[int, Field(ge=1, le=100, strict=True)]


AnyPrompt = PointIn | BoxIn | ScribbleIn | MaskIn | AnswerIn


class PredictIn(_Body):
    """A segment, all its prompts in order, and the number of uncertain regions to return."""

    segment: Segment = "1"
    prompts: list[Annotated[AnyPrompt, Field(discriminator="kind")]]
    places: Annotated[int, Field(ge=0, le=100)] = 0


ModelName = Annotated[str, Field(min_length=1, max_length=256)]


class AutomaticIn(_Body):
    """A model of `/capabilities`, and optionally the eight corners of a region, LPS mm."""

    model: ModelName
    roi_corners_lps: Annotated[list[Point], Field(min_length=8, max_length=8)] | None = None


class FindIn(_Body):
    """A structure by name; without `model` the best one that has the structure is used.

    `modality` is the scan's, as a DICOM code, if the client knows it. With `only_check` no model
    runs: the answer says which would. With `anyway` nothing is checked.
    """

    structure: Annotated[str, Field(min_length=1, max_length=1024)]
    model: ModelName | None = None
    modality: Annotated[str, Field(max_length=16)] = ""
    roi_corners_lps: Annotated[list[Point], Field(min_length=8, max_length=8)] | None = None
    only_check: bool = False
    anyway: bool = False


class ReconstructIn(_Body):
    """A tokenizer of `/capabilities`; by default the first one."""

    model: ModelName | None = None


Share = Annotated[float, Field(ge=0, le=1)]


class ExportedSegment(_Body):
    """A mask by its hash, with name, colour and terminology (by default that of the name)."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    name: Annotated[str, Field(min_length=1, max_length=64)]
    terminology: Annotated[str, Field(max_length=1024)] = ""
    color_rgb: tuple[Share, Share, Share]


class ExportIn(_Body):
    """A format and the segments in order; `model` if an automatic model made all of them."""

    format: Literal["nii.gz", "seg.nrrd", "dcm"]
    segments: Annotated[list[ExportedSegment], Field(min_length=1, max_length=64)]
    model: ModelName | None = None


class VolumeMeta(_Body):
    """Geometry of an uploaded volume, in `X-Meta`; as in `pumit.Volume`."""

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
    """Answer of `/mask_prior`: the hash that identifies the mask in prompts."""

    sha256: str


class ClaimOut(BaseModel):
    """Answer of `/claim`, as in the nnInteractive protocol."""

    lease_token: str
    idle_timeout_seconds: float
    liveness_timeout_seconds: float
    max_sessions: int


class CapabilitiesOut(BaseModel):
    """Answer of `/capabilities`: the nnInteractive protocol's fields, and PUMIT's under `pumit`.

    Some of the protocol's fields describe a network with one input channel per kind of prompt.
    This server has no such channels and reports the protocol's usual values.
    """

    supported_interactions: dict[str, bool] = dict.fromkeys(
        ("points", "bbox2d", "bbox3d", "scribble", "lasso"), True
    )
    channel_mapping: dict[str, int | list[int]] = {
        "prev_seg": 0,
        "bbox2d": [1, 2],
        "bbox3d": [1, 2],
        "lasso": [1, 2],
        "points": [3, 4],
        "scribble": [5, 6],
    }
    num_interaction_channels: int = 7
    supports_initial_label: bool = True
    supports_zero_shot_label_refinement: bool = True
    # The server uses only the centre line of a stroke.
    preferred_scribble_thickness: list[int] = [2, 2, 2]
    interaction_decay: float | None = None
    patch_size: list[int] | None = None
    do_autozoom: bool = True
    inference_session_version: str = protocol.NNINTERACTIVE_VERSION
    license: str
    supports_undo: bool = True
    pumit: dict[str, Any]
