"""Time and memory of clicks, compared with one forward pass of a common reference network.

Run by hand: `python Testing/lab/speed/bench_interactive.py [--scan chaos.zip]
[--device cuda] [--skip-reference]`. Ratios compare two measurements of one run.

The reference is the residual encoder U-Net with 102 million parameters on a 192^3 patch with eight
input channels (PyPI `dynamic_network_architectures`), which runs completely for every prompt.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

CLICKS = 10


def scan_of(shape: tuple[int, int, int], path: Path | None):
    import pumit

    if path is not None:
        return pumit.Volume.read(path)
    rng = np.random.default_rng(0)
    array = np.empty(shape, np.int16)
    h, w = np.ogrid[: shape[1], : shape[2]]
    in_plane = (h / shape[1] - 0.5) ** 2 + (w / shape[2] - 0.5) ** 2
    for d in range(shape[0]):  # slice by slice, so that making the scan does not set the peak
        radius = (d / shape[0] - 0.5) ** 2 + in_plane
        body = np.where(radius < 0.06, 100, np.where(radius < 0.2, -100, -1000))
        array[d] = rng.normal(0, 30, radius.shape).astype(np.int16) + body
    return pumit.Volume(array, (2.0, 0.75, 0.75))


def click_run(path: Path | None, shape: tuple[int, int, int], device: str) -> dict[str, float]:
    """Open, embed and click in this process; return seconds and peak memory."""
    import pumit
    from pumit.system.machine import share_heaps

    share_heaps()  # as a worker does
    started = time.perf_counter()
    segmenter = pumit.load_segmenter("default", device=device)
    loaded = time.perf_counter()
    volume = scan_of(shape, path)
    session = pumit.InteractiveSession(segmenter)
    session.set_volume(volume)
    opened = time.perf_counter()
    rng = np.random.default_rng(1)
    middle = (np.asarray(volume.shape) - 1) / 2
    session.add_point(tuple(volume.index_to_world(middle)))
    session.predict()
    first = time.perf_counter()
    later = []
    for i in range(CLICKS):
        offset = rng.uniform(-0.08, 0.08, 3) * np.asarray(volume.shape)
        session.add_point(tuple(volume.index_to_world(middle + offset)), positive=i % 2 == 0)
        begin = time.perf_counter()
        session.predict()
        later.append(time.perf_counter() - begin)
    return {
        "load model": loaded - started,
        "open and embed": opened - loaded,
        "first click": first - opened,
        "later click, median": statistics.median(later),
        "later click, worst": max(later),
        "peak memory GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def in_own_process(path: Path | None, shape: tuple[int, int, int], device: str) -> dict[str, float]:
    """Run `click_run` in a new process, to measure its own peak memory."""
    command = [
        sys.executable,
        __file__,
        "--worker",
        json.dumps([str(path) if path else None, shape, device]),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def reference_seconds(device: str) -> float:
    """Time one pass of the 102 M-parameter residual U-Net at 192^3; on a GPU warm, in float16."""
    import torch
    from dynamic_network_architectures.architectures.unet import ResidualEncoderUNet

    network = ResidualEncoderUNet(
        8,
        6,
        [32, 64, 128, 256, 320, 320],
        torch.nn.Conv3d,
        3,
        [1, 2, 2, 2, 2, 2],
        [1, 3, 4, 6, 6, 6],
        2,
        [1] * 5,
        conv_bias=True,
        norm_op=torch.nn.InstanceNorm3d,
        norm_op_kwargs={"eps": 1e-5, "affine": True},
        nonlin=torch.nn.LeakyReLU,
        nonlin_kwargs={"inplace": True},
    ).eval()
    count = sum(p.numel() for p in network.parameters())
    is_gpu = device != "cpu"
    network, x = network.to(device), torch.randn(1, 8, 192, 192, 192, device=device)
    times = []
    with torch.inference_mode(), torch.autocast("cuda", torch.float16, enabled=is_gpu):
        for _ in range(13 if is_gpu else 1):
            begin = time.perf_counter()
            network(x)
            if is_gpu:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
    seconds = statistics.median(times[-10:])
    print(f"reference: residual U-Net, {count / 1e6:.1f} M parameters: {seconds:.3f} s a pass")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scan", type=Path, help="a scan to click on, such as the CHAOS CT zip")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--skip-reference", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        path, shape, device = json.loads(args.worker)
        print(json.dumps(click_run(Path(path) if path else None, tuple(shape), device)))
        return
    print(f"{os.cpu_count()} cores")
    result = in_own_process(args.scan, (78, 512, 512), args.device)
    print(f"{'512 x 512 x 78 CT' if args.scan else 'generated 512 x 512 x 78'}")
    for name, value in result.items():
        print(f"  {name:<22}{value:8.2f}")
    print("cost per voxel: later click and opening against the size of the volume")
    print(f"  {'volume':<20}{'Mvoxel':>8}{'open s':>8}{'us/kvox':>9}{'click s':>9}{'GB':>6}")
    for shape in ((40, 128, 128), (78, 256, 256), (78, 512, 512), (300, 512, 512), (600, 512, 512)):
        row = in_own_process(None, shape, args.device)
        voxels = np.prod(shape)
        print(
            f"  {'x'.join(map(str, shape)):<20}{voxels / 1e6:8.1f}{row['open and embed']:8.2f}"
            f"{row['open and embed'] / voxels * 1e9:9.1f}{row['later click, median']:9.2f}"
            f"{row['peak memory GB']:6.2f}"
        )
    # Last: processes started after it would inherit its memory in their peak.
    if not args.skip_reference:
        seconds = reference_seconds(args.device)
        ratio = seconds / result["later click, median"]
        print(f"  one pass of the reference over a later click: {ratio:.1f} x")


if __name__ == "__main__":
    main()
