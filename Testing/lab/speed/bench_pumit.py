"""Time PUMIT's networks against reference networks.

python Testing/lab/speed/bench_pumit.py [layers] [encoder] [field] [gpu] [--threads 1 2]
    [--repeats 7] [--degrees 0 2 5] [--tokens 256 500 1024] [--blocks 12]

layers   adaptive convolutions against plain ones of the same reduced kernel
encoder  the universal ViT-B against MONAI's ViT of the same width and depth, on the same tokens
field    one 96^3 field through the segmentation networks against MONAI's SwinUNETR
gpu      the ViT-B's tokens per second against the matrix peak of the card

Run by hand. Every ratio compares two measurements taken in turns in one run, as median and range
over the turns. One thread is timed by CPU time, several by wall time. Networks have random weights.
"training" is a forward and a backward pass without an optimiser step.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from interleaved import SHORTEST_SAMPLE_S, Ratio, ratio, turns
from pumit.networks.build import build_network
from pumit.networks.pumit import Anisotropy, SACConv, SACDownsample, SACUpsample
from torch import Tensor, nn

Layer = SACConv | SACDownsample | SACUpsample
LAYER_TARGET = 1.05
ENCODER_TARGET = 1.0
FIELD_TARGET = 1 / 5
GRIDS = {
    256: (4, 8, 8),
    500: (5, 10, 10),
    1024: (4, 16, 16),
}  # patches of an image, by their number


@dataclass(frozen=True)
class LayerCase:
    """A layer at its position in the published networks.

    Attributes:
        where: Name of the position.
        layer: The layer.
        level: Number of in-plane downsamplings before it.
        depth: Slices of an isotropic input at full resolution.
        width: In-plane size of the layer's input.
    """

    where: str
    layer: Layer
    level: int
    depth: int
    width: int

    def input_at(self, da0: int, batch: int) -> Tensor:
        """Return an input of a degree of anisotropy; only features, not images, need gradients."""
        depth = 1 if da0 == 5 else max(self.depth >> max(da0, self.level), 1)
        shape = batch, self.layer.in_channels, depth, self.width, self.width
        return torch.randn(shape, requires_grad=self.level > 0)


def layer_cases() -> list[LayerCase]:
    return [
        LayerCase("tokenizer, image", SACDownsample(3, 128, 2), 0, 64, 128),
        LayerCase("tokenizer, down", SACDownsample(128, 256, 1), 2, 64, 32),
        LayerCase("tokenizer, down", SACDownsample(256, 512, 1), 3, 64, 16),
        LayerCase("tokenizer, 3^3", SACConv(512, 512), 4, 64, 8),
        LayerCase("tokenizer, up", SACUpsample(512, 256, 1), 4, 64, 8),
        LayerCase("tokenizer, 3^3", SACConv(128, 128), 2, 64, 32),
        LayerCase("tokenizer, last", SACUpsample(128, 3, 2), 2, 64, 32),
        LayerCase("ViT, patches", SACDownsample(3, 768, 4), 0, 80, 160),
    ]


def plain_layer(layer: Layer, anisotropy: Anisotropy) -> nn.Module:
    """Return torch's layer with the reduced kernel of the adaptive one."""
    kernel: tuple[int, ...] = tuple(layer.kernel_size)
    stride, padding = tuple(layer.stride), tuple(layer.padding)
    if isinstance(layer, SACConv):
        if anisotropy.pending:
            kernel, padding = (1, 3, 3), (0, 1, 1)
    elif isinstance(layer, SACDownsample):
        kernel = stride = (anisotropy.depth_stride(layer.k), *kernel[1:])
    else:
        kernel = stride = (min(2**anisotropy.depth_halvings, kernel[0]), *kernel[1:])
    kind = nn.ConvTranspose3d if isinstance(layer, SACUpsample) else nn.Conv3d
    plain = kind(layer.in_channels, layer.out_channels, kernel, stride, padding)
    with torch.no_grad():
        groups = layer.weight.unflatten(2, (kernel[0], -1))
        plain.weight.copy_(groups.sum(3))
        plain.bias.copy_(layer.bias)
    return plain


