"""Drive napari's nnInteractive plugin by mouse against `pumit serve`.

Run by hand, in a separate environment without PyTorch, on a display (`xvfb-run -a` makes one):

    python -m venv napari-env && napari-env/bin/pip install napari napari-nninteractive PySide6
    xvfb-run -a -s "-screen 0 1600x1000x24" napari-env/bin/python \
        Testing/lab/viewers/try_napari.py SCAN LABEL [--picture FILE] -- python -m pumit \
            serve ...

SCAN is a file that napari opens, LABEL one with a structure as 1 on the same grid, to click on. The
command after `--` starts the server; it is killed and restarted during the run, so it needs a fixed
port and token. Prints each check and exits with the number of failures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

# The plugin stores address and token: keep them out of the user's own settings.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp()

import napari
from napari.utils.notifications import NotificationSeverity, notification_manager
from napari_nninteractive.widget_main import nnInteractiveWidget
from qtpy.QtCore import QPoint, Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication

POINT, BOX, SCRIBBLE, LASSO = range(4)
POSITIVE, NEGATIVE = range(2)
LABELS = "nnInteractive - Label Layer"


class Server:
    """A server process that can be killed and restarted."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Napari:
    """A viewer with the plugin, driven by mouse and buttons."""

    def __init__(self, url: str, token: str) -> None:
        self.warnings: list[str] = []
        self.errors: list[str] = []
        self.failures = 0
        notification_manager.notification_ready.connect(self._on_notification)
        sys.excepthook = self._on_exception
        self.viewer = napari.Viewer()
        self.viewer.window.resize(1500, 940)
        self.widget = nnInteractiveWidget(self.viewer)
        self.viewer.window.add_dock_widget(self.widget, name="nnInteractive")
        self.widget.server_url_edit.setText(url)
        self.widget.api_key_edit.setText(token)
        self.widget.on_remote_settings_changed()

    def check(self, what: str, is_right: bool, detail: object = "") -> None:
        """Print an outcome; an error that napari reported also fails the check."""
        self.settle()
        is_right = is_right and not self.errors
        self.failures += not is_right
        print("ok  " if is_right else "FAIL", what, detail, *self.errors, flush=True)
        self.errors.clear()

    def settle(self, seconds: float = 0.2) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            QApplication.processEvents()
            time.sleep(0.01)

    def wait_for(self, is_so: Callable[[], bool], seconds: float = 120) -> bool:
        end = time.monotonic() + seconds
        while not is_so() and time.monotonic() < end:
            self.settle(0.05)
        return is_so()

    # User actions

    def connect(self, seconds: float = 90) -> bool:
        """Press Connect until the server, which may still be starting, accepts."""
        end = time.monotonic() + seconds
        while not self.widget._remote_connected and time.monotonic() < end:
            self.widget.connect_btn.click()
            self.wait_for(self.widget.connect_btn.isEnabled)
        return "connected (" in self.widget.remote_status_label.text()

    def initialize(self, image: str) -> bool:
        self.widget.image_selection.setCurrentText(image)
        self.widget.init_button.click()
        return self.wait_for(
            lambda: (
                self.widget._session_locked
                and self.widget._upload_dialog is None
                and self.widget.session is not None
            )
        )

    def tool(self, tool: int, sign: int = POSITIVE) -> None:
        self.widget.interaction_button.buttons[tool].click()
        self.widget.prompt_button.buttons[sign].click()
        self.settle()

    def look(self, voxel: Sequence[float]) -> None:
        """Show the slice of a voxel."""
        for axis in self.viewer.dims.not_displayed:
            self.viewer.dims.set_point(axis, self._world(voxel)[axis])
        self.settle()

    def click(self, voxel: Sequence[float]) -> None:
        self.look(voxel)
        self._mouse("press", voxel)
        self._mouse("release", voxel)
        self.settle()

    def drag(self, voxels: Sequence[Sequence[float]]) -> None:
        self.look(voxels[0])
        self._mouse("move", voxels[0])
        self._mouse("press", voxels[0])
        for voxel in voxels[1:]:
            self._mouse("move", voxel)
        self._mouse("release", voxels[-1])
        self.settle()

    @property
    def mask(self) -> np.ndarray:
        return np.array(self.viewer.layers[LABELS].data) > 0

    # Implementation

    def _on_notification(self, notification) -> None:
        text = str(notification.message)
        is_error = notification.severity >= NotificationSeverity.ERROR
        (self.errors if is_error else self.warnings).append(text)

    def _on_exception(self, kind, error, trace) -> None:
        sys.__excepthook__(kind, error, trace)
        self.errors.append(f"{kind.__name__}: {error}")

    def _world(self, voxel: Sequence[float]) -> np.ndarray:
        return np.asarray(self.viewer.layers[LABELS].data_to_world(tuple(map(float, voxel))))

    def _pixel(self, voxel: Sequence[float]) -> QPoint:
        shown = list(self.viewer.dims.displayed)
        canvas = self.viewer.window._qt_viewer.canvas.native
        offset = self._world(voxel)[shown] - np.array(self.viewer.camera.center)[-2:]
        row, column = offset * self.viewer.camera.zoom
        return QPoint(round(canvas.width() / 2 + column), round(canvas.height() / 2 + row))

    def _mouse(self, what: str, voxel: Sequence[float]) -> None:
        canvas = self.viewer.window._qt_viewer.canvas.native
        button, place = Qt.MouseButton.LeftButton, self._pixel(voxel)
        if what == "press":
            QTest.mousePress(canvas, button, Qt.KeyboardModifier.NoModifier, place)
        elif what == "release":
            QTest.mouseRelease(canvas, button, Qt.KeyboardModifier.NoModifier, place)
        else:
            QTest.mouseMove(canvas, place)
        self.settle(0.03)


