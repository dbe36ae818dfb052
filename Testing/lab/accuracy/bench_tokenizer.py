"""Reconstruction quality of the visual tokenizer by modality, and evenness of its token use.

    python Testing/lab/accuracy/bench_tokenizer.py --data FOLDER [--model M] [--out \
        rows.jsonl]

Prints PSNR (on the tokenizer's intensity scale 0..1), SSIM and token statistics of each group of
images below FOLDER: held-out groups, training groups, then generated scans. The baseline is an
upsampling of block means over 16 x 16 x 16 voxels (fewer slices if thick). The PUMIT paper reports
a mean KL divergence of 2.791 nats between its token distributions and the uniform one.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.inference.tokenizer.reconstruction import Tokenizer, load_tokenizer
from pumit.networks.pumit import Anisotropy
from pumit.preprocessing.channels import grey
from pumit.preprocessing.network_axes import depth_first
from pumit.training.synthesis.scene import draw_scene
from pumit.volume import Volume
from torch.nn import functional as F

MEASURED = {
    "CT, abdomen (BTCV)": "cases/ct_btcv_*/image.nii.gz",
    "CT, liver (CHAOS)": "cases/ct_chaos_liver/image.nii.gz",
    "MR T2, abdomen (CHAOS)": "cases/mr_chaos_*/image.nii.gz",
    "MR cine, heart (ACDC)": "cases/mr_acdc_*_frame01/image.nii.gz",
    "MR T1, hippocampus": "hippocampus/images/*.nii.gz",
    "X-ray, chest (2D)": "images2d/covid_cxr/*",
    "photograph, skin (2D)": "images2d/isic/*",
}
TRAINED = {
    "CT (trained with)": "cases/ct_[st]*/image.nii.gz",
    "MR (trained with)": "cases/mr_[bpst]*/image.nii.gz",
    "PET (trained with)": "cases/pet_*/image.nii.gz",
}
GENERATED_SIZE = 64
GENERATED = 24


def generated() -> Iterator[Volume]:
    """Yield generated scans of all degrees of anisotropy."""
    generator = torch.Generator().manual_seed(12345)
    for i in range(GENERATED):
        scene = draw_scene(i % 6, GENERATED_SIZE, generator)
        slice_mm = PLANAR_SLICE_SPACING_MM if i % 6 == 5 else scene.slice_ratio
        yield Volume(scene.image.numpy(), (slice_mm, 1.0, 1.0))


def images(folder: Path, pattern: str) -> Iterator[Volume]:
    """Yield the images below a folder, without the label files next to them."""
    for path in sorted(folder.glob(pattern)):
        if not path.stem.endswith(("_label", "_segmentation")):
            yield Volume.read(path)


def block_psnr(volume: Volume, tokenizer: Tokenizer) -> float:
    """Return PSNR, dB, of the image's means over token cells, upsampled."""
    order = depth_first(volume.spacing_mm, volume.shape)
    source = grey(volume, 0).transpose(order)
    scaling = tokenizer.plan.normalization.scaling(source)
    x = torch.from_numpy(np.ascontiguousarray(source, dtype=np.float32))
    x = (x * scaling.factor + scaling.offset).clamp(0, 1)[None, None]
    depth = Anisotropy.from_spacing([volume.spacing_mm[a] for a in order]).depth_stride(4)
    cells = [max(1, round(n / s)) for n, s in zip(x.shape[2:], (depth, 16, 16), strict=True)]
    coarse = F.interpolate(x, cells, mode="area")
    back = F.interpolate(coarse, x.shape[2:], mode="trilinear", align_corners=False)
    return -10 * math.log10(max(float((back - x).square().mean()), 1e-12))


def measure(volume: Volume, tokenizer: Tokenizer) -> dict[str, Any]:
    """Measure one image."""
    answer = tokenizer.reconstruct(volume)
    return {
        "psnr": answer.psnr_db,
        "ssim": answer.ssim,
        "cell_kl": answer.use.mean_cell_kl,
        "use_kl": answer.use.kl_to_uniform,
        "block_psnr": block_psnr(volume, tokenizer),
        "voxels": math.prod(volume.shape),
        "shares": answer.use.shares.tolist(),
    }


def line(name: str, rows: list[dict[str, Any]]) -> str:
    """Return a row of the table: means over images."""

    def mean(key: str) -> str:
        found = [r[key] for r in rows if r[key] is not None]
        return f"{np.mean(found):.2f}" if found else "-"

    return (
        f"| {name} | {len(rows)} | {mean('psnr')} | {mean('block_psnr')} | {mean('ssim')} "
        f"| {mean('cell_kl')} | {mean('use_kl')} |"
    )


def balance(rows: list[dict[str, Any]]) -> str:
    """Describe how evenly the tokens are used, with equal weight per image."""
    shares = np.mean([r["shares"] for r in rows], axis=0)
    k = len(shares)
    kl = math.log(k) + float((shares * np.log(np.maximum(shares, 1e-300))).sum())
    within = float(np.mean((shares * k >= 0.1**0.5) & (shares * k <= 10**0.5)))
    return (
        f"{len(rows)} images: shares of the {k} tokens from {shares.min() * k:.2f} to "
        f"{shares.max() * k:.2f} of an even one, ratio {shares.max() / shares.min():.1f}; "
        f"{within:.1%} of them within one order of magnitude about it; divergence of their mean "
        f"from even use {kl:.3f} nats; mean divergence of a cell's own distribution "
        f"{np.mean([r['cell_kl'] for r in rows]):.3f} nats (published: 2.791)."
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the scans")
    parser.add_argument("--model", default=None, help="a tokenizer: name or checkpoint")
    parser.add_argument("--out", type=Path, help="rows as JSON lines")
    parser.add_argument("--only", help="groups whose name holds this")
    args = parser.parse_args()
    tokenizer = load_tokenizer(args.model, device="auto")
    print("| images | n | PSNR dB | block means, dB | SSIM | KL of a cell | KL of their mean |")
    print("|---|---|---|---|---|---|---|")
    known: list[dict[str, Any]] = []
    groups = {**MEASURED, **TRAINED, "generated": ""}
    for name, pattern in groups.items():
        if args.only and args.only not in name:
            continue
        volumes = images(args.data, pattern) if pattern else generated()
        rows = [measure(volume, tokenizer) for volume in volumes]
        if not rows:
            continue
        print(line(name, rows), flush=True)
        if name not in MEASURED:
            known += rows
        if args.out is not None:
            with args.out.open("a") as out:
                for row in rows:
                    out.write(json.dumps({"group": name, **row}) + "\n")
    if known:
        print("\nToken use on images of the kinds that were trained with. " + balance(known))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
