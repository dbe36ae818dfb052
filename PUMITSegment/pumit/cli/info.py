"""`pumit info`: size, position, orientation and modality of a scan, and a place to click."""

from __future__ import annotations

import argparse
import json
from itertools import permutations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pumit.cli.shared.output import print_table
from pumit.system.wording import digits_for

if TYPE_CHECKING:
    from pumit.file_image import FileImage

_AXES, _UNKNOWN = "columns, rows, slices", "not stated"
_LENGTHS = "voxels", "spacing_mm"
_TOWARDS = ("left", "posterior", "superior"), ("right", "anterior", "inferior")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit info`."""
    parser.add_argument("image", type=Path, help="scan: a file, or a folder of DICOM")
    parser.add_argument("--series", help="SeriesInstanceUID, if the folder holds several series")
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Run `pumit info`."""
    from pumit.io.read import read_image

    facts = _facts_of(read_image(args.image, series=args.series))
    if args.json:
        print(json.dumps(facts))
        return 0
    axes, unit = ("columns, rows", "pixels") if facts["is_planar"] else (_AXES, "voxels")
    shown = 2 if facts["is_planar"] else 3
    size, step = (" x ".join(f"{v:.4g}" for v in facts[k][:shown]) for k in _LENGTHS)
    place = ", ".join(
        f"{axis} {low:g} to {high:g}" for axis, (low, high) in zip("RAS", facts["ras"], strict=True)
    )
    channels = f", {facts['channels']} channels" if facts["channels"] > 1 else ""
    ras, voxel = (",".join(f"{v:g}" for v in facts[k]) for k in ("middle_ras", "middle_voxel"))
    reach = " to ".join(f"{v:g}" for v in facts["range"]) or "no number"
    is_measured = facts["has_pixel_size"] and facts["has_position"]
    runs = f"{', '.join(facts['orientation'][:shown])} ({axes} run there)"
    rows = {
        "Size": f"{size} {unit} ({axes}){channels}",
        "Spacing": f"{step} mm" if facts["has_pixel_size"] else _UNKNOWN,
        "Orientation": runs if facts["has_position"] else _UNKNOWN,
        "Extent": f"{place} mm" if is_measured else _UNKNOWN,
        "Intensities": f"{facts['type']}, {reach} {facts['intensity_unit']}".rstrip(),
        "Modality": facts["modality"] or _UNKNOWN,
        "To click in the middle": f"--voxel={voxel.removesuffix(',0')}"
        if facts["is_planar"]
        else f"--point={ras} or --voxel={voxel}",
    }
    print_table(list(rows.items()))
    return 0


def _facts_of(image: FileImage) -> dict[str, Any]:
    """Return facts about a scan as JSON values; axes in the order columns, rows, slices."""
    from pumit.structures.find import modality_of_scan
    from pumit.volume import Volume

    volume = Volume.from_steps(image.array, image.steps_mm, image.origin_lps, image.source)
    numbers = volume.array[np.isfinite(volume.array)]
    digits = digits_for(volume.spacing_mm, 1)
    middle = [(n - 1) // 2 for n in volume.shape]
    corners = volume.index_to_world(list(product(*((0, n - 1) for n in volume.shape))))
    signs = (-1.0, -1.0, 1.0)
    ends = np.sort(np.stack((corners.min(0) * signs, corners.max(0) * signs)), axis=0)
    axes = [volume.direction[:, i] for i in range(3)]
    # Each anatomical axis once: in an oblique scan two axes may be nearest to the same one.
    largest = max(
        permutations(range(3)), key=lambda p: sum(abs(a[i]) for a, i in zip(axes, p, strict=True))
    )
    return {
        "voxels": list(volume.shape[::-1]),
        "spacing_mm": list(volume.spacing_mm[::-1]),
        "is_planar": volume.is_planar,
        "has_pixel_size": image.has_spacing,
        "has_position": image.has_position,
        "channels": volume.channels,
        "orientation": [
            _TOWARDS[int(axis[i] < 0)][i] for axis, i in zip(axes, largest, strict=True)
        ],
        "ras": [[round(v, digits + 1) + 0.0 for v in pair] for pair in ends.T.tolist()],
        "type": str(volume.array.dtype),
        "range": [float(numbers.min()), float(numbers.max())] if numbers.size else [],
        "intensity_unit": volume.source.intensity_unit if volume.source else "",
        "modality": modality_of_scan(volume),
        "middle_ras": [
            round(v, digits) + 0.0 for v in (volume.index_to_world(middle) * signs).tolist()
        ],
        "middle_voxel": middle[::-1],
    }
