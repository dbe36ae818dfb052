"""PyTorch engine: any device, any sizes, also for networks in training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from pumit.inference.engine.engine import FieldPrompts, Floats, R, Shape, T
from pumit.inference.engine.side_by_side import SideBySide
from pumit.inference.loading import computing_in
from pumit.networks.promptable.constants import NEGATIVE, NO_LABEL, POSITIVE
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy


@dataclass(frozen=True)
class TorchFeatures:
    """Features of a field on the network's device."""

    embedding: ImageEmbedding

    @property
    def nbytes(self) -> int:
        """Memory used, bytes; tensors that share memory count once."""
        tensors = [v for v in vars(self.embedding).values() if isinstance(v, torch.Tensor)]
        storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in tensors)}
        return sum(storages.values())

    @property
    def summary(self) -> Floats:
        """Mean of the transformer's features, (dim,)."""
        return self.embedding.tokens[0].float().mean((1, 2, 3)).cpu().numpy()


class TorchEngine:
    """Engine with PyTorch.

    Args:
        network: Network in evaluation mode on its device.
    """

    name = "torch"

    def __init__(
        self, network: PromptableNetwork, device: torch.device, precision: torch.dtype
    ) -> None:
        self.network = network
        self.torch_device = device
        self.precision = precision
        self._side_by_side = SideBySide()

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply a function to fields; see `Engine`."""
        if self.torch_device.type != "cpu":
            return [work(item) for item in items]
        return self._side_by_side.map(work, items)

    @property
    def device(self) -> str:
        """Device as text, such as `cpu` or `cuda:0`."""
        return str(self.torch_device)

    @property
    def field_size(self) -> int:
        """In-plane voxels of a training field."""
        return self.network.field_size

    def prepare(self, grids: Iterable[tuple[int, Shape]]) -> None:
        """Do nothing: PyTorch needs no compilation; see `Engine`."""

    def rest(self) -> None:
        """Do nothing: only the weights are held; see `Engine`."""

    @torch.inference_mode()
    def encode(self, image: Floats, *, da0: int, slice_ratio: float) -> TorchFeatures:
        """Encode a field; see `Engine`."""
        channels = torch.from_numpy(image)[None].to(self.torch_device)
        with computing_in(self.precision, self.torch_device):
            return TorchFeatures(self.network.embed(channels, Anisotropy(da0)))

    @torch.inference_mode()
    def decode(self, features: TorchFeatures, prompts: FieldPrompts) -> tuple[Floats, Floats]:
        """Decode prompts; see `Engine`."""
        batch = prompt_batch(prompts, tuple(features.embedding.image.shape[2:]))
        moved = PromptBatch(**{k: v.to(self.torch_device) for k, v in vars(batch).items()})
        with computing_in(self.precision, self.torch_device):
            logits, iou = self.network.decode(features.embedding, moved)
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
