"""Activation checkpointing and sharding (FSDP) of a network's repeated blocks.

Everything outside the blocks (patch embedding, heads, a convolutional decoder) is smaller than the
blocks of a large transformer. It stays whole in every process, so that a task may call any part.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pumit.errors import PumitError
from pumit.training.loop.distributed import world

TOO_OLD = "parallel: fsdp needs PyTorch 2.7 or newer; use ddp."


def repeated_blocks(network: nn.Module) -> list[nn.Module]:
    """Return the members of every module list named `blocks`, without nested ones."""
    found: list[nn.Module] = []
    for name, child in network.named_children():
        if name == "blocks" and isinstance(child, nn.ModuleList):
            found += list(child)
        else:
            found += repeated_blocks(child)
    return found


@contextmanager
def recomputed(network: nn.Module, *, enabled: bool) -> Iterator[None]:
    """Recompute the network's blocks in the backward pass; raises PumitError if it has none."""
    blocks = _blocks(network, "activation_checkpointing") if enabled else []
    for block in blocks:
        block.forward = _again(block.forward)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward  # restores the method of the class


def _again(forward: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run


def shard(network: nn.Module, device: torch.device, *, in_half: bool) -> None:
    """Shard the matrices of every block over the processes; each is gathered only while in use.

    With `in_half`, blocks are gathered in bfloat16. Otherwise autocast's copies of all weights
    would be kept until the backward pass.

    Raises:
        PumitError: If there is only one process, no block, or PyTorch is too old.

    Source:
        Zhao et al., PyTorch FSDP, VLDB 2023; torch's `fully_shard`.
    """
    if world() == 1:
        raise PumitError("parallel: fsdp needs several processes; start with torchrun, or use ddp.")
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:
        raise PumitError(TOO_OLD) from None
    if "ignored_params" not in signature(fully_shard).parameters:
        raise PumitError(TOO_OLD)
    mesh = init_device_mesh(device.type, (world(),))
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if in_half else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    for block in _blocks(network, "parallel: fsdp"):
        # Vectors stay whole: norms are computed in single precision, and vectors are small.
        vectors = {p for p in block.parameters() if p.ndim <= 1}
        # Each block is its own FSDP root, because tasks call parts of a network separately.
        fully_shard(
            block, mesh=mesh, reshard_after_forward=True, mp_policy=policy, ignored_params=vectors
        )


def _blocks(network: nn.Module, method: str) -> list[nn.Module]:
    blocks = repeated_blocks(network)
    if not blocks:
        raise PumitError(f"{method} works on a network's blocks, and this network has none.")
    return blocks


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process holds only a shard of a tensor."""
    return hasattr(tensor, "full_tensor")


def local_shard(tensor: Tensor) -> Tensor:
    """Return this process's shard of a tensor, which can be modified in place."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def gather(tensor: Tensor) -> Tensor:
    """Gather a tensor from all processes; every process must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def sharded_like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """Move a whole tensor to the device of `pattern`, and shard it likewise."""
    tensor = tensor.to(pattern.device)
    if not is_sharded(pattern):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(pattern, DTensor)
    return distribute_tensor(tensor, pattern.device_mesh, pattern.placements, src_data_rank=None)


@torch.no_grad()
def clip_gradients(network: nn.Module, largest: float) -> Tensor:
    """Clip the gradients to a maximum norm (0: no limit), and return the norm before clipping."""
    limit = largest if largest > 0 else float("inf")
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    shares = [local_shard(g) for g in gradients if is_sharded(g)]
    if not shares:
        return nn.utils.clip_grad_norm_(network.parameters(), limit)
    square = torch.stack([s.float().square().sum() for s in shares]).sum()
    dist.all_reduce(square)
    rest = [g for g in gradients if not is_sharded(g)]
    if rest:
        square += torch.stack([g.float().square().sum() for g in rest]).sum()
    norm = square.sqrt()
    torch._foreach_mul_(shares + rest, (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm
