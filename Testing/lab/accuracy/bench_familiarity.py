"""Evaluation of a tokenizer's familiarity score: known images against odd ones.

    python Testing/lab/accuracy/bench_familiarity.py --model TOKENIZER --cases FOLDER \
        --fit OUT

Run by hand. Fits the scale on generated scans, on the cases of FOLDER that the tokenizer was
trained on according to its recipe, and on odd images. Reports errors by cross-validation over scans
and with each odd kind left out, and writes the checkpoint with the scale. Without `--fit` the
checkpoint's own scale is evaluated. `--measure KIND=PATTERN` adds real images that are never
fitted; the pattern is relative to FOLDER's parent. `--rows FILE` caches the measurements.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from familiarity_fit import (
    Floats,
    Row,
    area_under_curve,
    cross_validated,
    reference_of,
    scores,
    without_kind,
)
from familiarity_images import (
    Sample,
    generated,
    measured,
    phantoms,
    photographs,
    real,
    synthetic,
)
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pumit.inference.tokenizer.familiarity import FAMILIAR
from pumit.inference.tokenizer.reconstruction import Tokenizer, load_tokenizer
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.models.index import find_model
from pumit.system.files import file_sha256

PHANTOMS = 8


def measure(tokenizer: Tokenizer, samples: Iterable[Sample]) -> Iterator[Row]:
    """Measure images; progress goes to standard error."""
    started = time.monotonic()
    for i, sample in enumerate(samples):
        answer = tokenizer.reconstruct(sample.volume)
        kept = ("token_rarity_nats", "token_mix_nats")  # recomputed from the shares at each fit
        figures = {k: v for k, v in answer.measured.items() if k not in kept}
        yield Row(
            sample.role, sample.kind, sample.source, figures, answer.use.shares, answer.psnr_db
        )
        if i % 20 == 19:
            print(f"{i + 1} images, {time.monotonic() - started:.0f} s", file=sys.stderr)


def samples_of(args: argparse.Namespace, cases: list[str]) -> Iterator[Sample]:
    rng = np.random.default_rng(args.seed)
    yield from generated(args.generated, 70_000 + args.seed)
    yield from phantoms(PHANTOMS)
    yield from synthetic(rng)
    yield from photographs()
    if args.cases:
        yield from real(args.cases, cases, rng)
        groups: dict[str, list[Path]] = {}
        for given in args.measure:
            kind, _, pattern = given.partition("=")
            groups.setdefault(kind, []).extend(sorted(args.cases.parent.glob(pattern)))
        yield from measured(args.cases, groups, rng)


def trained_cases(recipe: dict[str, Any], folder: Path | None) -> list[str]:
    """Return the cases of a folder on which the tokenizer was trained, by its recipe."""
    training = recipe.get("training", {})
    shown = training.get("real_images") or training.get("real_cases") or []
    if folder is None:
        return []
    patterns = [name["pattern"] if isinstance(name, dict) else name for name in shown]
    # Relative to the folder (weights before 0.2), or to its grandparent.
    found = {path for name in patterns for path in folder.parents[1].glob(name)}
    found |= {path for name in patterns if not name.startswith("..") for path in folder.glob(name)}
    return sorted({path.parent.name for path in found if path.parent.parent == folder})


def write_rows(rows: list[Row], path: Path) -> None:
    values = [{**vars(row), "shares": [float(f"{s:.4g}") for s in row.shares]} for row in rows]
    path.write_text(json.dumps(values), encoding="utf-8")


def read_rows(path: Path) -> list[Row]:
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [Row(**{**row, "shares": np.array(row["shares"])}) for row in rows]


def report(rows: list[Row], shown: Floats, left_out: dict[str, Floats]) -> None:
    """Print a line per kind, and totals.

    `left out` is the AUC of a scale fitted without the kind; `< own` is the fraction of images that
    score lower than the scan they were made from.
    """
    known = shown[[row.role == "known" for row in rows]]
    print(f"{'':<14}{'kind':<28}{'n':>4}{'10 %':>6}{'median':>8}{'90 %':>6}{'>= 50':>7}{'AUC':>7}"
          f"{'left out':>10}{'< own':>7}")  # fmt: skip
    own = {
        row.source: score
        for row, score in zip(rows, shown, strict=True)
        if row.role == "measured" or row.kind == "real scan"
    }
    order = {"known": 0, "measured": 1, "odd": 2, "measured odd": 3}
    for role, kind in sorted(
        {(row.role, row.kind) for row in rows}, key=lambda k: (order[k[0]], k)
    ):
        part = shown[[row.role == role and row.kind == kind for row in rows]]
        low, middle, high = np.percentile(part, (10, 50, 90))
        line = f"{role:<14}{kind:<28}{len(part):>4}{low:>6.0f}{middle:>8.0f}{high:>6.0f}"
        line += f"{(part >= FAMILIAR).mean():>7.2f}"
        if role.endswith("odd"):
            line += f"{area_under_curve(known, part):>7.3f}"
            out = left_out.get(kind) if role == "odd" else None
            line += f"{'' if out is None else f'{area_under_curve(known, out):.3f}':>10}"
            pairs = [
                score < own[row.source]
                for row, score in zip(rows, shown, strict=True)
                if (row.role, row.kind) == (role, kind) and row.source in own
            ]
            line += f"{np.mean(pairs):>7.2f}" if pairs else ""
        print(line)
    odd = shown[[row.role == "odd" for row in rows]]
    kinds = sorted({row.kind for row in rows if row.role == "odd"})
    print(f"\nAUC of all known and odd images: {area_under_curve(known, odd):.3f}")
    if left_out:
        mean = np.mean([area_under_curve(known, left_out[kind]) for kind in kinds])
        print(f"mean AUC of the odd kinds, each left out of the fit: {mean:.3f}")
    real = shown[[row.role == "measured" for row in rows]]
    spoilt = shown[[row.role == "measured odd" for row in rows]]
    if len(real) and len(spoilt):
        print(f"AUC of measured images and odd ones made of them: "
              f"{area_under_curve(real, spoilt):.3f}")  # fmt: skip


def draw(rows: list[Row], shown: Floats, path: Path) -> None:
    """Draw a PNG with a row of dots per kind, one dot per image."""
    order = {"known": 0, "measured": 1, "odd": 2, "measured odd": 3}
    colors = dict(zip(order, ("#15803d", "#1d4ed8", "#c2410c", "#f59e0b"), strict=True))
    kinds = sorted({(row.role, row.kind) for row in rows}, key=lambda k: (order[k[0]], k))[::-1]
    figure = Figure(figsize=(8, 0.28 * len(kinds) + 1), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rng = np.random.default_rng(0)
    for i, (role, kind) in enumerate(kinds):
        part = shown[[row.role == role and row.kind == kind for row in rows]]
        axes.plot(part, i + rng.uniform(-0.22, 0.22, len(part)), ".", color=colors[role], alpha=0.6)
        axes.plot([np.median(part)] * 2, [i - 0.35, i + 0.35], color=colors[role], lw=2)
    axes.axvline(FAMILIAR, color="#9ca3af", lw=1, ls="--")
    axes.set(xlim=(0, 100), xlabel="familiarity, %", yticks=range(len(kinds)),
             yticklabels=[f"{kind} ({role})" for role, kind in kinds])  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tokenizer", help="name of the index, or a checkpoint")
    parser.add_argument("--cases", type=Path, help="folder of cases")
    parser.add_argument("--generated", type=int, default=24, help="how many generated scans")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", action="append", default=[], metavar="KIND=PATTERN")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="JSON of what was measured")
    parser.add_argument("--picture", type=Path, metavar="PNG", help="draw the scores by kind")
    parser.add_argument("--fit", type=Path, metavar="OUT", help="write the checkpoint with a scale")
    args = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint = load_checkpoint(find_model(args.model))
    if args.rows and args.rows.exists():
        rows = read_rows(args.rows)
    else:
        tokenizer = load_tokenizer(args.model, device="cpu")
        rows = list(
            measure(tokenizer, samples_of(args, trained_cases(checkpoint.recipe, args.cases)))
        )
        if args.rows:
            write_rows(rows, args.rows)
    if not args.fit:
        shown = scores(checkpoint.recipe["reference"], rows)
        report(rows, shown, {})
        if args.picture:
            draw(rows, shown, args.picture)
        return
    fitted = [row for row in rows if row.role in ("known", "odd")]
    reference = reference_of(fitted)
    shown = scores(reference, rows)
    shown[[row.role in ("known", "odd") for row in rows]] = cross_validated(fitted)
    kinds = {row.kind for row in rows if row.role == "odd"}
    left_out = {kind: without_kind(fitted, kind) for kind in kinds}
    report(rows, shown, left_out)
    if args.picture:
        draw(rows, shown, args.picture)
    save_checkpoint(args.fit, checkpoint.state, {**checkpoint.recipe, "reference": reference})
    print(f"\nfamiliarity: {json.dumps(reference['familiarity'])}\npsnr_db: {reference['psnr_db']}")
    print(f"{args.fit.name}: sha256 {file_sha256(args.fit)}")


if __name__ == "__main__":
    main()