def training_step(network: nn.Module, forward: Callable[[], Tensor]) -> Callable[[], None]:
    """Return a forward and a backward pass with cleared gradients."""

    def step() -> None:
        network.zero_grad()
        forward().sum().backward()

    return step


def without_gradients(forward: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return a forward pass in inference mode."""

    def predict() -> Tensor:
        with torch.inference_mode():
            return forward()

    return predict


def timed(
    functions: dict[str, Callable[[], object]], repeats: int, *, shortest_s: float = 0.0
) -> dict[str, list[float]]:
    """Run `turns`, with CPU time for one thread, which other programs affect less."""
    is_alone = torch.get_num_threads() == 1
    clock = time.process_time if is_alone else time.perf_counter
    return turns(functions, repeats, shortest_s=shortest_s, clock=clock)


def report(what: str, found: Ratio, target: float) -> None:
    verdict = "" if found.median <= target else f"  MISSED ({target:g})"
    print(
        f"{what:58} {found.seconds * 1e3:9.2f} ms / {found.reference_seconds * 1e3:9.2f} ms = "
        f"{found.median:6.3f} ({found.low:.3f} to {found.high:.3f}){verdict}",
        flush=True,
    )


def bench_layers(options: argparse.Namespace) -> None:
    for case in layer_cases():
        for da0 in options.degrees:
            for batch in (1, 8):
                _bench_layer(case, da0, batch, options.repeats)


def _bench_layer(case: LayerCase, da0: int, batch: int, repeats: int) -> None:
    anisotropy = Anisotropy(da0, case.level)
    adaptive, plain, x = case.layer, plain_layer(case.layer, anisotropy), case.input_at(da0, batch)
    name = type(adaptive).__name__.removeprefix("SAC")
    shape = "x".join(map(str, x.shape))
    with torch.no_grad():
        torch.testing.assert_close(adaptive(x, anisotropy), plain(x), rtol=1e-3, atol=1e-3)
    for mode, wrap in (("inference", without_gradients), ("training", None)):
        adaptive.train(mode == "training")
        forwards = {"adaptive": lambda: adaptive(x, anisotropy), "plain": lambda: plain(x)}
        functions = {
            name: wrap(f)
            if wrap
            else training_step({"adaptive": adaptive, "plain": plain}[name], f)
            for name, f in forwards.items()
        }
        seconds = timed(functions, repeats, shortest_s=SHORTEST_SAMPLE_S)
        found = ratio(seconds["adaptive"], seconds["plain"])
        report(f"{case.where:16} {name:10} da {da0} {shape:19} {mode}", found, LAYER_TARGET)


def _has_einops(what: str) -> bool:
    """Return whether einops is installed, which MONAI's transformers need; report if not."""
    is_there = find_spec("einops") is not None
    if not is_there:
        print(f"{what}: skipped, MONAI's network needs `pip install einops`", flush=True)
    return is_there


def bench_encoder(options: argparse.Namespace) -> None:
    if not _has_einops("encoder"):
        return
    from monai.networks.nets import ViT

    for grid in (GRIDS[n] for n in options.tokens):
        size = tuple(16 * n for n in grid)
        ours = build_network("pumit_vit_b", position_table=grid, depth=options.blocks)
        sizes = {"hidden_size": 768, "mlp_dim": 3072, "num_layers": options.blocks, "num_heads": 12}
        theirs, fused = ViT(3, size, 16, **sizes), ViT(3, size, 16, **sizes)
        for block in fused.blocks:
            block.attn.use_flash_attention = True
        x = torch.randn(1, 3, *size)
        forwards = {
            "ours": (ours, lambda n=ours, x=x: n(x, Anisotropy(0)).tokens),
            "MONAI": (theirs, lambda n=theirs, x=x: n(x)[0]),
            "MONAI, fused attention": (fused, lambda n=fused, x=x: n(x)[0]),
        }
        for mode in ("inference", "training"):
            functions: dict[str, Callable[[], object]] = {}
            for name, (network, forward) in forwards.items():
                network.train(mode == "training")
                is_training = mode == "training"
                functions[name] = (
                    training_step(network, forward) if is_training else without_gradients(forward)
                )
            seconds = timed(functions, options.repeats)
            for name in ("MONAI", "MONAI, fused attention"):
                found = ratio(seconds["ours"], seconds[name])
                tokens = torch.Size(grid).numel()
                what = f"{options.blocks} blocks, {tokens} tokens, {mode}, against {name}"
                report(what, found, ENCODER_TARGET)


def bench_field(options: argparse.Namespace) -> None:
    if not _has_einops("field"):
        return
    from monai.networks.nets import SwinUNETR

    x = torch.randn(1, 1, 96, 96, 96)
    swin = SwinUNETR(in_channels=1, out_channels=14, feature_size=48).eval()
    names = ("pumit_segmentation_small", "pumit_segmentation_btcv")
    functions = {"SwinUNETR": without_gradients(lambda: swin(x))}
    for name in names:
        network = build_network(name, num_classes=14).eval()
        functions[name] = without_gradients(lambda n=network: n(x))
    seconds = timed(functions, options.repeats)
    for name in names:
        found = ratio(seconds[name], seconds["SwinUNETR"])
        report(f"96^3 field, {name}, against SwinUNETR", found, FIELD_TARGET)
        print(f"{'':58} that is {1 / found.median:.2f} times faster; target 5", flush=True)


def bench_gpu(options: argparse.Namespace) -> None:
    if not torch.cuda.is_available():
        print("gpu: skipped, torch finds no CUDA device", flush=True)
        return
    device, low = torch.device("cuda"), torch.bfloat16
    a, b = (torch.randn(8192, 8192, device=device, dtype=low) for _ in range(2))
    grid, batch = (5, 10, 10), 32
    network = build_network("pumit_vit_b", position_table=grid, depth=options.blocks).to(device)
    x = torch.randn(batch, 3, *(16 * n for n in grid), device=device)
    tokens = batch * torch.Size(grid).numel()
    weights = sum(p.numel() for n, p in network.named_parameters() if "position_table" not in n)
    attention = 2 * network.dim * len(network.blocks) * torch.Size(grid).numel()
    per_token = 2 * (weights + attention)  # FLOPs: a multiplication and an addition each

    def forward() -> Tensor:
        with torch.autocast("cuda", low):
            return network(x, Anisotropy(0)).tokens.float()

    def finished(function: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            function()
            torch.cuda.synchronize()

        return run

    functions = {
        "matmul": finished(lambda: a @ b),
        "inference": finished(without_gradients(forward)),
        "training": finished(training_step(network, forward)),
    }
    seconds = turns(functions, options.repeats, shortest_s=SHORTEST_SAMPLE_S)
    peak = ratio(seconds["matmul"], seconds["matmul"]).seconds
    peak_flops = 2 * 8192**3 / peak
    print(f"{torch.cuda.get_device_name()}: bf16 matrix product {peak_flops / 1e12:.0f} TFLOP/s")
    for mode, passes in (("inference", 1), ("training", 3)):
        found = ratio(seconds[mode], seconds["matmul"])
        rate = tokens / found.seconds
        share = rate * per_token * passes / peak_flops
        print(
            f"ViT-B, {batch} images of {tokens // batch} tokens, {mode}: {rate:,.0f} tokens/s, "
            f"{share:.0%} of that",
            flush=True,
        )


BENCHMARKS = {
    "layers": bench_layers,
    "encoder": bench_encoder,
    "field": bench_field,
    "gpu": bench_gpu,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="{" + ",".join(BENCHMARKS) + "}")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--degrees", type=int, nargs="+", default=[0, 2, 5], help="of anisotropy")
    parser.add_argument("--tokens", type=int, nargs="+", default=list(GRIDS), choices=GRIDS)
    parser.add_argument("--blocks", type=int, default=12, help="of the ViTs (%(default)s)")
    arguments = parser.parse_args()
    unknown = set(arguments.what) - set(BENCHMARKS)
    if unknown:
        sys.exit(f"Unknown {', '.join(sorted(unknown))}; known: {', '.join(BENCHMARKS)}")
    warnings.simplefilter("ignore", FutureWarning)  # raised by MONAI's own code
    torch.manual_seed(0)
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
        print(f"\n{threads} thread(s), torch {torch.__version__}, load {load:.1f}", flush=True)
        for what in arguments.what or BENCHMARKS:
            BENCHMARKS[what](arguments)


if __name__ == "__main__":
    main()
