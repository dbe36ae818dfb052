"""Number of clicks in campaigns: with active learning in several orders, and without a model.

A simulated annotator starts from four labelled scans and labels the others of a set in the order of
the campaign. Each scan starts from the prediction, if there is one. While its Dice, averaged over
classes, is below the goal, the annotator clicks in the largest error of the worst class. A class
whose prediction has Dice below 0.5 is reset first, which counts as a click, since drawing from
scratch is quicker. After 20 clicks the scan counts 20 clicks and its ground truth is accepted, as
if painted by hand. Between scans the campaign trains like `pumit campaign train --predict`.

    OMP_NUM_THREADS=1 nice python Testing/lab/campaign.py ../shared --out rows.jsonl --work WORK

An interrupted run resumes with the same command. `--table` prints the rows so far. The order
`nothing` is the baseline: every scan by clicks of `default` from scratch. `speed` times a first
click before and during a training. Click models start as `default`, and no installed automatic
model predicts. `--seconds` is the time on the cores that OMP_NUM_THREADS allows: give twice as many
seconds for one core as for two.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MOST_CLICKS = 20
USELESS = 0.5  # Dice of a prediction below which the annotator resets the segment
FIRST = 4
SPEED_SCANS = 5
Write = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Cases:
    """A set of scans.

    Attributes:
        images: Pattern of its images below the shared folder.
        classes: Label value of each class.
        goal: Dice that a scan has to reach, averaged over classes.
        every: Step through the sorted cases, to limit their number.
    """

    images: str
    classes: Mapping[str, int]
    goal: float
    every: int = 1

    def find(self, shared: Path, most: int | None) -> dict[str, tuple[Path, Path]]:
        """Return image and label file by case name."""
        found = {}
        for image in sorted(shared.glob(self.images))[:: self.every][:most]:
            is_case = image.name == "image.nii.gz"
            name = image.parent.name if is_case else image.name.partition(".")[0]
            labels = image.parent if is_case else image.parent.parent / "labels"
            found[name] = (image, labels / ("label.nii.gz" if is_case else image.name))
        return found


SETS = {
    "hippocampi": Cases(
        "data/hippocampus/images/*.nii.gz", {"anterior": 1, "posterior": 2}, goal=0.88
    ),
    "hearts": Cases(
        "train/cases/mr_acdc_*/image.nii.gz",
        {"right ventricle": 1, "myocardium": 2, "left ventricle": 3},
        goal=0.9,
        every=3,
    ),
    "abdomens": Cases(
        "train/cases/ct_btcv_*/image.nii.gz",
        {"spleen": 1, "right kidney": 2, "left kidney": 3, "liver": 6},
        goal=0.85,
    ),
}


class Bench:
    """Runs of one set.

    Args:
        name: Name of the set.
        args: Command line.
        write: Callback that stores a row.
    """

    def __init__(self, name: str, args: argparse.Namespace, write: Write) -> None:
        self.set, self.args, self.write = SETS[name], args, write
        self.name, self.work = name, args.work / name
        self.cases = self.set.find(args.shared, args.most)
        if len(self.cases) <= FIRST:
            raise SystemExit(f"{name}: {len(self.cases)} scans are too few.")
        self._loaded: tuple[Any, Any] = (None, None)

    def segmenter(self, model: Path | None = None) -> Any:
        """Load a click model; the last one is cached."""
        from pumit.inference.interactive.segmenter import load_segmenter

        key = model or "default"
        if self._loaded[0] != key:
            self._loaded = (key, load_segmenter(key))
        return self._loaded[1]

    def truth(self, name: str) -> tuple[Any, dict[str, Any]]:
        """Read a scan and its ground truth masks by class."""
        import SimpleITK
        from pumit.volume import Volume

        image, label = self.cases[name]
        values = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(label)))
        return Volume.read(image), {c: values == v for c, v in self.set.classes.items()}

    def campaign(self, order: str, seed: int) -> Any:
        """Resume the campaign of a run, or create it."""
        from pumit.campaign import Campaign, CampaignSettings
        from pumit.export.labelmap import write_labels

        folder = self.work / f"{order}-{seed}"
        if (folder / "campaign" / "campaign.json").exists():
            return Campaign.open(folder / "campaign")
        names = sorted(self.cases)
        random.Random(seed).shuffle(names)
        for part in ("images", "labels"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(names):
            image = folder / "images" / f"{name}.nii.gz"
            if not image.exists():
                image.symlink_to(self.cases[name][0].resolve())
            if number < FIRST:
                volume, truth = self.truth(name)
                labels = np.zeros(volume.shape, np.uint8)
                for value, mask in enumerate(truth.values(), start=1):
                    labels[mask] = value
                write_labels(labels, volume, folder / "labels" / f"{name}.nii.gz")
        settings = CampaignSettings(
            train_after=self.args.train_after,
            order=order,
            training_seconds=self.args.seconds,
            refines_clicks=not self.args.no_clicks,
        )
        made = Campaign.create(
            *(folder / "campaign", [folder], list(self.set.classes)),
            name="bench",
            settings=settings,
        )
        # The salt determines the validation patients and the random order.
        made._change(lambda content: {**content, "salt": f"seed {seed}"})
        return made

    def nothing(self, done: set[str]) -> None:
        """Label every remaining scan by clicks from scratch."""
        for name in self.cases.keys() - done:
            volume, truth = self.truth(name)
            self.write({"case": name, **self._annotate(self.segmenter(), volume, truth, {})[0]})

    def run(self, order: str, seed: int) -> None:
        """Label the remaining scans of the set."""
        from pumit.campaign.accepting import PERSON
        from pumit.campaign.labels import masks_of_files, segmentation_of

        campaign = self.campaign(order, seed)
        while True:
            if campaign.is_training_due:
                began = time.monotonic()
                subprocess.run(_command(campaign, "--foreground", "--predict"), check=True)
                minutes = round((time.monotonic() - began) / 60, 2)
                self.write({"round": _last_round(campaign), "minutes": minutes})
            scan = campaign.next_scan()
            if scan is None:
                self.write({"is_done": True})
                return
            volume, truth = self.truth(scan.name)
            prediction = campaign.files(scan).prediction
            begun = {}
            if prediction is not None:
                begun = masks_of_files([prediction], volume, campaign.classes)
            segmenter = self.segmenter(campaign.click_model)
            row, masks = self._annotate(segmenter, volume, truth, begun)
            self.write(
                {
                    "case": scan.name,
                    **row,
                    "by_round": scan.round,
                    "is_refined": campaign.click_model is not None,
                    "is_validation": scan.is_validation,
                }
            )
            accepted = segmentation_of(masks, volume, campaign.classes, PERSON)
            campaign.accept(scan, accepted, clicks=row["clicks"])

    def speed(self) -> None:
        """Time a first click before and during a background training."""
        campaign = self.campaign("random", 0)
        names = sorted(s.name for s in campaign.scans())[:SPEED_SCANS]
        self._first_click(names[0])  # warm up
        before = [self._first_click(name) for name in names]
        campaign.change_settings(training_seconds=600.0)
        process = subprocess.Popen(_command(campaign), stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 120
            status = None
            while (status is None or not status.step) and time.monotonic() < until:
                time.sleep(1.0)
                campaign.refresh()
                status = campaign.training()
            during = [self._first_click(name) for name in names]
        finally:
            process.kill()
            process.wait()
            campaign.change_settings(training_seconds=self.args.seconds)
        ratio = statistics.median(d / b for d, b in zip(during, before, strict=True))
        self.write(
            {
                "before_s": round(statistics.median(before), 3),
                "during_s": round(statistics.median(during), 3),
                "ratio": round(ratio, 2),
                "is_done": True,
            }
        )

    def _first_click(self, name: str) -> float:
        volume, truth = self.truth(name)
        began = time.monotonic()
        self._annotate(self.segmenter(), volume, truth, {}, most=1)
        return time.monotonic() - began

    def _annotate(
        self,
        segmenter: Any,
        volume: Any,
        truth: dict[str, Any],
        begun: dict[str, Any],
        *,
        most: int = MOST_CLICKS,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Click until the goal; return the scan's result row and the accepted masks."""
        from pumit.evaluation.metrics import dice
        from pumit.evaluation.simulated_user import deepest
        from pumit.inference.automatic.components import largest_component
        from pumit.inference.interactive.session import InteractiveSession
        from pumit.prompts import MaskPrompt, PointPrompt

        session = InteractiveSession(segmenter)
        session.set_volume(volume)
        empty = np.zeros(volume.shape, dtype=bool)
        there = [name for name, mask in truth.items() if mask.any()]
        masks = {name: begun.get(name, empty) for name in there}
        useless = [n for n, m in masks.items() if m.any() and dice(m, truth[n]) < USELESS]
        masks |= dict.fromkeys(useless, empty)
        for name, mask in masks.items():
            if mask.any():
                session.add_prompt(MaskPrompt(mask), segment=name)
        course: list[float] = []
        while True:
            now = {name: dice(masks[name], truth[name]) for name in there}
            course.append(round(float(np.mean(list(now.values()))), 4))
            is_reached = course[-1] >= self.set.goal
            if is_reached or len(course) + len(useless) > most:
                break
            name = min(now, key=lambda n: now[n])
            missing, excess = truth[name] & ~masks[name], masks[name] & ~truth[name]
            sizes = [int(largest_component(m).sum()) if m.any() else 0 for m in (missing, excess)]
            is_inside = sizes[0] >= sizes[1]
            place = deepest(missing if is_inside else excess, volume.spacing_mm)
            point = tuple(volume.index_to_world(place).tolist())
            session.add_prompt(PointPrompt(point, is_positive=is_inside), segment=name)
            masks[name] = session.predict(name)
        session.close()
        presses = len(course) - 1 + len(useless)
        row = {
            "clicks": min(presses, MOST_CLICKS) if is_reached else MOST_CLICKS,
            "reset": len(useless),
            "first": course[0],
            "last": course[-1],
            "accepted": course[-1] if is_reached else 1.0,
        }
        return row, masks if is_reached else truth


