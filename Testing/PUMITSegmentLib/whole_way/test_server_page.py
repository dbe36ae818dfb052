"""Does what the page on servers says of Slicer, with a real server over TLS, and makes its picture.

`PUMIT_SCREENSHOTS=Resources/server` writes it where the page shows it; else it goes to a temporary
folder. The scan may be shown: STS_001 of the TCIA collection Soft-tissue-Sarcoma, CC BY.
"""

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from harness.program.waiting import waitFor
from made_certificates import make_certificate
from PIL import Image

ROOT = Path(__file__).resolve().parents[3]
CASE = "cases/ct_sts001"
TUMOUR = (-69.3, -9.8, -796.3)  # RAS mm


@contextlib.contextmanager
def serving(folder: Path, token: str) -> Iterator[tuple[str, Path]]:
    """`pumit serve` over TLS: its address, and the certificate that viewers need."""
    certificate, key = make_certificate(folder / "tls", names="DNS:localhost,IP:127.0.0.1")
    token_file = folder / "token"
    token_file.write_text(token)
    command = [sys.executable, "-m", "pumit", "serve", "--json", "--token-file", str(token_file)]
    command += ["--certfile", str(certificate), "--keyfile", str(key), "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "PUMITSegment")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["url"], certificate
        finally:
            server.terminate()


@pytest.mark.slow
def test_a_click_in_slicer_is_answered_by_a_server_over_tls(
    loadModule, sliceView, shared_data, tmp_path
):
    pytest.importorskip("torch")
    from harness.views.picture import compose
    from Qt import QtCore, QtTest

    scan = shared_data / CASE / "image.nii.gz"
    if not scan.is_file():
        pytest.skip("the page's scan is absent")
    frame = loadModule(ROOT / "PUMITSegment" / "PUMITSegment.py").widgetRepresentation()
    gui = slicer.util.getModuleWidget("PUMITSegment")
    ui, logic = gui.panel.ui, gui.logic
    logic.compute._whyNotInstalled = lambda mode: ""
    volumeNode = slicer.util.loadVolume(str(scan), {"name": "Thigh CT"})
    display = volumeNode.GetDisplayNode()
    display.SetAutoWindowLevel(False)
    display.SetWindowLevel(350, 50)
    placed = (("Red", "Axial"), ("Green", "Coronal"))
    views = [sliceView(name, orientation) for name, orientation in placed]
    for view in views:
        view.show(volumeNode)
        view.jumpTo(TUMOUR)
    frame.show()
    gui.enter()

    def press(widget: Any) -> None:
        QtTest.QTest.mouseClick(widget, QtCore.Qt.LeftButton)

    token = secrets.token_hex(32)
    with serving(tmp_path, token) as (url, certificate):
        ui.computeSection.collapsed = False
        ui.computeWhereSelector.currentIndex = 1
        ui.remoteUrlEdit.text = url
        ui.remoteTokenEdit.text = token
        ui.remoteTokenEdit.editingFinished.emit()
        press(ui.testButton)
        waitFor(lambda: "not trusted" in ui.statusLabel.text)
        ui.certificateEdit.currentPath = str(certificate)
        press(ui.testButton)
        waitFor(lambda: "computes with model default" in ui.statusLabel.text)
        press(ui.newSegmentButton)
        press(ui.pointButton)
        # A server that has just started compiles its graphs for the first click.
        views[0].clickAt((TUMOUR[0] + 8, *TUMOUR[1:]))
        waitFor(lambda: not logic.isComputing)
        press(ui.undoButton)
        views[0].clickAt(TUMOUR)
        waitFor(lambda: not logic.isComputing)
        found = logic.maskOf(logic.segmentID)
        expert = slicer.util.loadLabelVolume(str(shared_data / CASE / "label.nii.gz"))
        truth = slicer.util.arrayFromVolume(expert) > 0
        slicer.mrmlScene.RemoveNode(expert)
        assert 2 * np.sum(found & truth) / (np.sum(found) + np.sum(truth)) > 0.5
        # What is shown is an address of a machine that is none.
        for section in (ui.inputSection, ui.exportSection):
            section.collapsed = True
        ui.remoteUrlEdit.text = "https://gpu.example.org"
        ui.certificateEdit.blockSignals(True)
        ui.certificateEdit.currentPath = "cert.pem"
        file = Path(os.environ.get("PUMIT_SCREENSHOTS", tmp_path)) / "slicer.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        compose(frame, views, file)
        Image.open(file).quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
        logic.compute.stop()
    gui.exit()
