"""Time of encoding and decoding a field in each inference engine, and difference of the masks.

usage: bench_engines.py [--model default] [--threads 1] [--degrees 0 1 2 3 4 5] [--rounds 3]

Every engine gets the same generated fields and clicks. Times are the minimum CPU and wall times of
several rounds; `ratio` and `wall` are the speed-ups over the first engine, by default PyTorch in
float32, in the same run. CPU time depends little on other programs. int8 is post-training
quantisation by NNCF; ONNX Runtime only encodes, and PyTorch decodes. Dice compares the masks with
those of the first engine. Engines that are not installed are reported and skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

ENGINES = (
    "torch f32",
    "torch bf16",
    "torch compiled",
    "openvino f32",
    "openvino bf16",
    "openvino int8",
    "onnxruntime f32",
)
SIZE = 64
CALIBRATION_FIELDS = 6


def field(da0: int, seed: int | None = None) -> tuple[np.ndarray, float]:
    """Return a field with a bright ball, (3, D, H, W), and its slice ratio."""
    from pumit.preprocessing.fields import field_shape

    shape = field_shape(da0, SIZE)
    grid = np.indices(shape).astype(np.float32)
    middle = np.array(shape, dtype=np.float32).reshape(3, 1, 1, 1) / 2
    scale = np.array([2.0**da0 if da0 < 5 else 1, 1, 1], dtype=np.float32).reshape(3, 1, 1, 1)
    apart = np.sqrt((((grid - middle) * scale) ** 2).sum(0))
    noise = np.random.default_rng(da0 if seed is None else seed).normal(0, 0.05, shape)
    image = (0.3 + 0.4 * (apart < SIZE / 4) + noise).clip(0, 1).astype(np.float32)
    return np.stack((image, image, np.ones_like(image))), 0.0 if da0 == 5 else 2.0**da0


def clicks(image: np.ndarray, ratio: float):  # type: ignore[no-untyped-def]
    """Return a click inside the ball and one outside."""
    from pumit.inference.engine.engine import FieldPrompts

    d, h, w = image.shape[1:]
    points = np.array([[d // 2 * ratio, h / 2, w / 2], [0, 4, 4]], np.float32)
    return FieldPrompts(points, np.array([True, False]), None, None, ratio)


def calibration(da0: int):  # type: ignore[no-untyped-def]
    """Return other fields of a degree, for the calibration of int8."""
    found = [field(da0, 100 + seed) for seed in range(CALIBRATION_FIELDS)]
    return [(image, clicks(image, ratio)) for image, ratio in found]


def make(name: str, model: str, threads: int):  # type: ignore[no-untyped-def]
    """Make an engine by name."""
    from pumit.models.index import find_model
    from pumit.models.weights import read_weights

    library, precision = name.split()
    path = find_model(model)
    if library == "openvino":
        from pumit.inference.engine.openvino_engine import OpenVinoEngine, sizes_of

        weights = read_weights(path, "promptable")
        if precision == "int8":
            from measured_engines import Int8Engine

            sizes = sizes_of(weights.recipe)
            return Int8Engine(weights.arrays, sizes, calibration, threads=threads)
        return OpenVinoEngine(
            weights.arrays, sizes_of(weights.recipe), threads=threads, precision=precision
        )
    import torch
    from pumit.inference.engine.torch_engine import TorchEngine
    from pumit.inference.loading import build_from
    from pumit.models.checkpoint import load_checkpoint

    torch.set_num_threads(threads)
    network = build_from(load_checkpoint(path), path, torch.device("cpu"))
    if library == "onnxruntime":
        from measured_engines import OnnxEncoderEngine

        return OnnxEncoderEngine(network, threads=threads)
    if precision == "compiled":
        network.mask_decoder = torch.compile(network.mask_decoder)
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    return TorchEngine(network, torch.device("cpu"), kind)


def timed(work, rounds: int):  # type: ignore[no-untyped-def]
    """Return the result of `work`, and its minimum CPU and wall time after a warm-up, s."""
    result, processor, wall = work(), [], []
    for _ in range(rounds):
        start, began = time.process_time(), time.perf_counter()
        result = work()
        processor.append(time.process_time() - start)
        wall.append(time.perf_counter() - began)
    return result, min(processor), min(wall)


def measure(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Measure one engine in this process."""
    start = time.process_time()
    engine = make(name, options.model, options.threads)
    found: dict[str, object] = {"start": time.process_time() - start}
    rows, masks = {}, {}
    for da0 in options.degrees:
        image, ratio = field(da0)
        prompts = clicks(image, ratio)
        features, *encoding = timed(
            lambda i=image, a=da0, r=ratio: engine.encode(i, da0=a, slice_ratio=r), options.rounds
        )
        (logits, _), *decoding = timed(
            lambda f=features, p=prompts: engine.decode(f, p), options.rounds
        )
        rows[da0] = (*encoding, *decoding)
        masks[da0] = logits[0]
    found["rows"] = rows
    found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.savez(options.masks, **{str(k): v for k, v in masks.items()})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--degrees", type=int, nargs="+", default=list(range(6)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--masks", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return
    import tempfile

    print(f"{'engine':16} {'degree':>6} {'encode':>7} {'decode':>7} {'ratio':>6} {'wall':>6} "
          f"{'differs':>8} {'Dice':>7}")  # fmt: skip
    base: dict[str, list[float]] = {}
    base_masks: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.engines:
            masks = os.path.join(folder, "masks.npz")
            command = [sys.executable, __file__, *sys.argv[1:], "--one", name, "--masks", masks]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                reason = (run.stderr.strip().splitlines() or ["no reason"])[-1]
                print(f"{name:16} cannot be measured here: {reason[:120]}")
                continue
            printed = json.loads(run.stdout.splitlines()[-1])
            logits = dict(np.load(masks))
            if not base:
                base, base_masks = printed["rows"], logits
            for da0, row in printed["rows"].items():
                a, b = logits[da0] > 0, base_masks[da0] > 0
                dice = 2 * (a & b).sum() / max(a.sum() + b.sum(), 1)
                before = base[da0]
                processor = (before[0] + before[2]) / (row[0] + row[2])
                wall = (before[1] + before[3]) / (row[1] + row[3])
                apart = np.abs(logits[da0] - base_masks[da0]).max()
                times = f"{row[0]:7.3f} {row[2]:7.3f} {processor:6.2f} {wall:6.2f}"
                print(f"{name:16} {da0:>6} {times} {apart:8.1e} {dice:7.4f}")
            print(f"{name:16} start {printed['start']:.2f} s, peak {printed['megabytes']:.0f} MB")


if __name__ == "__main__":
    main()
