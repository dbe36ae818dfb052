"""PyTorch engine: any device, any sizes, also for networks in training.

On CPUs several fields are computed in parallel, one thread each.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import torch

from pumit.inference.engine.engine import FieldPrompts, Floats, R, Shape, T, map_in
from pumit.inference.loading import computing_in, pick_precision
from pumit.networks.promptable.constants import NEGATIVE, NO_LABEL, POSITIVE
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy


class SideBySide:
    """Thread pool that computes as many fields in parallel as PyTorch has threads.

    Operations on one field are small and gain little from several threads. On two cores, a first
    click on a CT took 1.5 s with two threads per field, and 1.0 s with two fields in parallel.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0
        self._lock = Lock()

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply a function to each item; see `map_in`."""
        threads = torch.get_num_threads()
        if min(threads, len(items)) < 2:
            return [work(item) for item in items]
        with self._lock:  # one answer at a time
            return map_in(self._pool_of(threads), work, items)

    def _pool_of(self, threads: int) -> ThreadPoolExecutor:
        """Return the thread pool, recreated if the number of threads has changed."""
        if self._pool is None or self._size != threads:
            if self._pool is not None:
                self._pool.shutdown()
            barrier = Barrier(threads)
            self._pool = ThreadPoolExecutor(threads, "pumit-field", _compute_alone)
            for started in [self._pool.submit(barrier.wait) for _ in range(threads)]:
                started.result()
            # The setting applies to the calling thread and to threads started later: restore it.
            torch.set_num_threads(threads)
            self._size = threads
        return self._pool


def _compute_alone() -> None:
    torch.set_num_threads(1)
    torch.get_num_threads()  # until its first call, a thread adopts the number last set by any


class TorchEngine:
    """Engine with PyTorch.

    Args:
        precision: None for single precision on a GPU, where fields are too small for half precision
            to gain: on an H200 autocast takes longer than it saves. Else as `pick_precision`.
    """

    name = "torch"

    def __init__(
        self,
        network: PromptableNetwork,
        device: torch.device,
        precision: torch.dtype | None = None,
    ) -> None:
        self.network = network
        self.torch_device, self.device = device, str(device)
        self.field_size = network.field_size
        is_small = precision is None and device.type == "cuda"
        self.precision = torch.float32 if is_small else precision or pick_precision(device)
        self._side_by_side = SideBySide()

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply a function to fields; see `Engine`."""
        if self.torch_device.type != "cpu":
            return [work(item) for item in items]
        return self._side_by_side.map(work, items)

    def prepare(self, grids: Iterable[tuple[int, Shape]]) -> None:
        """Do nothing: PyTorch needs no compilation; see `Engine`."""

    def rest(self) -> None:
        """Do nothing: only the weights are held; see `Engine`."""

    @torch.inference_mode()
    def encode(self, image: Floats, *, da0: int, slice_ratio: float) -> ImageEmbedding:
        """Encode a field; see `Engine`."""
        channels = torch.from_numpy(image)[None].to(self.torch_device)
        with computing_in(self.precision, self.torch_device):
            return self.network.embed(channels, Anisotropy(da0))

    @torch.inference_mode()
    def decode(self, features: ImageEmbedding, prompts: FieldPrompts) -> tuple[Floats, Floats]:
        """Decode prompts; see `Engine`."""
        batch = prompt_batch(prompts, tuple(features.image.shape[2:]))
        moved = PromptBatch(**{k: v.to(self.torch_device) for k, v in vars(batch).items()})
        with computing_in(self.precision, self.torch_device):
            logits, iou = self.network.decode(features, moved)
        return logits[0].float().cpu().numpy(), iou[0].float().cpu().numpy()


def prompt_batch(prompts: FieldPrompts, shape: tuple[int, ...]) -> PromptBatch:
    """Convert the prompts of one field of shape (D, H, W) to a batch of one."""
    count = len(prompts.points)
    points = torch.zeros(1, max(1, count), 3)
    labels = torch.full((1, max(1, count)), NO_LABEL, dtype=torch.long)
    if count:
        points[0] = torch.from_numpy(prompts.points)
        labels[0] = torch.where(torch.from_numpy(prompts.is_positive), POSITIVE, NEGATIVE)
    boxes, prior = torch.zeros(1, 2, 3), torch.zeros(1, 1, *shape)
    if prompts.box is not None:
        boxes[0] = torch.from_numpy(prompts.box)
    if prompts.prior is not None:
        prior[0, 0] = torch.from_numpy(prompts.prior)
    return PromptBatch(
        points,
        labels,
        boxes,
        torch.tensor([prompts.box is not None]),
        prior,
        torch.tensor([prompts.prior is not None]),
        torch.tensor([prompts.slice_ratio], dtype=torch.float32),
    )
