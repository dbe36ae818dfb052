"""Gain of starting from the promptable model's encoder, with few labels.

    python Testing/lab/ablations/initial_encoder.py --data HIPPOCAMPUS --out rows.jsonl

Measures Dice on eight held-out hippocampus scans, after training on 20 % and 100 % of the labels of
sixteen. There are five seeds; each training takes ten minutes of two threads. The network
`pumit_encoder_small` starts from scratch and from `initial: default`; the shipped small network, in
a second file, starts from scratch. This takes some seven hours; run again with the same --out, it
makes only what is missing.

Source:
    PUMIT, table 4.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "accuracy" / "label_efficiency.py"
RUNS = (
    ("pumit_encoder_small", "scratch,pretrained", ""),
    ("pumit_segmentation_small", "scratch", "_segmentation"),
)


def main() -> None:
    """Run both networks, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with images/ and labels/")
    parser.add_argument("--out", type=Path, default=Path("initial_encoder.jsonl"))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    for network, starts, suffix in RUNS:
        out = args.out.with_stem(args.out.stem + suffix)
        command = [sys.executable, str(SCRIPT), "--data", str(args.data), "--initial", "default"]
        command += ["--network", network, "--starts", starts, "--shares", "0.2,1.0"]
        command += ["--seconds", str(args.seconds), "--threads", "2", "--processes", "1"]
        subprocess.run([*command, "--seeds", str(args.seeds), "--out", str(out)], check=True)


if __name__ == "__main__":
    main()
