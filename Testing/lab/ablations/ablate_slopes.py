"""Dice of the promptable network with negative BA-SAM slopes set to zero, and without the bias.

    python Testing/lab/ablations/ablate_slopes.py CASES [--model default]

CASES holds folders with image.nii.gz and label.nii.gz. Up to three structures of each case get a
click at their innermost voxel, and a second one at the innermost voxel of the error. Reports Dice
after both clicks, by model.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pumit
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.models.index import find_model
from scipy import ndimage

Mask = npt.NDArray[np.bool_]
MOST_STRUCTURES = 3
FEWEST_VOXELS = 200


def innermost(mask: Mask) -> tuple[int, ...]:
    """Return the voxel of a mask that is farthest from its border."""
    depth = ndimage.distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1, 1:-1]
    return tuple(int(i) for i in np.unravel_index(int(depth.argmax()), mask.shape))


def dice(a: Mask, b: Mask) -> float:
    """Return the Dice coefficient of two masks."""
    return 2 * float((a & b).sum()) / max(float(a.sum() + b.sum()), 1.0)


def variants(model: str, folder: Path) -> dict[str, Path]:
    """Write checkpoints without negative slopes and without any; return them with the original."""
    path = find_model(model)
    made = {"as it is": path}
    for name, change in (("negative slopes 0", 0.0), ("no bias", -1.0)):
        checkpoint = load_checkpoint(path)
        for key, tensor in checkpoint.state.items():
            if key.endswith(".slope"):
                checkpoint.state[key] = tensor.clamp_min(0) if change == 0 else tensor * 0
        made[name] = folder / f"{name.replace(' ', '_')}.safetensors"
        save_checkpoint(made[name], checkpoint.state, checkpoint.recipe)
    return made


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--model", default="default")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = {
            name: pumit.load_segmenter(path, "cpu", keeps_graphs=False)
            for name, path in variants(args.model, Path(folder)).items()
        }
        rows: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
        for case in sorted(args.cases.iterdir()):
            if not (case / "label.nii.gz").is_file():
                continue
            volume = pumit.Volume.read(case / "image.nii.gz")
            labels = pumit.Volume.read(case / "label.nii.gz").array
            values, counts = np.unique(labels[labels > 0], return_counts=True)
            chosen = values[np.argsort(-counts)][counts[np.argsort(-counts)] >= FEWEST_VOXELS]
            for name, segmenter in models.items():
                session = pumit.InteractiveSession(segmenter)
                session.set_volume(volume)
                for value in chosen[:MOST_STRUCTURES]:
                    truth = labels == value
                    session.reset()
                    session.add_point(tuple(volume.index_to_world(innermost(truth)).tolist()))
                    first = session.predict()
                    wrong = first ^ truth
                    place = innermost(wrong)
                    session.add_point(
                        tuple(volume.index_to_world(place).tolist()), positive=bool(truth[place])
                    )
                    rows[name].append((dice(first, truth), dice(session.predict(), truth)))
                session.close()
            print(case.name, {n: len(r) for n, r in rows.items()}, flush=True)
            for name, scores in rows.items():
                means = np.mean(scores, axis=0)
                print(f"  {name}: {means[0]:.4f} {means[1]:.4f} ({len(scores)})", flush=True)


if __name__ == "__main__":
    main()
