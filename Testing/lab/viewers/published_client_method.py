"""The published nnInteractive client on a PUMIT server, with the simulated user's interface.

For `score.py METHOD CASES_DIR` of the simulated user, as `published_client_method:PublishedClient`
with this folder on PYTHONPATH: the scores must equal those of the library. It starts one server on
loopback for all cases.
"""

import atexit
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from nnInteractive.inference.remote import nnInteractiveRemoteInferenceSession
from pumit.client import LocalWorker

Click = tuple[int, int, int, bool]
Corner = tuple[int, int, int]


class PublishedClient:
    """One scan in one session of the client.

    Args:
        image: Intensities, shape (D, H, W).
        spacing: Voxel size in array order, mm.
    """

    _worker: LocalWorker | None = None

    def __init__(self, image: npt.NDArray[np.float32], spacing: Sequence[float]) -> None:
        cls = type(self)
        if cls._worker is None:
            cls._worker = LocalWorker(device="cpu")
            cls._worker.start()
            atexit.register(cls._worker.close)
        worker = cls._worker
        self._session = nnInteractiveRemoteInferenceSession(worker.url, api_key=worker.token)
        self._session.set_image(image[None], {"spacing": list(spacing)})
        self._session.set_target_buffer(np.zeros(image.shape, np.uint8))
        self._clicks: list[Click] = []

    def predict(
        self, points: Sequence[Click], box: tuple[Corner, Corner] | None
    ) -> npt.NDArray[np.bool_]:
        """Return the mask after these clicks, or for this box (half-open corners)."""
        if box is not None or list(points[: len(self._clicks)]) != self._clicks:
            self._session.reset_interactions()
            self._clicks = []
        if box is not None:
            bounds = [list(span) for span in zip(*box, strict=True)]
            self._session.add_bbox_interaction(bounds, include_interaction=True)
        for *place, is_positive in points[len(self._clicks) :]:
            self._session.add_point_interaction(place, include_interaction=is_positive)
        self._clicks = list(points)
        mask = self._session.target_buffer != 0
        if box is not None:
            self._session.reset_interactions()
        return mask
