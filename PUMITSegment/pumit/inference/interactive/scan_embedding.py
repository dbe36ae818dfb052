"""Whole-scan embedding: a vector that is similar for similar scans."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pumit.inference.interactive.image_store import ImageStore
from pumit.inference.interactive.prompt_solver import PromptSolver
from pumit.inference.interactive.segmenter import Segmenter
from pumit.volume import Volume


def scan_embedding(segmenter: Segmenter, volume: Volume) -> npt.NDArray[np.float32]:
    """Embed a whole scan with the image encoder, averaged over positions.

    Returns:
        Mean of the transformer's features of the field that covers the scan, (dim,).

    Raises:
        VolumeError: If the scan has no contrast.
    """
    scan = ImageStore().open(volume, 0)
    try:
        solver = PromptSolver(segmenter, scan)
        middle = (np.asarray(solver.shape) - 1) / 2
        return solver.embedding(solver.planner.around_click(middle)[-1]).summary
    finally:
        scan.close()
