"""Time that the Slicer module adds to a click, and time that it blocks the GUI thread.

Run by hand: `python Testing/lab/speed/bench_slicer.py [--scan FILE] [--organ-mm 126]
[--clicks N]`, with Slicer's libraries installed (`pip install -e ".[slicer-test]"`). An organ of
126 mm radius is a mask of 6 million voxels.

The panel runs on Slicer's real scene, logics and slice views, with the worker that it starts
itself. A click lasts from the mouse event until the three slice views have drawn the new segment.
The core's time is that of the same prompts in a `pumit.InteractiveSession`, in a second process in
the same run. A timer with an interval of a few milliseconds measures how long the GUI thread is
blocked. Software rendering is timed separately: on a desktop the graphics card renders.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "Testing"), str(ROOT / "PUMITSegment")]
MODULE = ROOT / "PUMITSegment" / "PUMITSegment.py"
SHAPE, SPACING_DHW = (78, 512, 512), (2.0, 0.75, 0.75)
MARGIN_MM = 25.0
# Shorter blocking is not noticed; a timer without a pause would slow the worker down.
INTERVAL_MS = 5


def body(organ_mm: float = 55.0) -> np.ndarray:
    """Return a CT-like body with one organ of this radius at the centre, int16, (D, H, W)."""
    d, h, w = np.ogrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
    middle = [(n - 1) / 2 for n in SHAPE]
    radius2 = sum(
        ((at - m) * s) ** 2 for at, m, s in zip((d, h, w), middle, SPACING_DHW, strict=True)
    )
    noise = np.random.default_rng(0).normal(0, 25, SHAPE)
    organ = np.where(radius2 < organ_mm**2, 160, 20)
    inside = ((h - middle[1]) / 220) ** 2 + ((w - middle[2]) / 240) ** 2 < 1
    return (np.where(inside, organ, -1000) + noise).astype(np.int16)


class Watch:
    """Measures how long a short timer is delayed.

    Attributes:
        gaps: Wall seconds between two ticks, and this thread's CPU seconds in them.
    """

    def __init__(self) -> None:
        import qt

        self.gaps: list[tuple[float, float]] = []
        self._timer = qt.QTimer()
        self._timer.setInterval(INTERVAL_MS)
        self._timer.connect("timeout()", self.tick)
        self._last = _clocks()
        self._timer.start()

    def tick(self) -> None:
        """Record a moment at which the thread is free."""
        now = _clocks()
        self.gaps.append((now[0] - self._last[0], now[1] - self._last[1]))
        self._last = now

    def take(self) -> tuple[float, float]:
        """Return the longest gap since the last call, and the most CPU time in one, seconds."""
        worst = [max(values, default=0.0) for values in zip(*self.gaps, strict=True)] or [0.0, 0.0]
        self.gaps.clear()
        return worst[0], worst[1]

    def skip(self) -> None:
        """Ignore the time since the last tick."""
        self._last = _clocks()


def _clocks() -> tuple[float, float]:
    """Return wall and thread CPU time, which differ much on a busy machine."""
    return time.perf_counter(), time.thread_time()


def turn(done: Callable[[], bool]) -> None:
    """Run Qt's event loop until `done`."""
    import slicer

    end = time.monotonic() + 600
    while not done():
        if time.monotonic() > end:
            raise SystemExit("No answer came within ten minutes.")
        slicer.app.processEvents()
        # An idle event loop leaves the CPU to the worker.
        time.sleep(0.004)


def clicks_around(middle_ras: np.ndarray, count: int) -> list[tuple[float, ...]]:
    """Return positions near the centre, the first one at it."""
    offsets = np.random.default_rng(1).uniform(-MARGIN_MM, MARGIN_MM, (count, 3))
    offsets[0] = 0
    return [tuple(middle_ras + offset) for offset in offsets]


def opened(module: Path, volume_node: Any) -> tuple[list[Any], np.ndarray, Any]:
    """Open three slice views of a volume and the panel; return views, centre (RAS, mm), panel."""
    import slicer
    from harness.program import modules
    from harness.views.slice_view import SliceView

    placed = (("Red", "Axial"), ("Green", "Coronal"), ("Yellow", "Sagittal"))
    views = [SliceView(name, orientation) for name, orientation in placed]
    for view in views:
        view.show(volume_node)
    bounds = [0.0] * 6
    volume_node.GetRASBounds(bounds)
    middle = np.array([(bounds[2 * i] + bounds[2 * i + 1]) / 2 for i in range(3)])
    frame = modules.loadModule(module).widgetRepresentation()
    gui = slicer.util.getModuleWidget("PUMITSegment")
    slicer.app.layoutManager().setLayout(slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView)
    frame.show()
    gui.enter()
    slicer.app.processEvents()
    return views, middle, gui


