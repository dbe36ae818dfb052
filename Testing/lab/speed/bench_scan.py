"""Time and memory of the selective scan against a loop over tokens and MONAI's attention.

    PYTHONPATH=PUMITSegment python Testing/lab/speed/bench_scan.py [--picture curve.png]

Run by hand, on Linux. Measures forward and backward of one sequence of 512, 4,096 and 13,824 (24^3)
tokens with HyMamba's width: only the scan and the loop, at the width inside the block; and complete
token mixers, the Mamba block and MONAI's `SABlock` with and without flash attention. Times are CPU
seconds, measured in turns, so that other load matters little; ratios are medians over the turns.
Memory is the increase in a separate process; with `--turns 0` its single step also gives the time.
Runs whose extrapolated time or memory is too large are skipped, and the table says so.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from interleaved import SHORTEST_SAMPLE_S, ratio, turns
from monai.networks.blocks import SABlock
from pumit.networks.mamba_mim.mamba_block import MambaBlock
from pumit.networks.mamba_mim.selective_scan import selective_scan
from pumit.report.line_chart import Line, LineChart, write_line_charts
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "pumit" / "networks" / "mamba_mim"))
from scan_reference import selective_scan_reference

LENGTHS = (512, 4096, 24**3)
WIDTH, HEADS = 384, 6
BLOCK = {"state": 16, "conv": 4, "expand": 2, "dt_rank": 24}
LONGEST_S = 120.0
Step = Callable[[], object]


def scan_step(scan: Callable[..., Tensor], tokens: int) -> Step:
    inner, state = BLOCK["expand"] * WIDTH, BLOCK["state"]
    # Memory layout as in the block: the channels of a token are contiguous.
    u, delta, g = (torch.randn(1, tokens, inner).mT for _ in range(3))
    B, C = (torch.randn(1, tokens, state).mT for _ in range(2))
    rates = -torch.arange(1.0, state + 1).repeat(inner, 1)
    values = [u, nn.functional.softplus(delta), rates, B, C, torch.ones(inner)]
    values = [value.requires_grad_() for value in values]
    return lambda: torch.autograd.grad(scan(*values), values, g)


def attention_step(tokens: int, is_flash: bool) -> Step:
    return layer_step(SABlock(WIDTH, HEADS, use_flash_attention=is_flash), tokens)


def layer_step(layer: nn.Module, tokens: int) -> Step:
    x = torch.randn(1, tokens, WIDTH, requires_grad=True)
    inputs = [x, *(p for p in layer.parameters())]
    g = torch.randn(1, tokens, WIDTH)
    return lambda: torch.autograd.grad(layer(x), inputs, g)


CONTENDERS: dict[str, Callable[[int], Step]] = {
    "scan": lambda n: scan_step(selective_scan, n),
    "loop": lambda n: scan_step(selective_scan_reference, n),
    "Mamba block": lambda n: layer_step(MambaBlock(WIDTH, **BLOCK), n),
    "attention": lambda n: attention_step(n, is_flash=False),
    "flash attention": lambda n: attention_step(n, is_flash=True),
}
REFERENCE = {
    "loop": "scan",
    "attention": "Mamba block",
    "flash attention": "Mamba block",
}


def status_mb(key: str) -> float:
    """Return a line of this process's status in MB, such as the peak memory VmHWM."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{key}:")[1].split()[0]) / 1024


def available_mb() -> float:
    text = Path("/proc/meminfo").read_text()
    return int(text.split("MemAvailable:")[1].split()[0]) / 1024


def measure_alone(name: str, tokens: int) -> dict[str, float]:
    """Measure peak memory (MB) and CPU seconds of one step; to be run in a separate process."""
    CONTENDERS[name](16)()  # load libraries and start threads first
    step = CONTENDERS[name](tokens)
    before = status_mb("VmRSS")
    start = time.process_time()
    step()
    return {"mb": status_mb("VmHWM") - before, "seconds": time.process_time() - start}


def in_own_process(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function in a forked process, which leaves no memory or threads here."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(function(*given)))
    process.start()
    sender.close()
    answer = receiver.recv()
    process.join()
    return answer


def time_in_turns(names: Sequence[str], tokens: int, repeats: int) -> dict[str, list[float]]:
    steps = {name: CONTENDERS[name](tokens) for name in names}
    return turns(steps, repeats, shortest_s=SHORTEST_SAMPLE_S, clock=time.process_time)


@dataclass
class Figures:
    """Measurements of one contender, by number of tokens."""

    mb: dict[int, float] = field(default_factory=dict)
    alone_s: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, list[float]] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)


