"""Plans whose steps cost what a test says, without a process that tries them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pumit.training.planning.estimate import Hardware
from pumit.training.planning.request import MemoryTooSmallError, Planned, PlanRequest
from pumit.training.planning.segmentation import plan_automatic
from pumit.training.recipes.presets import preset_for
from pumit.training.validate import read_segmentation

GIB = 1 << 30


class StandInTrial:
    """Answers as a trial does.

    Args:
        seconds_per_voxel: Of a step's patches.
        most_voxels: Of a step; more do not fit into the memory.
        peak_gib: What the process held.
        busy: Share of the time that other programs took.
    """

    def __init__(
        self,
        seconds_per_voxel: float = 4e-6,
        most_voxels: float = float("inf"),
        peak_gib: float = 1.0,
        busy: float = 0.0,
    ) -> None:
        self.seconds_per_voxel, self.most_voxels = seconds_per_voxel, most_voxels
        self.busy = busy
        self.peak = int(peak_gib * GIB)
        self.requests: list[dict[str, Any]] = []

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        plan = request["plan"]
        d, h, w = plan["patch_size"]
        voxels = d * h * w * plan["batch_size"]
        if voxels > self.most_voxels:
            raise MemoryTooSmallError("The memory is too small for this plan.")
        seconds = voxels * self.seconds_per_voxel
        return {
            "step": {"seconds": seconds, "steps": 5, "parameters": 10**6, "busy": self.busy},
            "window_seconds": seconds / 3,
            "preparing_seconds": 1e-6,
            "validation_seconds": 1e-6,
            "final_validation_seconds": 2e-6,
            "peak_bytes": self.peak,
            "process_bytes": self.peak,
            "starting": 4.0,
        }


def planned(
    folder: Path, trial: StandInTrial | None = None, *, preset: str = "quick", **given: Any
) -> Planned:
    """Plan for the labelled scans in a folder, on a machine with 8 GiB of free memory."""
    hardware = Hardware(2, 8 * GIB, torch.device("cpu"))
    resolve: Callable[[str], Path] = lambda text: folder / text  # noqa: E731
    given = {"data": {"folder": ".", "classes": {"ball": 1, "box": 2}}, **given}
    keys = {**given, "task": "segmentation"}
    request = PlanRequest(
        read_segmentation(keys, "recipe.yaml"),
        keys,
        "recipe.yaml",
        resolve,
        preset,
        preset_for(preset, "cpu"),
        hardware,
        1,
        trial or StandInTrial(),  # type: ignore[arg-type]
    )
    return plan_automatic(request)