def _command(campaign: Any, *options: str) -> list[str]:
    return [sys.executable, "-m", "pumit", "campaign", "train", str(campaign.folder), *options]


def _last_round(campaign: Any) -> dict[str, Any]:
    campaign.refresh()
    one = dict(vars(campaign.rounds[-1]))
    one["trained"], one["validated"] = len(one["trained"]), len(one["validated"])
    return {k: one[k] for k in one if k not in ("folder", "model", "calibration", "sentence")}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows so far, without an incomplete last line."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def table(path: Path) -> None:
    """Print clicks, Dice and time by set, order and seed; incomplete runs are marked."""
    rows = read_rows(path)
    alone: dict[str, dict[str, int]] = {}
    runs: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        if row["order"] == "nothing":
            if "case" in row:
                alone.setdefault(row["set"], {})[row["case"]] = row["clicks"]
        elif row["order"] != "speed":
            runs.setdefault((row["set"], row["order"], row["seed"]), []).append(row)
    print(
        "| set | order | seed | scans | clicks | without | fewer | first half | second half | "
        "for validation | Dice before a click | accepted | on validation at half, at the end | "
        "minutes a round |"
    )
    print("|" + "---|" * 14)
    for (name, order, seed), own in sorted(runs.items()):
        scans = list({r["case"]: r for r in own if "case" in r}.values())
        if not scans:
            continue
        clicks = [r["clicks"] for r in scans]
        without = [alone.get(name, {}).get(r["case"]) for r in scans]
        rounds = [r for r in own if "round" in r]
        half = len(scans) // 2
        dice = [r["round"]["dice"] for r in rounds if not r["round"]["is_rough"]]
        known = [c for c in without if c is not None]
        fewer = (
            f"{1 - sum(clicks) / sum(known):.0%}" if known and len(known) == len(clicks) else "-"
        )
        cells = [
            *(name, order, seed, len(scans), sum(clicks), sum(known), fewer),
            *(sum(clicks[:half]), sum(clicks[half:])),
            sum(r["clicks"] for r in scans if r["is_validation"]),
            *(f"{np.mean([r[k] for r in scans]):.3f}" for k in ("first", "accepted")),
            f"{dice[len(dice) // 2]:.3f}, {dice[-1]:.3f}" if dice else "-",
            f"{max(r['minutes'] for r in rounds):.1f}" if rounds else "-",
        ]
        is_over = any(r.get("is_done") for r in own)
        print(f"| {' | '.join(map(str, cells))} |{'' if is_over else ' not over'}")
    for row in rows:
        if row["order"] == "speed":
            print(
                f"{row['set']}: a first click takes {row['before_s']} s, {row['during_s']} s "
                f"while it trains ({row['ratio']} times)."
            )


