"""What clicks have taught the encoder is worth where labels are few.

    python Testing/lab/ablations/initial_encoder.py --data HIPPOCAMPUS --out rows.jsonl

Dice on eight hippocampus scans that are never trained with, at 20 % and 100 % of the labels of
sixteen, five seeds each, ten minutes of two threads for each training: `pumit_encoder_small` from
nothing and from `initial: default`, and in a file beside it the small network that ships, from
nothing. Some seven hours; started again with the same --out it makes what is missing.

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