def expected(values: Mapping[int, float], tokens: int) -> float:
    """Extrapolate to more tokens by a power law through the last two values."""
    if len(values) < 2:
        return 0.0
    (n1, v1), (n2, v2) = list(values.items())[-2:]
    return v2 * (tokens / n2) ** (math.log(v2 / v1) / math.log(n2 / n1))


def reason_to_skip(figures: Figures, tokens: int) -> str | None:
    seconds, mb = expected(figures.alone_s, tokens), expected(figures.mb, tokens)
    if seconds > LONGEST_S:
        return f"not run: about {seconds:.0f} s"
    if mb > available_mb() / 2:
        return f"not run: about {mb / 1024:.0f} GB"
    return None


def measure(repeats: int) -> dict[str, Figures]:
    all_figures = {name: Figures() for name in CONTENDERS}
    for tokens in LENGTHS:
        for name, figures in all_figures.items():
            reason = reason_to_skip(figures, tokens)
            if reason is not None:
                figures.skipped[tokens] = reason
                continue
            alone = in_own_process(measure_alone, name, tokens)
            figures.mb[tokens], figures.alone_s[tokens] = alone["mb"], alone["seconds"]
            figures.seconds[tokens] = [alone["seconds"]]
            print(f"{name}, {tokens:,} tokens: {alone}", file=sys.stderr, flush=True)
        if repeats:
            names = [name for name, figures in all_figures.items() if tokens in figures.mb]
            timed = in_own_process(time_in_turns, names, tokens, repeats)
            for name, seconds in timed.items():
                all_figures[name].seconds[tokens] = seconds
    return all_figures


def time_cell(all_figures: dict[str, Figures], name: str, tokens: int) -> str:
    figures = all_figures[name]
    if tokens in figures.skipped:
        return figures.skipped[tokens]
    cell = f"{statistics.median(figures.seconds[tokens]):.3g} s"
    if name in REFERENCE:
        reference = all_figures[REFERENCE[name]].seconds[tokens]
        cell += f" (x{ratio(figures.seconds[tokens], reference).median:.3g})"
    return cell


def memory_cell(all_figures: dict[str, Figures], name: str, tokens: int) -> str:
    figures = all_figures[name]
    if tokens in figures.skipped:
        return figures.skipped[tokens]
    cell = f"{figures.mb[tokens]:.0f} MB"
    if name in REFERENCE:
        cell += f" (x{figures.mb[tokens] / all_figures[REFERENCE[name]].mb[tokens]:.3g})"
    return cell


def growth(values: Mapping[int, float]) -> str:
    """Format the exponent p of tokens^p between the fewest and the most measured tokens."""
    first, last = min(values), max(values)
    exponent = math.log(values[last] / values[first]) / math.log(last / first)
    return f"{exponent:.2f}" if last == max(LENGTHS) else f"{exponent:.2f} (to {last:,})"


def medians(figures: Figures) -> dict[int, float]:
    return {tokens: statistics.median(seconds) for tokens, seconds in figures.seconds.items()}


def tables(all_figures: dict[str, Figures]) -> str:
    names = list(all_figures)
    lines = []
    for title, cell, grown in (
        ("Forward and backward, processor time", time_cell, medians),
        ("Peak memory above what was held before", memory_cell, lambda figures: figures.mb),
    ):
        lines += [f"{title}:", "", f"| tokens | {' | '.join(names)} |", "|---" * 6 + "|"]
        for tokens in LENGTHS:
            row = " | ".join(cell(all_figures, name, tokens) for name in names)
            lines.append(f"| {tokens:,} | {row} |")
        exponents = " | ".join(growth(grown(all_figures[name])) for name in names)
        lines += [f"| growth exponent | {exponents} |", ""]
    lines.append(
        "In brackets: the loop against the scan, attention against the Mamba block. "
        f"Width {WIDTH} ({WIDTH * BLOCK['expand']} inside the block, {BLOCK['state']} states), "
        f"{HEADS} heads, float32."
    )
    return "\n".join(lines)


def draw(all_figures: dict[str, Figures], path: Path) -> None:
    def lines(values: Callable[[Figures], Mapping[int, float]]) -> list[Line]:
        return [
            Line(name, list(values(figures).items()), has_dots=True)
            for name, figures in all_figures.items()
        ]

    charts = [
        LineChart("processor seconds", lines(medians)),
        LineChart("peak memory, MB", lines(lambda figures: figures.mb)),
    ]
    write_line_charts(charts, path, x_label="tokens", title="Forward and backward")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    all_figures = measure(arguments.turns)
    counted = f"{arguments.turns} turns" if arguments.turns else "one step each"
    print(f"PyTorch {torch.__version__}, {arguments.threads} thread(s), {counted}\n")
    print(tables(all_figures))
    if arguments.picture is not None:
        draw(all_figures, arguments.picture)


if __name__ == "__main__":
    main()