def main() -> None:
    """Run the missing benchmarks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=Path, help="folder with data/ and train/")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--orders", nargs="+", default=["nothing", "uncertain", "random", "speed"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--seconds", type=float, default=180.0, help="of a training")
    parser.add_argument("--train-after", type=int, default=3)
    parser.add_argument("--most", type=int, help="most scans of a set to use")
    parser.add_argument("--no-clicks", action="store_true", help="do not refine the clicks")
    parser.add_argument("--work", type=Path, default=Path("campaign_work"))
    parser.add_argument("--out", type=Path, default=Path("campaign_rows.jsonl"))
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    if args.table:
        table(args.out)
        return
    if threads := os.environ.get("OMP_NUM_THREADS"):
        import torch

        torch.set_num_threads(int(threads))
    args.work.mkdir(parents=True, exist_ok=True)
    for seed in args.seeds:
        for name in args.sets:
            for order in args.orders:
                if order in ("nothing", "speed") and seed != args.seeds[0]:
                    continue
                key = {"set": name, "order": order, "seed": seed}
                own = [r for r in read_rows(args.out) if key.items() <= r.items()]
                if any(r.get("is_done") for r in own):
                    continue

                def write(row: dict[str, Any], key: dict[str, Any] = key) -> None:
                    with args.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({**key, **row}) + "\n")

                bench = Bench(name, args, write)
                if order == "nothing":
                    bench.nothing({r["case"] for r in own if "case" in r})
                    write({"is_done": True})
                elif order == "speed":
                    bench.speed()
                else:
                    bench.run(order, seed)
    table(args.out)


if __name__ == "__main__":
    main()