def deepest(mask: np.ndarray) -> tuple[int, int, int]:
    """Return the innermost voxel of a mask, (d, h, w)."""
    from scipy import ndimage

    depth = ndimage.distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1, 1:-1]
    d, h, w = np.unravel_index(int(depth.argmax()), mask.shape)
    return int(d), int(h), int(w)


def dice(a: np.ndarray, b: np.ndarray) -> str:
    return f"Dice {2 * (a & b).sum() / max(int(a.sum() + b.sum()), 1):.2f}"


def try_prompts(user: Napari, target: np.ndarray) -> None:
    """Try every tool, with undo, on the labelled structure."""
    middle = deepest(target)
    d = middle[0]
    rows, columns = (np.flatnonzero(target[d].any(axis=axis)) for axis in (1, 0))
    top, bottom, left, right = rows[0], rows[-1], columns[0], columns[-1]

    user.tool(POINT)
    user.click(middle)
    first = user.mask
    user.check("a point", bool(first[middle]), dice(first, target))
    wrong = first & ~target
    away = deepest(wrong if wrong.any() else first)
    user.tool(POINT, NEGATIVE)
    user.click(away)
    user.check("a negative point", not user.mask[away], dice(user.mask, target))
    user.widget.undo_button.click()
    user.check("undo of it", np.array_equal(user.mask, first))
    user.widget.undo_button.click()
    user.check("undo of all", not user.mask.any())

    user.tool(BOX)
    user.drag([(d, top, left), (d, (top + bottom) / 2, (left + right) / 2), (d, bottom, right)])
    boxed = user.mask
    user.check("a box", bool(boxed[d].any()), dice(boxed, target))
    user.widget.reset_interaction_button.click()
    user.check("reset of the object", not user.mask.any())

    user.tool(SCRIBBLE)
    h, w = middle[1:]
    user.drag([(d, h, w + step) for step in np.linspace(-4, 4, 9)])
    user.check("a scribble", bool(user.mask[middle]), dice(user.mask, target))
    before = user.mask
    user.tool(LASSO)
    turn = np.linspace(0, 2 * np.pi, 24)
    radius = 0.8 * min(bottom - h, h - top, right - w, w - left)
    user.drag([(d, h + radius * np.sin(t), w + radius * np.cos(t)) for t in turn])
    user.check("a lasso", bool(user.mask[middle]), dice(user.mask, target))
    user.widget.undo_button.click()
    user.check("undo of the lasso", np.array_equal(user.mask, before))
    outside = user.mask & ~target
    if outside.any():
        e, f, g = deepest(outside)
        user.tool(BOX, NEGATIVE)
        user.drag([(e, f - 2, g - 2), (e, f, g), (e, f + 2, g + 2)])
        user.check("a negative box", not user.mask[e, f, g], dice(user.mask, target))


def try_planes(user: Napari, target: np.ndarray) -> None:
    """Try scribbles, lassos and boxes on the other two planes."""
    d, h, w = deepest(target)
    for name, order in (("coronal", (1, 0, 2)), ("sagittal", (2, 0, 1))):
        user.viewer.dims.order = order
        user.viewer.reset_view()
        user.widget.reset_interaction_button.click()
        along = np.eye(3)[order[2]]
        for tool in (SCRIBBLE, LASSO, BOX):
            user.widget.reset_interaction_button.click()
            user.tool(tool)
            across = np.eye(3)[order[1]]
            ring = [(np.cos(t), np.sin(t)) for t in np.linspace(0, 2 * np.pi, 16)]
            path = {
                SCRIBBLE: [(d, h, w) + along * step for step in np.linspace(-4, 4, 9)],
                LASSO: [(d, h, w) + 5 * along * a + 2.5 * across * b for a, b in ring],
                BOX: [(d, h, w) + 4 * s * along + 3 * s * across for s in (-1, 0, 1)],
            }[tool]
            user.drag(path)
            what = ("scribble", "lasso", "box")[(SCRIBBLE, LASSO, BOX).index(tool)]
            user.check(f"a {what} on a {name} slice", bool(user.mask[d, h, w]))
    user.viewer.dims.order = (0, 1, 2)
    user.viewer.reset_view()
    user.widget.reset_interaction_button.click()


