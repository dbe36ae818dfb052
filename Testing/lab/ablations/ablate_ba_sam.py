"""Ablation of BA-SAM in the promptable network: length scaling and attention bias.

    python Testing/lab/ablations/ablate_ba_sam.py KINDS --kind "heart MR" --fields 64,128,160

KINDS holds kind/case/{image,label}.nii.gz. Up to three structures of each case get a click at their
innermost voxel. Reports mean Dice by field size for the shipped weights, without scaling (lambda is
1), without the bias, and without both. `--every N` takes every N-th slice, for a higher degree of
anisotropy. `--own-tokens N` adds a variant whose lambda is 1 at N tokens, such as those of a
training field of that degree.

Source:
    Song et al., BA-SAM, CVPR 2024, table 4.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pumit
import torch
from ablate_slopes import FEWEST_VOXELS, MOST_STRUCTURES, dice, innermost
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.inference.interactive.solver_settings import SolverSettings
from pumit.networks import ba_attention
from pumit.networks.ba_sam import length_scale
from pumit.volume import Volume

TRAIN_FIELD = 48


@contextmanager
def variant(network: Any, scale: Callable[[int, int], float], has_bias: bool) -> Iterator[None]:
    """Run the network with another length scale, and with or without its bias."""
    slopes = [p for name, p in network.named_parameters() if name.endswith(".slope")]
    kept = [p.detach().clone() for p in slopes]
    ba_attention.length_scale = scale
    with torch.no_grad():
        for p in slopes if not has_bias else ():
            p.zero_()
    try:
        yield
    finally:
        ba_attention.length_scale = length_scale
        with torch.no_grad():
            for p, before in zip(slopes, kept, strict=True):
                p.copy_(before)


def thinned(volume: Volume, every: int) -> Volume:
    """Return every n-th slice along axis 0; 0 gives only the middle slice."""
    d, h, w = volume.spacing_mm
    if every == 0:
        return Volume(volume.array[len(volume.array) // 2][None], (PLANAR_SLICE_SPACING_MM, h, w))
    return Volume(volume.array[::every], (d * every, h, w))


def main() -> None:
    """Print running means, and one Markdown row per field size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", type=Path)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--fields", default="64,128,160")
    parser.add_argument("--cases", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="each N-th slice; 0 a single one")
    parser.add_argument("--own-tokens", type=int, default=0, help="tokens of a training field")
    args = parser.parse_args()
    os.environ["PUMIT_ENGINE"] = "torch"
    segmenter = pumit.load_segmenter("default", "cpu", keeps_graphs=False)
    engine: Any = segmenter.engine
    one: Callable[[int, int], float] = lambda n, train: 1.0  # noqa: E731
    variants: dict[str, tuple[Callable[[int, int], float], bool]] = {
        "both": (length_scale, True),
        "bias only": (one, True),
        "scale only": (length_scale, False),
        "neither": (one, False),
    }
    if args.own_tokens:
        variants["own lambda"] = (lambda n, train: length_scale(n, args.own_tokens), True)
    cases = [p for p in sorted((args.kinds / args.kind).iterdir()) if p.is_dir()][: args.cases]
    for field in map(int, args.fields.split(",")):
        settings = SolverSettings(field_scale=field / TRAIN_FIELD, windows=0)
        scores: dict[str, list[float]] = {name: [] for name in variants}
        for case in cases:
            volume = thinned(pumit.Volume.read(case / "image.nii.gz"), args.every)
            labels = thinned(pumit.Volume.read(case / "label.nii.gz"), args.every).array
            values, counts = np.unique(labels[labels > 0], return_counts=True)
            order = np.argsort(-counts)
            chosen = [v for v in values[order] if (labels == v).sum() >= FEWEST_VOXELS]
            for name, (scale, has_bias) in variants.items():
                with variant(engine.network, scale, has_bias):
                    session = pumit.InteractiveSession(segmenter, settings)
                    session.set_volume(volume)
                    for value in chosen[:MOST_STRUCTURES]:
                        truth = labels == value
                        session.reset()
                        place = volume.index_to_world(innermost(truth)).tolist()
                        session.add_point(tuple(place))
                        scores[name].append(dice(session.predict(), truth))
                    session.close()
            means = {name: round(float(np.mean(found)), 3) for name, found in scores.items()}
            print(field, len(scores["both"]), means, flush=True)
        row = " | ".join(f"{np.mean(found):.3f}" for found in scores.values())
        print(f"| {args.kind}, {field} | {len(scores['both'])} | {row} |", flush=True)


if __name__ == "__main__":
    main()
