"""Exceptions for errors that the user can fix, reported as one line without a traceback.

`PumitError` is a `ValueError`, so that callers can catch it without importing this package.
"""

from collections.abc import Iterable


class PumitError(ValueError):
    """An error that the user can fix; the message says what is wrong and what to do."""


class VolumeError(PumitError):
    """An image that cannot be read, or whose geometry or voxels cannot be used."""


class AmbiguousSeriesError(VolumeError):
    """A folder or zip with several image series of which none was chosen.

    Attributes:
        series: (SeriesInstanceUID, description without patient data) for each candidate.
    """

    def __init__(self, message: str, series: list[tuple[str, str]]) -> None:
        super().__init__(message)
        self.series = series


class OtherPatientError(VolumeError):
    """A label for which DICOM states another patient than for its image."""


class PromptError(PumitError):
    """A prompt that cannot be used: outside the volume, empty, or only negative prompts."""


class StructureError(PumitError):
    """A structure that no model has as a class, or no model that suits this scan.

    Attributes:
        near: Similar names that models have.
    """

    def __init__(self, message: str, near: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.near = tuple(near)


class ConsentNeeded(StructureError):
    """A structure known only to models whose licence is not accepted yet."""


class OtherModality(StructureError):
    """A structure known only to models trained on a modality other than the scan's."""


class UnknownModality(StructureError):
    """A structure known to models of certain modalities, in a scan of unknown modality."""


class UnfamiliarScan(StructureError):
    """A scan unlike the known ones, for which a model is probably wrong."""


class CheckpointError(PumitError):
    """A checkpoint that is damaged, of another network, or not a safetensors file."""


class ExportError(PumitError):
    """A result that cannot be written: nothing to write, no source series, or a full target."""


class DiskFullError(ExportError):
    """A result that does not fit on the disk or within the user's quota."""


class TrainingError(PumitError):
    """Training that cannot continue: non-finite loss or gradients, or processes out of sync."""


class ServiceError(PumitError):
    """A worker or remote machine that is unreachable, refused the request, or terminated."""


class Cancelled(PumitError):
    """The user cancelled; nothing was changed."""
