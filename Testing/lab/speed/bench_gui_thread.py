"""Time that each step of a click blocks the GUI thread, on a long and a short scan.

Run by hand: `python Testing/lab/speed/bench_gui_thread.py [--slices 620] [--rounds 5]
[--dtype float32] [--profile]`, with Slicer's libraries installed. The script supplies the masks, so
that only the module is measured; work on other threads is left out. The ratio compares the long
scan with one of 78 slices and the same segment, in the same process.
"""

import argparse
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [
    str(ROOT / p) for p in ("Testing", "PUMITSegment", "Testing/PUMITSegmentLib/fixtures")
]
SHORT, PLANE = 78, 512
SPACING = (0.75, 0.75, 1.0)
# Radii of the segment, voxels (d, h, w), about a liver of 1.5 L.
RADII = (36, 110, 130)


def organ(slices: int, shift: int) -> np.ndarray:
    """Return an ellipsoid at the centre of the scan, bool (D, H, W)."""
    mask = np.zeros((slices, PLANE, PLANE), dtype=bool)
    middle = np.array([slices // 2, PLANE // 2, PLANE // 2 + shift])
    start, stop = middle - RADII, middle + RADII
    d, h, w = np.ogrid[
        tuple(slice(a, b) for a, b in zip(start - middle, stop - middle, strict=True))
    ]
    inside = (d / RADII[0]) ** 2 + (h / RADII[1]) ** 2 + (w / RADII[2]) ** 2 < 1
    mask[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))] = inside
    return mask


class Bench:
    """The panel on one scan, with masks supplied by the script."""

    def __init__(self, slices: int, dtype: str, isProfiled: bool) -> None:
        import slicer
        from harness.program import modules
        from harness.views.slice_view import SliceView
        from panel_scene import Panel

        self.slices, self.isProfiled = slices, isProfiled
        self.held: dict[str, list[float]] = {}
        scan = np.random.default_rng(0).integers(-50, 100, (slices, PLANE, PLANE), np.int16)
        self.node = slicer.util.addVolumeFromArray(scan.astype(dtype))
        self.node.SetSpacing(*SPACING)
        self.view = SliceView("Red", "Axial")
        self.view.show(self.node)
        slicer.app.layoutManager().setLayout(slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView)
        self.panel = Panel(modules.loadModule)
        self.panel.logic.parameters.sourceVolume = self.node
        self.panel.process()
        self.middle = np.array([PLANE // 2, PLANE // 2, slices // 2]) * SPACING
        self.view.jumpTo(self.middle)

    def close(self) -> None:
        """Close the panel and clear the scene."""
        import slicer
        from harness.program import modules

        self.panel.close()
        modules.unloadModule("PUMITSegment")
        slicer.mrmlScene.Clear(0)

    def time(self, name: str, do: Callable[[], Any]) -> Any:
        """Measure how long a call and the events that follow from it block the thread."""
        profile = cProfile.Profile() if self.isProfiled else None
        started = _clock()
        if profile is not None:
            profile.enable()
        result = do()
        self.panel.process()
        if profile is not None:
            profile.disable()
        self.held.setdefault(name, []).append(_clock() - started)
        if profile is not None and len(self.held[name]) == 2 - (name == "first click"):
            print(f"--- {name}, {self.slices} slices")
            pstats.Stats(profile).sort_stats("cumulative").print_stats(28)
        return result

    def answer(self, name: str, mask: np.ndarray) -> None:
        """Answer the newest request; work on other threads is not measured."""
        from pumit.segmentation import AnswerChoice, PromptAnswer

        worker, request = self.panel.worker, self.panel.worker.requests[-1]
        request.isOver = True
        answer = PromptAnswer(mask, 0.9, 0.95, (), "good", AnswerChoice())
        done = worker.run(request.work, answer)
        self.time(name, lambda: request.onDone(done))

    def run(self, rounds: int) -> dict[str, float]:
        """Return the median seconds of each step."""
        logic, panel = self.panel.logic, self.panel
        logic.newSegment("Liver")
        panel.press(panel.ui.pointButton)
        masks = [organ(self.slices, shift) for shift in (0, 8)]
        for number in range(2 * rounds):
            is3D = number >= rounds
            if number == rounds:
                logic.segmentationNode.CreateClosedSurfaceRepresentation()
                panel.process()
            end = " in 3D" if is3D else ""
            first = number == 0
            place = self.middle + np.array([number, number, 0])
            self.time(
                "first click" if first else f"later click{end}",
                lambda p=place: self.view.clickAt(tuple(p)),
            )
            self.answer("first answer" if first else f"later answer{end}", masks[number % 2])
            if number % rounds:
                self.time(f"undo{end}", logic.undo)
                self.time(f"redo{end}", logic.redo)
        return {name: statistics.median(values) for name, values in self.held.items()}


def _clock() -> float:
    """Return this thread's CPU seconds, which other programs hardly affect."""
    return time.thread_time()


def main() -> None:
    """Run both scans and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=620)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="int16", help="of the scan's voxels; float32 from NIfTI")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    from harness.program import application, core_application

    core_application.start()
    application.start()
    found = {}
    for slices in (SHORT, given.slices):
        bench = Bench(slices, given.dtype, given.profile and slices > SHORT)
        found[slices] = bench.run(given.rounds)
        bench.close()
    print(f"{'GUI thread held, ms':24}{SHORT:>8}{given.slices:>8}{'ratio':>8}")
    for name, seconds in found[given.slices].items():
        short = found[SHORT][name]
        print(f"{name:24}{1000 * short:8.0f}{1000 * seconds:8.0f}{seconds / short:8.1f}")


if __name__ == "__main__":
    main()