def try_objects(user: Napari, target: np.ndarray) -> None:
    """Try the next object, a manual run and an initial mask."""
    middle = deepest(target)
    user.tool(POINT)
    user.click(middle)
    first = user.mask
    user.widget.reset_button.click()
    stored = [layer for layer in user.viewer.layers if layer.name.startswith("object 1")]
    is_kept = bool(stored) and np.array_equal(np.array(stored[0].data) > 0, first)
    user.check("the next object", is_kept and not user.mask.any())

    user.widget.auto_run_ckbx.setChecked(False)
    user.tool(POINT)
    user.click(middle)
    user.check("a point that waits", not user.mask.any())
    user.widget.run_button.click()
    user.check("a run by hand", np.array_equal(user.mask, first), dice(user.mask, first))
    user.widget.run_button.click()
    user.check("a run without anything new", np.array_equal(user.mask, first))
    user.widget.auto_run_ckbx.setChecked(True)

    drawn = np.zeros(target.shape, np.uint8)
    drawn[middle[0]] = target[middle[0]]
    user.viewer.add_labels(drawn, name="drawn", scale=user.viewer.layers[LABELS].scale)
    user.widget.label_for_init.setCurrentText("drawn")
    user.widget.load_mask_btn.click()
    user.check("a mask to begin with", np.array_equal(user.mask, drawn > 0))
    user.widget.undo_button.click()
    user.check("undo of the mask", np.array_equal(user.mask, first))
    user.widget.auto_refine.setChecked(True)
    user.widget.load_mask_btn.click()
    user.check("a mask to refine", bool(user.mask[middle]), dice(user.mask, target))
    user.viewer.layers.remove("drawn")


def try_restart(user: Napari, server: Server, image: str, target: np.ndarray) -> None:
    """Kill and restart the server: the plugin must continue with its labels."""
    middle = deepest(target)
    user.widget.reset_interaction_button.click()
    user.tool(POINT)
    user.click(middle)
    before = user.mask
    server.kill()
    user.click(middle)
    is_shown = any("session lost" in text.lower() for text in user.warnings)
    user.check("a click without a server is reported", is_shown, user.warnings[-1:])
    server.start()
    user.check("connected again", user.connect())
    user.check("initialized again", user.initialize(image))
    user.check("the labels are still there", np.array_equal(user.mask, before))
    away = deepest(before)
    user.tool(POINT, NEGATIVE)
    user.click(away)
    user.check("a click that goes on from them", bool(user.mask.any()), dice(user.mask, before))
    user.widget.undo_button.click()
    user.check("undo of it", np.array_equal(user.mask, before))


def try_planar(user: Napari, plane: np.ndarray, target: np.ndarray) -> None:
    """Try a 2D image."""
    user.widget.init_button.click()
    user.settle()
    for layer in list(user.viewer.layers):
        user.viewer.layers.remove(layer)
    user.viewer.add_image(plane, name="planar")
    user.check("a planar image", user.initialize("planar"))
    row, column = deepest(target[None])[1:]
    user.tool(POINT)
    user.click((0, row, column))
    user.check("a point on it", bool(user.mask[0, row, column]), dice(user.mask[0], target))


def take_picture(user: Napari, image: str, target: np.ndarray, path: Path) -> None:
    """Save a screenshot with a point, a scribble and the segment, in a CT window."""
    shown, middle = user.viewer.layers[image], deepest(target)
    shown.contrast_limits, shown.interpolation2d = (-150, 200), "linear"
    user.viewer.layers[LABELS].opacity = 0.5
    d, h, w = middle
    user.tool(POINT)
    user.click(middle)
    user.tool(SCRIBBLE)
    user.drag([(d, h + 8 + 2 * np.sin(step / 3), w + step) for step in np.linspace(-8, 8, 17)])
    user.settle(1)
    user.viewer.window.screenshot(str(path), flash=False)
    user.widget.reset_interaction_button.click()


def main() -> int:
    """Run all checks; return the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scan", type=Path)
    parser.add_argument("label", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:1527")
    parser.add_argument("--token", default="")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("command", nargs="+", help="what starts the server, after --")
    arguments = parser.parse_args()
    server = Server(arguments.command)
    try:
        user = Napari(arguments.url, arguments.token)
        user.viewer.open(str(arguments.scan), plugin="napari-nifti")
        image = user.viewer.layers[0].name = "scan"
        (label,) = user.viewer.open(
            str(arguments.label), plugin="napari-nifti", layer_type="labels"
        )
        target = np.array(label.data) == 1
        user.viewer.layers.remove(label)
        user.check("connected", user.connect(), user.widget.remote_status_label.text())
        user.check("initialized", user.initialize(image), user.viewer.layers[0].scale)
        if arguments.picture:
            take_picture(user, image, target, arguments.picture)
        try_prompts(user, target)
        try_planes(user, target)
        try_objects(user, target)
        try_restart(user, server, image, target)
        d = deepest(target)[0]
        try_planar(user, np.array(user.viewer.layers[image].data[d]), target[d])
        print(f"{user.failures} failures; warnings: {sorted(set(user.warnings))}")
        user.widget._release_session()
        return user.failures
    finally:
        server.kill()


if __name__ == "__main__":
    sys.exit(main())
