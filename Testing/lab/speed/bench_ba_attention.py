"""Time BA attention against plain scaled_dot_product_attention at the same length.

python Testing/lab/speed/bench_ba_attention.py [--threads 2] [--repeats 7]

Run by hand. Both are timed in turns in one run, so that other load slows both; the ratio is the
median over the turns. "distinct" uses one slope per head, "one slope" the same for all heads.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from pumit.networks.ba_attention import ba_attention
from pumit.networks.ba_sam import token_distance
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

CASES = [  # grid, heads, head dimension
    ((32, 32), 6, 32),
    ((32, 32), 12, 64),
    ((64, 64), 6, 32),
    ((64, 64), 12, 64),
    ((16, 16, 16), 12, 64),
    ((32, 16, 16), 6, 64),
    ((64, 128), 12, 64),
]


def turns(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if turn:  # the first turn warms up
                seconds[name].append(time.perf_counter() - start)
    return seconds


def attentions(grid: tuple[int, ...], heads: int, head_dim: int) -> dict[str, Callable[[], Tensor]]:
    axes = torch.meshgrid(*[torch.arange(n) for n in grid], indexing="ij")
    positions = torch.stack(axes, -1).reshape(-1, len(grid))
    length = len(positions)
    q, k, v = (torch.randn(1, heads, length, head_dim) for _ in range(3))
    distance = token_distance(positions)
    distinct = 0.1 * 2.0 ** -torch.arange(heads).float().div(heads)
    return {
        "plain": lambda: scaled_dot_product_attention(q, k, v),
        "zero slope": lambda: ba_attention(q, k, v, distance, 0.0, n_train=length),
        "one slope": lambda: ba_attention(q, k, v, distance, 0.1, n_train=length),
        "distinct": lambda: ba_attention(q, k, v, distance, distinct, n_train=length),
        "positions": lambda: ba_attention(q, k, v, positions, distinct, n_train=length),
    }


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    names = ["zero slope", "one slope", "distinct", "positions"]
    print("grid          N  heads  dim  plain ms  " + "  ".join(f"{n:>10}" for n in names))
    for grid, heads, head_dim in CASES:
        functions = attentions(grid, heads, head_dim)
        length = torch.Size(grid).numel()
        repeats = arguments.repeats * (4 if length <= 1024 else 1)
        seconds = turns(functions, repeats)
        plain = seconds["plain"]
        ratios = [
            statistics.median(a / b for a, b in zip(seconds[n], plain, strict=True)) for n in names
        ]
        size = "x".join(map(str, grid))
        print(
            f"{size:9} {length:5}  {heads:5}  {head_dim:3}  {statistics.median(plain) * 1e3:8.1f}  "
            + "  ".join(f"{r:10.3f}" for r in ratios),
            flush=True,
        )


if __name__ == "__main__":
    main()
