"""Score clicks and boxes by kind of scan; models are compared by the unweighted mean over kinds.

`kinds.py build FOLDER --shared ../shared` makes cases of every kind; `kinds.py score FOLDER
--model M -o ROWS.json` clicks on them; `kinds.py table A.json B.json ...` prints several side by
side; `kinds.py worst FOLDER ROWS.json -o PICTURES` draws the worst target of each kind; `kinds.py
small FOLDER` clicks on structures below 10 mL. A kind is a
data set of real scans, or structures of label maps that were not in the training of `default`.
Their renderer shares no code with the generator of training scans.
"""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import evaluate_case, read_case, simulate_clicks
from pumit.inference.interactive.segmenter import load_segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.volume import Volume
from scipy import ndimage

CASES, TARGETS, CLICKS = 4, 3, 5
SMALL_ML, SMALL_TARGETS, SMALL_CLICKS = 10.0, 5, 4
# Kind: pattern of cases below `shared`, and whether `default` is trained on the data set.
REAL: dict[str, tuple[str, bool]] = {
    "sarcoma PET": (r"(data|train)/cases/pet_sts", True),
    "sarcoma CT": (r"(data|train)/cases/ct_sts", True),
    "sarcoma MR": (r"(data|train)/cases/mr_sts", True),
    "fetal brain": (r"train/cases/mr_fetal", True),
    "spinal cord": (r"data/cases/mr_sct", True),
    "breast MR": (r"data/cases/mr_(breast|pyrad_breast)", True),
    "stroke MR": (r"data/cases/mr_pyrad_brain|train/cases/mr_clinical", True),
    "cervical spine MR": (r"data/cases/mr_tptbox", True),
    "torso CT, MR": (r"data/cases/.*_totalseg", True),
    "brain nuclei MR": (r"train/cases/mr_(cit|icbm|template)", True),
    "plant cells": (r"train/cases/.*(plantseg|ovul|root|cell)", False),
    "engine CT": (r"train/cases/.*engine", False),
    "hippocampus MR": (r"train/cases/mr_hippo", False),
    "brain parcels MR": (r"train/cases/mr_(nmm|neuro)", False),
    "heart MR": (r"train/cases/mr_acdc", False),
    "abdomen CT": (r"train/cases/ct_btcv", False),
    "abdomen MR": (r"train/cases/mr_chaos", False),
}
# Kind: pattern of label maps; only the research tier is trained on these.
DRAWN: dict[str, str] = {
    "vertebrae, drawn": r"spine_verse",
    "kidney tumours, drawn": r"kidney_kits19",
    "foot bones, drawn": r"bones_.*foot|zanatomy_full_ankle",
    "knee bones, drawn": r"bones_.*knee|zanatomy_full_knee",
    "hip bones, drawn": r"bones_.*hip",
    "head and neck, drawn": r"zanatomy_full_head",
    "thorax muscles, drawn": r"zanatomy_(shoulders|full_thorax)",
    "pelvis, drawn": r"zanatomy_full_pelvis",
    "limb muscles, drawn": r"zanatomy_(thigh|knee_calf|elbow)",
    "brain parcels, drawn": r"brain_nmm",
}


