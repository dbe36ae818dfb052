"""Time nnFormer against MONAI's SwinUNETR, forward and backward, on a CPU.

python Testing/lab/speed/bench_nnformer.py [--threads 2] [--repeats 5] [--processor-time]

Run by hand. Both process the same patch in turns, so that other load slows both. Two ratios of
nnFormer over SwinUNETR are printed: time per voxel and time per parameter. "forward" is inference;
"step" is a forward and backward pass of training, for nnFormer with deep supervision. Ratios are
the median, smallest and largest over the turns.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from interleaved import Ratio, ratio, turns
from pumit.networks.build import build_network
from torch import Tensor, nn

Field = tuple[int, int, int]


@dataclass(frozen=True)
class Pair:
    """Two networks for the same patch and number of classes.

    Attributes:
        nnformer: Name of the nnFormer for `build_network`.
        feature_size: Feature size of the SwinUNETR.
        field: Patch, voxels (d, h, w).
    """

    nnformer: str
    feature_size: int
    field: Field


PAIRS = (
    Pair("nnformer_synapse", 48, (32, 64, 64)),
    Pair("nnformer_tumor", 48, (32, 64, 64)),
    Pair("nnformer_small", 24, (32, 64, 64)),
    Pair("nnformer_synapse", 48, (64, 64, 64)),
)
CLASSES = 14


def inference(network: nn.Module, x: Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.inference_mode():
            return network(x)

    return run


def step(network: nn.Module, x: Tensor) -> Callable[[], object]:
    options = {"deep_supervision": True} if hasattr(network, "heads") else {}

    def run() -> None:
        network.zero_grad()
        answer = network(x, **options)
        levels = answer if isinstance(answer, list) else [answer]
        torch.stack([level.square().mean() for level in levels]).sum().backward()

    return run


def networks(pair: Pair, channels: int) -> tuple[nn.Module, nn.Module]:
    sizes = {"in_channels": channels, "num_classes": CLASSES}
    ours = build_network(pair.nnformer, **sizes)
    theirs = build_network("swin_unetr", feature_size=pair.feature_size, **sizes)
    return ours, theirs.network  # MONAI's own class


def measure(pair: Pair, repeats: int, clock: Callable[[], float]) -> None:
    ours, theirs = networks(pair, channels=1)
    x = torch.randn(1, 1, *pair.field)
    seconds = turns(
        {
            "forward": inference(ours, x),
            "their forward": inference(theirs, x),
            "step": step(ours, x),
            "their step": step(theirs, x),
        },
        repeats,
        clock=clock,
    )
    million, their_million = (sum(p.numel() for p in n.parameters()) / 1e6 for n in (ours, theirs))
    size = " x ".join(map(str, pair.field))
    print(
        f"\n{pair.nnformer} ({million:.1f} M parameters) over SwinUNETR {pair.feature_size} "
        f"({their_million:.1f} M), {size} voxels"
    )
    kilovoxels = math.prod(pair.field) / 1000
    for what in ("forward", "step"):
        found = ratio(seconds[what], seconds[f"their {what}"])
        print(
            f"  {what:8} {found.seconds:7.2f} s against {found.reference_seconds:7.2f} s"
            f"   per voxel {shown(found)}   per parameter "
            f"{shown(found, factor=their_million / million)}   "
            f"{1e3 * found.seconds / kilovoxels:.1f} us a voxel",
            flush=True,
        )


def shown(found: Ratio, *, factor: float = 1.0) -> str:
    middle, low, high = (factor * n for n in (found.median, found.low, found.high))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processor-time", action="store_true", help="on a busy machine")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    clock = time.process_time if arguments.processor_time else time.perf_counter
    for pair in PAIRS:
        measure(pair, arguments.repeats, clock)


if __name__ == "__main__":
    main()
