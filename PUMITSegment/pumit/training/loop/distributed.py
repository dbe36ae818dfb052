"""Data-parallel training in several processes: same weights, mean gradients, joint decisions.

Gradients are averaged by all-reduce after the backward pass, not by `DistributedDataParallel`. DDP
wraps one forward call of the whole network, but tasks call its parts separately: the encoder once,
the decoder per correction, a discriminator twice, some without gradients. The overlap of
computation and communication that DDP offers would save little of a step on volumes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pumit.errors import TrainingError

T = TypeVar("T", bound=Tensor)
BUCKET = 2**23  # elements per all-reduce or broadcast
LONGEST_WAIT = timedelta(days=2)  # timeout of the others while the first validates or saves


def rank() -> int:
    """Return the rank of this process."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def start_processes(threads: int, device: torch.device) -> torch.device:
    """Set up threads, device and process group; return the device.

    With more processes than GPUs, several share one. This helps if a step consists of thousands of
    small operations, which one process cannot launch as fast as a GPU computes them.
    """
    torch.set_num_threads(threads)
    is_one_of_several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    is_shared = False
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32 on tensor cores for float32 operations
        count = torch.cuda.device_count()
        is_shared = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > count
        if device.index is None:
            index = int(os.environ.get("LOCAL_RANK", "0")) % count if is_one_of_several else 0
            device = torch.device("cuda", index)
        torch.cuda.set_device(device)
    if is_one_of_several and not dist.is_initialized():
        # NCCL does not support two processes on one GPU; Gloo communicates through the CPU.
        dist.init_process_group("gloo" if device.type != "cuda" or is_shared else "nccl")
    return device


def world() -> int:
    """Return the number of training processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


@torch.no_grad()
def broadcast_weights(network: nn.Module) -> None:
    """Broadcast parameters and buffers of the first process to all."""
    if world() > 1:
        for tensor in [*network.parameters(), *network.buffers()]:
            dist.broadcast(tensor.data, 0)


@torch.no_grad()
def average_gradients(parameters: Iterable[nn.Parameter], rank_sync: RankSync) -> None:
    """Average the gradients over all processes, in place.

    A parameter that some processes did not use counts as zero there. A parameter that no process
    used keeps no gradient, as in a run of one process.
    """
    if world() == 1:
        return
    trained = [p for p in parameters if p.requires_grad]
    used = rank_sync.any_of([p.grad is not None for p in trained])
    chosen = [p for p, is_used in zip(trained, used, strict=True) if is_used]
    for bucket in _buckets(chosen):
        flat = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in bucket]
        )
        dist.all_reduce(flat)
        flat /= world()
        parts = torch.split(flat, [p.numel() for p in bucket])
        for p, part in zip(bucket, parts, strict=True):
            p.grad = part.view_as(p).clone()


@torch.no_grad()
def broadcast_buffers(network: nn.Module) -> None:
    """Broadcast the buffers of the first process, such as running means, to all.

    Otherwise a run resumed from the first process's checkpoint would not continue identically.
    """
    if world() == 1:
        return
    kept = network.state_dict(keep_vars=True)
    buffers = [buffer for name, buffer in network.named_buffers() if name in kept]
    for bucket in _buckets(sorted(buffers, key=lambda b: str(b.dtype))):
        flat = torch.cat([b.reshape(-1) for b in bucket])
        dist.broadcast(flat, 0)
        for b, part in zip(bucket, torch.split(flat, [b.numel() for b in bucket]), strict=True):
            b.copy_(part.view_as(b))


def _buckets(tensors: Iterable[T]) -> Iterable[list[T]]:
    """Group adjacent tensors of one dtype into buckets of up to `BUCKET` elements."""
    bucket: list[T] = []
    for tensor in tensors:
        size = sum(other.numel() for other in bucket) + tensor.numel()
        if bucket and (size > BUCKET or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def largest(values: Tensor) -> list[float]:
    """Return the element-wise maximum over all processes; synchronises with the GPU once."""
    if world() > 1:
        dist.all_reduce(values, dist.ReduceOp.MAX)
    return [float(v) for v in values.tolist()]


def total(values: Sequence[float], device: torch.device) -> list[float]:
    """Return the element-wise sum over all processes."""
    if world() == 1:
        return list(values)
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return [float(v) for v in sums.tolist()]


class RankSync:
    """Communication between processes on the CPU, in a separate process group.

    The gradients' group times out after minutes and, on a GPU, waits for all queued work.
    """

    def __init__(self) -> None:
        self.group = dist.new_group(backend="gloo", timeout=LONGEST_WAIT) if world() > 1 else None

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        """Return the element-wise logical or over all processes."""
        if self.group is None or not flags:
            return list(flags)
        votes = torch.tensor(flags, dtype=torch.uint8)
        dist.all_reduce(votes, dist.ReduceOp.MAX, self.group)
        return [bool(t) for t in votes.tolist()]

    def run_on_first(self, work: Callable[[], object]) -> None:
        """Run a function in the first process, while the others wait.

        Raises:
            TrainingError: In the other processes, if the function failed.
        """
        failed = torch.ones(1)
        try:
            if rank() == 0:
                work()
            failed.zero_()
        finally:
            if self.group is not None:
                dist.all_reduce(failed, dist.ReduceOp.MAX, self.group)
        if failed.item():
            raise TrainingError("The first process stopped; its message says why.")
