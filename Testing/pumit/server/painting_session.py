"""Stands in for nnInteractive's inference session: computes nothing, paints every interaction.

How large it paints depends on how many interactions came before, so that what was answered tells
whether all of them arrived, once and in their order.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from pumit.prompts import Point3, PointPrompt
from pumit.volume import Volume

SUPPORTED = {"points": True, "bbox2d": True, "bbox3d": False, "scribble": True, "lasso": True}


class PaintingSession:
    """What the published server calls of an inference session, and no more."""

    INFERENCE_SESSION_VERSION = "2.6.0"

    def __init__(self, *, do_autozoom: bool = True, enable_undo: bool = True, **_options: Any):
        self.supports_undo = enable_undo
        self.do_autozoom = do_autozoom
        self.torch_n_threads = 1
        self.executor = ThreadPoolExecutor(1)
        self.configuration_manager = None
        self.channel_mapping = {"prev_seg": 0, "points": (3, 4)}
        self.num_interaction_channels = 7
        self.supports_zero_shot_label_refinement = True
        self.interaction_decay = 0.98
        self.said: list[tuple[Any, ...]] = []
        self._reset_session()

    def initialize_from_loaded_artifacts(self, artifacts: dict[str, Any]) -> None:
        self.supported_interactions = {**SUPPORTED, **artifacts.get("supported", {})}
        self.supports_initial_label = artifacts.get("takes_mask", True)
        self.preferred_scribble_thickness = artifacts.get("thickness", [2, 2, 2])
        self.license = artifacts.get("license", "CC BY-NC-SA 4.0")
        self.gate: threading.Event = artifacts["gate"]
        artifacts["sessions"].append(self)

    def set_image(self, image: np.ndarray, properties: dict[str, Any]) -> None:
        self._reset_session()
        self.image, self.original_image_shape = image, image.shape

    def set_target_buffer(self, target: np.ndarray) -> None:
        self.target_buffer = target

    def reset_interactions(self) -> None:
        self.said.append(("reset",))
        self.present, self._before = 0, None
        self.target_buffer[:] = 0

    def undo(self) -> bool:
        self.said.append(("undo",))
        if self._before is None:
            return False
        self.target_buffer[:], self.present = self._before
        self._before = None
        self._last_paste_bbox = [[0, n] for n in self.target_buffer.shape]
        return True

    def add_point_interaction(self, *, coordinates: Any, **how: Any) -> None:
        reach = self._begin("point", tuple(coordinates), how)
        box = [[max(0, i - reach), min(n, i + reach + 1)] for i, n in self._sizes(coordinates)]
        self._paint(box, how)

    def add_bbox_interaction(self, *, bbox_coords: Any, **how: Any) -> None:
        if not self.supported_interactions["bbox3d"] and all(b - a > 1 for a, b in bbox_coords):
            raise ValueError("The box is 3D. This is not supported by the loaded model checkpoint.")
        self._begin("box", tuple(map(tuple, bbox_coords)), how)
        self._paint(bbox_coords, how)

    def add_scribble_interaction(
        self, drawn: np.ndarray, include_interaction: bool, *, interaction_bbox: Any, **how: Any
    ) -> None:
        how["include_interaction"] = include_interaction
        self._begin("scribble", tuple(map(tuple, interaction_bbox)), how)
        self._paint(interaction_bbox, how, drawn)

    def add_initial_seg_interaction(self, *, initial_seg: np.ndarray, **how: Any) -> None:
        self._begin("mask", int(initial_seg.sum()), {**how, "include_interaction": True})
        self.target_buffer[:] = initial_seg

    def _begin(self, kind: str, where: Any, how: dict[str, Any]) -> int:
        self.gate.wait(20)
        if where == (0, 0, 0):
            raise RuntimeError("out of memory")
        self._before = (self.target_buffer.copy(), self.present) if self.supports_undo else None
        self.said.append((kind, where, how["include_interaction"]))
        self.present += 1
        return (self.present - 1) % 3

    def _paint(self, box: Any, how: dict[str, Any], drawn: Any = 1) -> None:
        inside = self.target_buffer[tuple(slice(a, b) for a, b in box)]
        inside[np.broadcast_to(drawn, inside.shape) > 0] = how["include_interaction"]
        self._last_paste_bbox = [list(pair) for pair in box]

    def _sizes(self, place: Any) -> Any:
        return zip(place, self.target_buffer.shape, strict=True)

    def _clipped_last_paste_bbox(self) -> Any:
        return self._last_paste_bbox

    def _reset_session(self) -> None:
        self.target_buffer: Any = None
        self.image: Any = None
        self._before: Any = None
        self._last_paste_bbox: Any = None
        self.original_image_shape: Any = None
        self.present = 0

    def _finish_preprocessing_and_initialize_interactions(self) -> None:
        pass


def at(volume: Volume, *index: float) -> Point3:
    """Where a voxel lies, LPS mm."""
    left, posterior, superior = volume.index_to_world(index).tolist()
    return (left, posterior, superior)


def point(volume: Volume, *index: float, positive: bool = True) -> PointPrompt:
    """A click on a voxel."""
    return PointPrompt(at(volume, *index), positive)


def painted(volume: Volume, *points: tuple[tuple[int, ...], bool]) -> np.ndarray:
    """What the stand-in paints for points that nothing comes between."""
    gate = threading.Event()
    gate.set()
    alone = PaintingSession()
    alone.initialize_from_loaded_artifacts({"gate": gate, "sessions": []})
    alone.set_image(volume.array[None], {})
    alone.set_target_buffer(np.zeros(volume.shape, dtype=np.uint8))
    for place, is_positive in points:
        alone.add_point_interaction(coordinates=place, include_interaction=is_positive)
    return alone.target_buffer.astype(bool)
