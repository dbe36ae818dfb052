"""Quantise the weights of a checkpoint to 8 bits, for shipping.

usage: quantise_weights.py SOURCE TARGET
"""

from __future__ import annotations

import sys
from pathlib import Path

from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.models.int8_weights import quantised

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = map(Path, sys.argv[1:])
    model = load_checkpoint(source)
    save_checkpoint(target, quantised(model.state), model.recipe)
    print(f"{source.stat().st_size} bytes before, {target.stat().st_size} now")
