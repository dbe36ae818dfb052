"""SAM with BA-SAM's attention as a promptable model: loading and slice-wise inference."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from pumit.errors import CheckpointError, PumitError
from pumit.geometry import window_of
from pumit.inference.interactive.grid_transfer import LogitBox, enclosing, filled
from pumit.inference.interactive.image_store import OpenScan
from pumit.inference.interactive.index_prompts import IndexPrompts, is_same_box
from pumit.inference.interactive.solver_state import SolverState
from pumit.inference.loading import pick_device
from pumit.models.checkpoint import Checkpoint, ModelHeader, fingerprint, load_checkpoint
from pumit.models.sam_file import MISSING, PUBLIC_FILE, is_sam_file, read_sam_file
from pumit.networks.build import build_network
from pumit.preprocessing.channels import is_colour
from pumit.preprocessing.sam_slice import display_window, inner_size, slice_pixels
from pumit.system.watch import UNWATCHED, Watch

KEPT_SLICES = 32  # cached slice embeddings, 4 MiB each at 1024 pixels
OUTSIDE = -10.0
_EPSILON = 1e-6


@dataclass
class SamEngine:
    """SAM as the engine of a `Segmenter`; `field_size` is the longer side of its input, pixels."""

    network: Any
    device: str
    field_size: int
    name: str = "torch"

    def rest(self) -> None:
        """Do nothing: only the weights are held; see `Engine`."""


def load_sam(
    path: Path, device: str = "auto", *, size: int | None = None
) -> tuple[SamEngine, Checkpoint]:
    """Load SAM from a public file, or from a checkpoint converted from one.

    Args:
        path: A `.pth` file of segment-anything or MedSAM, a folder of the transformers package, or
            a checkpoint with the network `sam`.
        size: Pixels of the longer side of the encoder's input, a multiple of its patch size; None
            for its training size.

    Raises:
        CheckpointError: If it cannot be read, holds another network, or transformers is not
            installed.
        PumitError: If the size or the device cannot be used.
    """
    if is_sam_file(path):
        read = read_sam_file(path)
        if read is None:
            raise CheckpointError(
                f"{path.name} holds no promptable network; give {PUBLIC_FILE}, or a model of "
                "`pumit models list`."
            )
        checkpoint = Checkpoint(read[1], read[0], fingerprint(read[1]))
    else:
        checkpoint = load_checkpoint(path)
    header = ModelHeader.of(checkpoint.recipe)
    try:
        network: Any = build_network(header.network, **header.sizes)
    except ImportError:
        raise CheckpointError(MISSING) from None
    try:
        network.load_state_dict({k: v.float() for k, v in checkpoint.state.items()})
    except RuntimeError:
        raise CheckpointError(
            f"The weights in {path.name} do not fit the network it names; fetch the model again."
        ) from None
    patch = header.sizes.get("patch", 16)
    trained = header.sizes.get("image_size", 1024)
    size = trained if size is None else size
    if size < patch or size % patch:
        raise PumitError(f"--size must be a multiple of {patch}, such as {trained}; got {size}.")
    place = pick_device(device)
    return SamEngine(network.eval().to(place), str(place), size), checkpoint


class SamSolver:
    """Solver that converts prompts on one volume to masks, slice by slice.

    A click segments its own slice. A box segments every slice that it crosses; clicks correct the
    slice they are on. A mask prompt acts as its bounding box on each slice. Colour is kept.
    """

    def __init__(self, engine: SamEngine, scan: OpenScan) -> None:
        self.engine = engine
        volume = scan.volume
        if is_colour(volume):
            self._pixels = volume.array.transpose(0, *(1 + axis for axis in scan.order))
        else:
            self._pixels = np.asarray(scan.pyramid.array)[None]
        d, h, w = self._pixels.shape[1:]
        self.shape = (d, h, w)
        self._window = display_window(self._pixels)
        self._embeddings: OrderedDict[int, Tensor] = OrderedDict()

    def warm_up(self) -> None:
        """Do nothing: the slice to segment is not known yet."""

    def answer(
        self, prompts: IndexPrompts, before: SolverState | None, watch: Watch = UNWATCHED
    ) -> SolverState:
        """Answer prompts; slices without new prompts keep the answer of `before`.

        Raises:
            Cancelled: If the caller cancelled it.
        """
        boxes = self._boxes(prompts)
        depths = sorted(boxes.keys() | {_slice_of(point) for point in prompts.points})
        kept: dict[int, npt.NDArray[np.float32]] = {}
        known = before.num_points if before is not None else 0
        if before is not None and is_same_box(prompts.box, before.box) and prompts.mask is None:
            touched = {_slice_of(point) for point in prompts.points[known:]}
            kept = _planes(before, self.shape, [n for n in depths if n not in touched])
        logits, overlaps = {}, []
        for depth in depths:
            watch.check()
            if depth in kept:
                logits[depth] = kept[depth]
                continue
            points = [point for point in prompts.points if _slice_of(point) == depth]
            found = self._answer_slice(depth, boxes.get(depth), points)
            if found is not None:
                logits[depth] = found[0]
                overlaps.append(found[1])
        iou = float(np.mean(overlaps)) if overlaps else before.iou if before is not None else 0.0
        patch = _patch(logits)
        return SolverState(patch=patch, iou=iou, box=prompts.box, num_points=len(prompts.points))

    def _boxes(self, prompts: IndexPrompts) -> dict[int, tuple[float, float, float, float]]:
        """Return left, top, right and bottom on each slice, continuous indices."""
        if prompts.mask is not None:
            boxes = {}
            for depth in np.flatnonzero(prompts.mask.any((1, 2))).tolist():
                window = window_of(prompts.mask[depth])
                assert window is not None
                (top, bottom), (left, right) = ((s.start - 0.5, s.stop - 0.5) for s in window)
                boxes[depth] = (left, top, right, bottom)
            return boxes
        if prompts.box is None:
            return {}
        low, high = prompts.box
        first = max(int(np.ceil(low[0] - 0.5 - _EPSILON)), 0)
        last = min(int(np.floor(high[0] + 0.5 + _EPSILON)), self.shape[0] - 1)
        box = (float(low[2]), float(low[1]), float(high[2]), float(high[1]))
        return dict.fromkeys(range(first, last + 1), box)

    def _answer_slice(
        self,
        depth: int,
        box: tuple[float, float, float, float] | None,
        points: list[tuple[float, float, float, bool]],
    ) -> tuple[npt.NDArray[np.float32], float] | None:
        """Return logits (H, W) and estimated IoU of a slice; None without box or positive click."""
        if box is None and not any(is_positive for *_, is_positive in points):
            return None
        network, size = self.engine.network, self.engine.field_size
        places = [(w, h, is_positive) for _, h, w, is_positive in points]
        with torch.inference_mode():
            embedding = self._embedding(depth)
            masks, overlaps = answer_slice(network, embedding, self.shape[1:], size, box, places)
            best = int(overlaps.argmax())
            return masks[best].cpu().numpy(), float(overlaps[best])

    def _embedding(self, depth: int) -> Tensor:
        """Return the embedding of a slice, from the cache if it is there."""
        if depth in self._embeddings:
            self._embeddings.move_to_end(depth)
            return self._embeddings[depth]
        network, size = self.engine.network, self.engine.field_size
        device = next(network.parameters()).device
        pixels = slice_pixels(self._pixels[:, depth], self._window, size)
        found: Tensor = network.embed(pixels.to(device))
        self._embeddings[depth] = found
        if len(self._embeddings) > KEPT_SLICES:
            self._embeddings.popitem(last=False)
        return found


def answer_slice(
    network: Any,
    embedding: Tensor,
    shape: tuple[int, int],
    size: int,
    box: tuple[float, float, float, float] | None,
    points: Sequence[tuple[float, float, bool]],
) -> tuple[Tensor, Tensor]:
    """Decode the prompts of one slice; differentiable.

    Args:
        embedding: Embedding of the slice, (1, width, size / patch, size / patch).
        shape: Rows and columns of the slice.
        size: Pixels of the longer side of the encoder's input.
        box: Left, top, right and bottom, continuous indices.
        points: Column, row, and whether the point is positive.

    Returns:
        Logits (masks, rows, columns), several only for a single point, and their estimated IoU
        (masks,).
    """
    factor = size / max(shape)
    rows, columns = inner_size(shape, size)

    def seen(pairs: Any) -> Tensor:
        # Continuous index i is at (i + 0.5) * factor - 0.5 in the resized image.
        places = torch.tensor(pairs, dtype=torch.float32, device=embedding.device)
        return (places + 0.5) * factor - 0.5

    inputs: dict[str, Any] = {"multimask_output": box is None and len(points) == 1}
    if box is not None:
        inputs["input_boxes"] = seen(box)[None, None]
    if points:
        inputs["input_points"] = seen([place[:2] for place in points])[None, None]
        labels = [int(is_positive) for *_, is_positive in points]
        inputs["input_labels"] = torch.tensor(labels, device=embedding.device)[None, None]
    masks, overlaps = network(embedding, **inputs)
    logits = masks[:, 0].float()  # (1, masks, size / 4, size / 4)
    logits = interpolate(logits, size=(size, size), mode="bilinear", align_corners=False)
    logits = logits[..., :rows, :columns]
    logits = interpolate(logits, size=shape, mode="bilinear", align_corners=False)
    return logits[0], overlaps[0, 0].float()


def _slice_of(point: tuple[float, float, float, bool]) -> int:
    return round(point[0])


def _planes(
    state: SolverState, shape: tuple[int, int, int], depths: list[int]
) -> dict[int, npt.NDArray[np.float32]]:
    """Return the logits (H, W) of an answer on the given slices, by slice."""
    planes = {depth: np.full(shape[1:], OUTSIDE, np.float32) for depth in depths}
    if state.patch is not None:
        slices, rows, columns = state.patch.window
        for depth in depths:
            if slices.start <= depth < slices.stop:
                planes[depth][rows, columns] = state.patch.logits[depth - slices.start]
    return planes


def _patch(planes: dict[int, npt.NDArray[np.float32]]) -> LogitBox | None:
    """Return the answer of all slices, cropped to its foreground; None if there is none."""
    windows = {depth: window_of(plane > 0) for depth, plane in planes.items()}
    boxes = {
        depth: (slice(depth, depth + 1), *window) for depth, window in windows.items() if window
    }
    if not boxes:
        return None
    patch = filled(enclosing(boxes.values()), OUTSIDE)
    slices, rows, columns = patch.window
    for depth in boxes:
        patch.logits[depth - slices.start] = planes[depth][rows, columns]
    return patch
