"""What the server needs of the library: a model that opens sessions. Tests put a fake here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pumit.prompts import Prompt
from pumit.volume import Volume


@dataclass(frozen=True)
class ModelInfo:
    """What `/capabilities` tells about the model.

    Attributes:
        name: The model's name in its index, or its checkpoint's; never a path.
        version: The model's own version.
        sha256: Checksum of the weights.
        device: Where it computes, such as `cpu` or `cuda:0`.
    """

    name: str
    version: str
    sha256: str
    device: str


class PromptSession(Protocol):
    """One volume and its prompts, as `pumit.InteractiveSession` has them."""

    def set_volume(self, volume: Volume, *, channel: int = 0) -> None:
        """Start on a volume, or on one channel of it; earlier prompts are gone."""

    def add_prompt(self, prompt: Prompt, segment: str = "1") -> None:
        """Add a prompt to a segment."""

    def remove_prompt(self, position: int, segment: str = "1") -> None:
        """Remove one prompt of a segment by its place."""

    def keep_prompts(self, count: int, segment: str = "1") -> None:
        """Keep the first prompts of a segment; the others and all history are gone."""

    @property
    def segments(self) -> list[str]:
        """Names of the segments that have prompts."""

    def prompts(self, segment: str = "1") -> list[Prompt]:
        """Prompts of a segment in the order they were given."""

    def predict(
        self,
        segment: str = "1",
        *,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Mask of a segment, (D, H, W), on the volume's own grid."""

    def estimated_iou(self, segment: str = "1") -> float:
        """The model's own estimate of the IoU of its last answer, 0 to 1."""

    def undo(self) -> bool:
        """Take back the last change; False where there is none."""

    def redo(self) -> bool:
        """Repeat what was taken back; False where there is nothing."""

    def reset(self, segment: str | None = None) -> None:
        """Remove the prompts of one segment, or of all."""


class Engine(Protocol):
    """A loaded model, shared by all sessions."""

    @property
    def info(self) -> ModelInfo:
        """Name, version, checksum and device of the model."""

    def open_session(self) -> PromptSession:
        """A new session on this model."""


class SegmenterEngine:
    """The engine of the library itself.

    Args:
        model: A name from the model index, or a checkpoint file.
        device: `auto`, `cpu`, `cuda`, ...

    Raises:
        CheckpointError: If the model cannot be used.
    """

    def __init__(self, model: str = "default", *, device: str = "auto") -> None:
        import pumit

        # The library's classes are looked up when they are first used: torch loads here.
        self._segmenter: Any = pumit.load_segmenter(model, device=device)
        self._open: Callable[[Any], PromptSession] = pumit.InteractiveSession

    @property
    def info(self) -> ModelInfo:
        """Name, version, checksum and device of the model."""
        segmenter = self._segmenter
        return ModelInfo(
            str(segmenter.name),
            str(segmenter.version),
            str(segmenter.sha256),
            str(segmenter.device),
        )

    def open_session(self) -> PromptSession:
        """A new `pumit.InteractiveSession` on this model."""
        return self._open(self._segmenter)


def memory_in_use() -> dict[str, int | None]:
    """Memory of this process and of its accelerator, bytes; None where it cannot be asked.

    Returns:
        `process_peak_bytes`, `device_free_bytes` and `device_total_bytes`.
    """
    memory: dict[str, int | None] = {
        "process_peak_bytes": None,
        "device_free_bytes": None,
        "device_total_bytes": None,
    }
    if sys.platform != "win32":
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        memory["process_peak_bytes"] = peak if sys.platform == "darwin" else peak * 1024
    torch = sys.modules.get("torch")  # the model has loaded it, or there is nothing to ask
    if torch is not None and torch.cuda.is_available():
        memory["device_free_bytes"], memory["device_total_bytes"] = torch.cuda.mem_get_info()
    return memory


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on the processor or on an accelerator."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