def build(folder: Path, shared: Path) -> None:
    """Make `folder/<kind>/<case>/{image,label}.nii.gz` for every kind.

    Args:
        folder: Folder to make.
        shared: Folder with `data` and `train`.
    """
    found = sorted(p.parent for p in shared.glob("*/cases/*/label.nii.gz"))
    for kind, (pattern, _) in REAL.items():
        cases = [c for c in found if re.match(pattern, c.relative_to(shared).as_posix())]
        step = max(len(cases) // CASES, 1)
        for case in cases[::step][:CASES]:
            there = folder / kind / case.name
            there.mkdir(parents=True, exist_ok=True)
            for name in ("image.nii.gz", "label.nii.gz"):
                link = there / name
                link.unlink(missing_ok=True)
                link.symlink_to(case / name)
    maps = sorted((shared / "train" / "labelmaps").glob("*.nii.gz"))
    for kind, pattern in DRAWN.items():
        chosen = [m for m in maps if re.match(pattern, m.name)]
        rng = np.random.default_rng(sum(map(ord, kind)))
        for i in range(CASES):
            _draw(chosen[i % len(chosen)], folder / kind / f"case_{i}", rng)


def _draw(path: Path, folder: Path, rng: np.random.Generator) -> None:
    """Render a crop of a label map as a scan with thick or thin slices."""
    volume = Volume.read(path)
    labels = volume.array.reshape(volume.shape).astype(np.int32)
    spacing = np.asarray(volume.spacing_mm)
    values, sizes = np.unique(labels[labels > 0], return_counts=True)
    usable = values[sizes * spacing.prod() > 500]
    while True:
        # 1. A crop around a structure, 1.6 to 4 times as wide, 96 voxels in-plane.
        window = ndimage.find_objects((labels == rng.choice(usable)).astype(np.uint8))[0]
        extent = np.array([(s.stop - s.start) for s in window]) * spacing
        middle = np.array([(s.stop + s.start - 1) / 2 for s in window])
        in_plane = max(extent.max() * rng.uniform(1.6, 4.0) / 96, 0.4 * spacing.min())
        ratio = float(rng.choice([1.0, 1.0, 2.0, 4.0]))
        steps = np.array([in_plane * ratio, in_plane, in_plane])
        shape = (max(int(96 / ratio), 16), 96, 96)
        axes = [
            np.rint(m + (np.arange(n) - (n - 1) / 2) * s / v).astype(int)
            for m, n, s, v in zip(middle, shape, steps, spacing, strict=True)
        ]
        d, h, w = ((a >= 0) & (a < n) for a, n in zip(axes, labels.shape, strict=True))
        piece = labels[np.ix_(*[a.clip(0, n - 1) for a, n in zip(axes, labels.shape, strict=True)])]
        piece = piece * (d[:, None, None] & h[:, None] & w)
        shown, counts = np.unique(piece[piece > 0], return_counts=True)
        if len(counts) and counts.max() >= 1000:
            break
    # 2. A grey level per structure, tissue around them, texture, blur and noise.
    greys = dict(zip(shown.tolist(), rng.uniform(0.25, 1.0, len(shown)), strict=True))
    around = ndimage.gaussian_filter(rng.standard_normal(shape), [8 / ratio, 8, 8])
    image = rng.uniform(0.1, 0.6) + 0.12 * (around > 0) + 0.03 * around / around.std()
    for value, grey in greys.items():
        image[piece == value] = grey
    texture = ndimage.gaussian_filter(rng.standard_normal(shape), [2 / ratio, 2, 2])
    image += rng.uniform(0, 0.06) * texture / texture.std()
    image = ndimage.gaussian_filter(image, [0.0, *2 * [rng.uniform(0.3, 1.0)]])
    image += rng.uniform(0.01, 0.08) * rng.standard_normal(shape)
    # 3. Write files, with labels numbered from 1.
    table = np.zeros(int(shown.max()) + 1, np.uint16)
    table[shown] = np.arange(1, len(shown) + 1)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "image.nii.gz", (1000 * image).astype(np.int16), steps)
    _write(folder / "label.nii.gz", table[piece].astype(np.int16), steps)


def _write(path: Path, array: npt.NDArray[np.int16], spacing: npt.NDArray[np.float64]) -> None:
    import SimpleITK

    image = SimpleITK.GetImageFromArray(array)
    image.SetSpacing([float(s) for s in spacing[::-1]])
    SimpleITK.WriteImage(image, str(path))