def through_slicer(scan: Path | None, organ_mm: float, count: int) -> dict[str, object]:
    """Click in the panel; return times of each click, median drawing time and mask size."""
    from harness.program import application, core_application, modules

    core_application.start()
    application.start()
    import slicer

    if scan is not None:
        volumeNode = slicer.util.loadVolume(str(scan), {})
    else:
        volumeNode = slicer.util.addVolumeFromArray(body(organ_mm))
        volumeNode.SetSpacing(*SPACING_DHW[::-1])
    views, middle, gui = opened(MODULE, volumeNode)
    logic = gui.logic
    logic.newSegment("Organ")
    from PUMITSegmentLib.prompts.tag import PromptKind

    logic.startPlacing(PromptKind.POINT)
    slicer.app.processEvents()
    watch, rows, drawing = Watch(), [], []
    for position in clicks_around(middle, count):
        watch.take()
        watch.skip()
        started = time.perf_counter()
        views[0].clickAt(position)
        watch.tick()
        turn(lambda: not logic.isComputing)
        watch.tick()
        held, computed = watch.take()
        answered = time.perf_counter()
        for view in views:
            view.render()
        drawn = time.perf_counter()
        drawing.append(drawn - answered)
        rows.append({"total": drawn - started, "held": held, "computed": computed})
    voxels = int(logic.maskOf(logic.segmentID).sum())
    gui.exit()
    modules.unloadModule("PUMITSegment")
    return {"rows": rows, "voxels": voxels, "drawing": statistics.median(drawing)}


def through_core(scan: Path | None, organ_mm: float, count: int) -> dict[str, object]:
    """Make the same clicks only in the library; return seconds, and voxels of the last mask."""
    import pumit

    segmenter = pumit.load_segmenter("default", device="auto")
    if scan is not None:
        volume = pumit.Volume.read(scan)
    else:
        volume = pumit.Volume(body(organ_mm), SPACING_DHW, direction=np.diag([-1.0, -1.0, 1.0]))
    session = pumit.InteractiveSession(segmenter)
    started = time.perf_counter()
    session.set_volume(volume)
    opened = time.perf_counter() - started
    corners = volume.index_to_world([(-0.5,) * 3, tuple(n - 0.5 for n in volume.shape)])
    middle_ras = corners.mean(axis=0) * (-1, -1, 1)
    seconds = []
    for r, a, s in clicks_around(middle_ras, count):
        started = time.perf_counter()
        session.add_point((-r, -a, s))
        mask = session.predict()
        seconds.append(time.perf_counter() - started)
    return {"opened": opened, "seconds": seconds, "voxels": int(mask.sum())}


def main() -> None:
    """Run both and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scan", type=Path, help="a NIfTI or NRRD file; else a generated scan")
    parser.add_argument("--organ-mm", type=float, default=55.0, help="radius of the organ")
    parser.add_argument("--clicks", type=int, default=12)
    parser.add_argument("--core", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.core:
        print(json.dumps(through_core(given.scan, given.organ_mm, given.clicks)))
        return
    module = through_slicer(given.scan, given.organ_mm, given.clicks)
    command = [sys.executable, __file__, "--core", "--clicks", str(given.clicks)]
    command += ["--organ-mm", str(given.organ_mm)]
    command += ["--scan", str(given.scan)] if given.scan else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    core = json.loads(done.stdout.splitlines()[-1])
    later = [row["total"] for row in module["rows"][1:]]
    added = [a - b for a, b in zip(later, core["seconds"][1:], strict=True)]
    held, computed = ([1000 * row[k] for row in module["rows"]] for k in ("held", "computed"))
    lines = [
        ("first click, with starting the worker", module["rows"][0]["total"], "s"),
        ("  core: opening and first click", core["opened"] + core["seconds"][0], "s"),
        ("later click to drawn segment, median", statistics.median(later), "s"),
        ("  core: the same clicks, median", statistics.median(core["seconds"][1:]), "s"),
        ("  added by the module, median", statistics.median(added), "s"),
        ("  of it software drawing of three views", module["drawing"], "s"),
        ("GUI thread held up, worst of the first click", held[0], "ms"),
        ("  worst of the later clicks", max(held[1:]), "ms"),
        ("  median of the later clicks' worst", statistics.median(held[1:]), "ms"),
        ("  of it its own computing, worst of the first click", computed[0], "ms"),
        ("  worst of the later clicks", max(computed[1:]), "ms"),
        ("  median of the later clicks' worst", statistics.median(computed[1:]), "ms"),
    ]
    for name, value, unit in lines:
        print(f"{name:52} {value:8.{2 if unit == 's' else 0}f} {unit}")
    # Clicks are rounded to pixels of the view, so the masks differ by a few voxels.
    print(f"voxels of the last mask: module {module['voxels']}, core {core['voxels']}")


if __name__ == "__main__":
    main()
