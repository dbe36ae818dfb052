"""Clicks that a campaign takes: with learning, in several orders, and without.

A simulated annotator starts from four labelled scans and labels all others of a set, one after the
other, as the campaign gives them out. Each scan begins with the prediction, if there is one. While
its Dice, mean of the classes, is below the goal, the annotator clicks in the largest error of the
worst class; after 20 clicks a scan counts 20 and its true label is accepted, as if painted by hand.
Between scans the campaign trains as `pumit campaign train --predict` does.

    python Testing/lab/campaign.py HIPPOCAMPUS --classes anterior posterior --goal 0.88 \
        --order uncertain random none --seeds 1 --out rows.jsonl

HIPPOCAMPUS holds images/ and labels/ of the same names. `none` is the same without learning. Rows
are written scan by scan; `--table rows.jsonl` prints what is there. Only the `default` model
clicks, and no installed automatic model predicts.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

MOST_CLICKS = 20
FIRST = 4


def annotate(
    session: Any, truth: dict[str, Any], begun: dict[str, Any], goal: float
) -> tuple[int, float, dict[str, Any]]:
    """Click until the goal; returns clicks, Dice at first, and the masks at the end."""
    from pumit.evaluation.metrics import dice
    from pumit.evaluation.simulated_user import deepest
    from pumit.inference.automatic.components import largest_component
    from pumit.prompts import MaskPrompt, PointPrompt

    empty = np.zeros(session.volume.shape, dtype=bool)
    masks = {name: begun.get(name, empty) for name in truth}
    for name, mask in masks.items():
        if mask.any():
            session.add_prompt(MaskPrompt(mask), segment=name)

    def scores() -> dict[str, float]:
        return {name: dice(masks[name], truth[name]) for name in truth}

    first = float(np.mean(list(scores().values())))
    for count in range(MOST_CLICKS + 1):
        now = scores()
        if np.mean(list(now.values())) >= goal:
            return count, first, masks
        if count == MOST_CLICKS:
            break
        name = min(now, key=lambda n: now[n])
        missing, excess = truth[name] & ~masks[name], masks[name] & ~truth[name]
        sizes = [int(largest_component(m).sum()) if m.any() else 0 for m in (missing, excess)]
        is_positive = sizes[0] >= sizes[1]
        place = deepest(missing if is_positive else excess, session.volume.spacing_mm)
        point = session.volume.index_to_world(place).tolist()
        session.add_prompt(PointPrompt(tuple(point), is_positive=is_positive), segment=name)
        masks[name] = session.predict(name)
    return MOST_CLICKS, first, truth


def run(args: argparse.Namespace, order: str, seed: int, write: Any) -> None:
    """Label a whole set once."""
    from pumit.campaign import Campaign, CampaignSettings
    from pumit.campaign.accepting import PERSON
    from pumit.campaign.labels import masks_of_files, segmentation_of
    from pumit.inference.interactive.segmenter import load_segmenter
    from pumit.inference.interactive.session import InteractiveSession

    names = sorted(p.name for p in (args.data / "images").iterdir())[: args.most]
    random.Random(seed).shuffle(names)
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        lab = Path(work) / "lab"
        for part in ("images", "labels"):
            (lab / part).mkdir(parents=True)
        for number, name in enumerate(names):
            shutil.copyfile(args.data / "images" / name, lab / "images" / name)
            if number < FIRST:
                shutil.copyfile(args.data / "labels" / name, lab / "labels" / name)
        learns = order != "none"
        settings = CampaignSettings(
            train_after=args.train_after,
            order=order if learns else "random",
            training_seconds=args.seconds,
            refines_clicks=not args.no_clicks,
        )
        campaign = Campaign.create(
            Path(work) / "campaign", [lab], args.classes, name="bench", settings=settings
        )
        # Patients for validation and the random order follow from it.
        campaign._change(lambda content: {**content, "salt": f"seed {seed}"})
        number, model, segmenter = 0, None, load_segmenter("default")
        while True:
            if learns and campaign.is_training_due:
                began = time.monotonic()
                command = [
                    sys.executable,
                    "-m",
                    "pumit",
                    "campaign",
                    "train",
                    "--predict",
                    "--foreground",
                ]
                subprocess.run(
                    [*command, str(campaign.folder)], check=True, stdout=subprocess.DEVNULL
                )
                one = campaign_round(campaign)
                write({"round": one, "minutes": round((time.monotonic() - began) / 60, 2)})
                if campaign.click_model != model:
                    model = campaign.click_model
                    segmenter = load_segmenter(model)
            scan = campaign.next_scan()
            if scan is None:
                return
            volume = campaign.volume(scan)
            files = campaign.files(scan)
            label = args.data / "labels" / scan.path.name
            truth = masks_of_files([label], volume, campaign.classes)
            begun = {}
            if files.prediction is not None:
                begun = masks_of_files([files.prediction], volume, campaign.classes)
            session = InteractiveSession(segmenter)
            session.set_volume(volume)
            clicks, first, masks = annotate(session, truth, begun, args.goal)
            session.close()
            accepted = segmentation_of(masks, volume, campaign.classes, PERSON)
            campaign.accept(scan, accepted, clicks=clicks)
            number += 1
            write(
                {
                    "scan": number,
                    "case": scan.name,
                    "clicks": clicks,
                    "first": round(first, 4),
                    "by_round": scan.round,
                    "for_validation": campaign.scan(scan).is_validation,
                }
            )


def campaign_round(campaign: Any) -> dict[str, Any]:
    """Figures of the last round."""
    campaign.refresh()
    one = dict(vars(campaign.rounds[-1]))
    one["trained"], one["validated"] = len(one["trained"]), len(one["validated"])
    return {k: one[k] for k in one if k not in ("folder", "model", "calibration")}


def table(path: Path) -> None:
    """Print clicks and first Dice by order."""
    clicks: dict[tuple[str, int], list[int]] = defaultdict(list)
    first: dict[tuple[str, int], list[float]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "scan" in row:
            clicks[row["order"], row["seed"]].append(row["clicks"])
            first[row["order"], row["seed"]].append(row["first"])
    print("| order | seed | scans | clicks | first half | second half | Dice before a click |")
    print("|---|---|---|---|---|---|---|")
    for (order, seed), found in sorted(clicks.items()):
        half = len(found) // 2
        dice = np.mean(first[order, seed])
        print(
            f"| {order} | {seed} | {len(found)} | {sum(found)} | {sum(found[:half])} | "
            f"{sum(found[half:])} | {dice:.3f} |"
        )


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?", help="folder with images/ and labels/")
    parser.add_argument("--table", type=Path, help="print the table of a file of rows")
    parser.add_argument("--classes", nargs="+", default=["anterior", "posterior"])
    parser.add_argument("--goal", type=float, default=0.88)
    parser.add_argument("--order", nargs="+", default=["uncertain", "random", "none"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--seconds", type=float, default=180.0, help="of a training")
    parser.add_argument("--train-after", type=int, default=3)
    parser.add_argument("--most", type=int, help="most scans to use")
    parser.add_argument("--no-clicks", action="store_true", help="do not refine the clicks")
    parser.add_argument("--work", type=Path, help="folder for the campaigns")
    parser.add_argument("--out", type=Path, default=Path("campaign_rows.jsonl"))
    args = parser.parse_args()
    if args.table:
        table(args.table)
        return
    for seed in args.seeds:
        for order in args.order:

            def write(row: dict[str, Any], order: str = order, seed: int = seed) -> None:
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"order": order, "seed": seed, **row}) + "\n")

            run(args, order, seed, write)
    table(args.out)


if __name__ == "__main__":
    main()