def score(folder: Path, model: str, only: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of all cases, with their kind."""
    segmenter = load_segmenter(model, device="cpu")
    for kind in sorted(p for p in folder.iterdir() if p.is_dir() and only in p.name):
        for case in sorted(kind.iterdir()):
            for row in evaluate_case(segmenter, case, clicks=CLICKS, targets=TARGETS, human=True):
                yield {"kind": kind.name, **row}


def score_small(folder: Path, model: str, only: str) -> None:
    """Print mean Dice over kinds after each click on small structures, ideal and human-like.

    The three largest structures of a case are left to `score`. "Ten times" is the share of first
    answers that are more than ten times too large.
    """
    session = InteractiveSession(load_segmenter(model, device="cpu"))
    for is_human in (False, True):
        kinds: dict[str, list[npt.NDArray[np.float64]]] = {}
        too_large = []
        for path in sorted(p for p in folder.glob("*/*") if only in p.parent.name):
            volume, labels = read_case(path)
            session.set_volume(volume)
            values, sizes = np.unique(labels[labels > 0], return_counts=True)
            order = np.argsort(-sizes)
            most = SMALL_ML * 1000 / np.prod(volume.spacing_mm)
            small = [int(values[i]) for i in order[TARGETS:] if 100 <= sizes[i] < most]
            found = []
            for label in small[-SMALL_TARGETS:]:
                target = labels == label
                session.reset()
                rng = np.random.default_rng(label) if is_human else None
                masks = [m for m, _ in simulate_clicks(session, target, SMALL_CLICKS, rng)]
                scores = [dice(mask, target) for mask in masks]
                found.append(scores + [1.0] * (SMALL_CLICKS - len(scores)))
                too_large.append(int(masks[0].sum()) > 10 * int(target.sum()))
            if found:
                kinds.setdefault(path.parent.name, []).append(np.mean(found, axis=0))
        mean = np.mean([np.mean(cases, axis=0) for cases in kinds.values()], axis=0)
        name = "human-like" if is_human else "ideal"
        print(f"{name}: {len(too_large)} structures of {len(kinds)} kinds;", *mean.round(3))
        print(f"more than ten times too large: {np.mean(too_large):.2f}", flush=True)


def columns(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return mean scores by kind, with equal weight per case."""
    kinds: dict[str, dict[str, list[list[float]]]] = {}
    for row in rows:
        cases = kinds.setdefault(row["kind"], {})
        human = [row["human_box"], *row["human"]] if "human" in row else []
        cases.setdefault(row["case"], []).append([row["box"], *row["clicks"], *human])
    table = {}
    for kind, cases in kinds.items():
        mean = np.mean([np.mean(v, axis=0) for v in cases.values()], axis=0)
        names = ["box", *(str(i) for i in range(1, CLICKS + 1))]
        names += [f"human {name}" for name in names]
        table[kind] = dict(zip(names, map(float, mean), strict=False))
    return table


def print_table(files: list[Path]) -> None:
    """Print box, first, third and fifth click of several score files side by side.

    If all files have them, the scores of human-like prompts follow after a slash.
    """
    tables = [columns(json.loads(f.read_text())) for f in files]
    shared = sorted(set.intersection(*map(set, tables)))
    unseen = [k for k in shared if k in DRAWN or not REAL[k][1]]
    seen = [k for k in shared if k not in unseen]
    shown = ("box", "1", "3", "5")
    known = ("heart MR", "abdomen CT", "abdomen MR")
    head = " | ".join(f"{f.stem}: box, 1, 3, 5" for f in files)
    print(f"| kind | {head} |\n|---|{'---|' * len(files)}")
    for group, kinds in (
        ("unseen", [k for k in unseen if k not in known]),
        ("seen", seen),
        ("hearts, abdomens", [k for k in shared if k in known]),
    ):
        rows = [(kind, [t[kind] for t in tables]) for kind in kinds]
        if kinds:
            means = [
                {c: float(np.mean([t[k][c] for k in kinds])) for c in tables[0][kinds[0]]}
                for t in tables
            ]
            rows.append((f"**mean, {group}**", means))
        for name, scores in rows:
            cells = [" ".join(f"{s[c]:.3f}" for c in shown) for s in scores]
            if all("human box" in s for s in scores):
                human = [" ".join(f"{s[f'human {c}']:.3f}" for c in shown) for s in scores]
                cells = [f"{ideal} / {like}" for ideal, like in zip(cells, human, strict=True)]
            print(f"| {name} | {' | '.join(cells)} |")


def draw_worst(folder: Path, rows: list[dict[str, Any]], model: str, pictures: Path) -> None:
    """Draw the target of each kind with the lowest Dice after five clicks.

    The scan's licence determines who may see the picture.
    """
    from pumit.report.click_tables import draw_worst_targets

    segmenter = load_segmenter(model, device="cpu")

    def open_session(volume: Volume) -> InteractiveSession:
        session = InteractiveSession(segmenter)
        session.set_volume(volume)
        return session

    for kind in sorted({row["kind"] for row in rows}):
        worst = min((r for r in rows if r["kind"] == kind), key=lambda r: r["clicks"][-1])
        for path in draw_worst_targets([worst], folder / kind, pictures / kind, open_session):
            print(kind, path.name, worst["box"], worst["clicks"], flush=True)


def main() -> None:
    """Build, score, print or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("build", "score", "table", "worst", "small"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--model", default="default")
    parser.add_argument("--only", default="")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    if args.action == "build":
        build(args.paths[0], args.shared.resolve())
    elif args.action == "score":
        rows = []
        for row in score(args.paths[0], args.model, args.only):
            rows.append(row)
            print(row["kind"], row["case"], row["box"], row["clicks"], flush=True)
            args.output.write_text(json.dumps(rows))
    elif args.action == "small":
        score_small(args.paths[0], args.model, args.only)
    elif args.action == "worst":
        folder, found = args.paths
        draw_worst(folder, json.loads(found.read_text()), args.model, args.output)
    else:
        print_table(args.paths)


if __name__ == "__main__":
    main()
