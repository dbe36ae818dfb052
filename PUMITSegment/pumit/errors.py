"""What a user can repair: every error here ends as one line, never as a traceback.

`PumitError` is a `ValueError`, so a caller who knows nothing of this package can still catch it.
"""


class PumitError(ValueError):
    """Something the user can repair; the message says what is wrong and what to do."""


class VolumeError(PumitError):
    """An image that cannot be read, or whose geometry or voxels cannot be used."""


class AmbiguousSeriesError(VolumeError):
    """A folder or zip holds several image series and none was chosen.

    Attributes:
        series: (SeriesInstanceUID, description without patient data) for each candidate.
    """

    def __init__(self, message: str, series: list[tuple[str, str]]) -> None:
        super().__init__(message)
        self.series = series


class PromptError(PumitError):
    """A prompt that cannot be used: outside the volume, empty, or only negative ones."""


class StructureError(PumitError):
    """A structure that is a class of no model, or of none that suits this scan."""


class ConsentNeeded(StructureError):
    """A structure that only models have whose licence is not accepted yet."""


class OtherModality(StructureError):
    """A structure that only models have that were trained on another modality than the scan's."""


class UnknownModality(StructureError):
    """A structure that models of several modalities have, in a scan that does not say its own."""


class UnfamiliarScan(StructureError):
    """A scan that looks like none that the program knows, so that a model may well be wrong."""


class CheckpointError(PumitError):
    """A checkpoint that is damaged, of another network, or not a safetensors file."""


class ExportError(PumitError):
    """A result that cannot be written: nothing to write, no source series, or a full target."""


class DiskFullError(ExportError):
    """A result for which the disk, or the user's share of it, has no room."""


class TrainingError(PumitError):
    """Training that cannot continue: loss or gradients that are not finite, or processes apart."""


class ServiceError(PumitError):
    """A worker or a remote machine that cannot be reached, refused, or ended."""


class Cancelled(PumitError):
    """The user cancelled; nothing was changed."""
