"""Walks through the tutorial on a real scan, and makes its screenshots.

`PUMIT_SCREENSHOTS=Resources/tutorial` writes them where the tutorial shows them; else they go to a
temporary folder. The scan may be shown: STS_001 of the TCIA collection Soft-tissue-Sarcoma, CC BY.
"""

from pathlib import Path
from typing import Any

import pytest
import slicer
from harness.program.waiting import waitFor
from PIL import Image
from pumit.evaluation.metrics import dice

MODULE = Path(__file__).resolve().parents[3] / "PUMITSegment" / "PUMITSegment.py"
CASE = "cases/ct_sts001"
# Where a user would click, RAS mm: in the middle of the tumour, where the answers then go too far,
# and in the femur.
TUMOUR, FEMUR = (-69.3, -9.8, -796.3), (-135.0, 28.0, -796.3)
OUTSIDE = ((-69.3, 30.3, -838.8), (-43.0, -57.6, -793.0))
FEMUR_BOX = ((-116.0, 10.0), (-155.0, 50.0))


def click(widget: Any) -> None:
    from Qt import QtCore, QtTest

    QtTest.QTest.mouseClick(widget, QtCore.Qt.LeftButton)


def hasSurface(segment: Any) -> bool:
    surface = segment.GetRepresentation("Closed surface")
    return surface is not None and surface.GetNumberOfCells() > 0


@pytest.mark.slow
def test_tutorial_on_a_real_scan(
    loadModule, sliceView, threeDView, shared_data, screenshots, tmp_path
):
    pytest.importorskip("torch")
    from harness.views.picture import compose
    from Qt import QtCore, QtTest

    scan = shared_data / CASE / "image.nii.gz"
    if not scan.is_file():
        pytest.skip("the tutorial's scan is absent")
    frame = loadModule(MODULE).widgetRepresentation()
    gui = slicer.util.getModuleWidget("PUMITSegment")
    ui, logic = gui.panel.ui, gui.logic

    # 1. Load a scan and open the module.
    volumeNode = slicer.util.loadVolume(str(scan), {"name": "Thigh CT"})
    display = volumeNode.GetDisplayNode()
    display.SetAutoWindowLevel(False)
    display.SetWindowLevel(350, 50)
    placed = (("Red", "Axial"), ("Green", "Coronal"), ("Yellow", "Sagittal"))
    views = [sliceView(name, orientation) for name, orientation in placed]
    axial = views[0]
    for view in views:
        view.show(volumeNode)
        view.jumpTo(TUMOUR)
    solid = threeDView()
    frame.show()
    gui.enter()

    def picture(name: str) -> None:
        slicer.app.processEvents()
        flash = gui.panel.flash  # of what a click changed
        waitFor(lambda: flash.node is None and not flash._drawn.isActive())
        gui.panel.segmentColumns.count()
        file = screenshots / f"{name}.png"
        compose(frame, [*views, solid], file)
        # A palette: half a megabyte each would weigh on every clone.
        Image.open(file).quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)

    picture("1_scan")

    # 2. A new segment, and one click in the tumour.
    click(ui.newSegmentButton)
    click(ui.pointButton)
    axial.clickAt(TUMOUR)
    waitFor(lambda: not logic.isComputing)
    expert = slicer.util.loadLabelVolume(str(shared_data / CASE / "label.nii.gz"))
    truth = slicer.util.arrayFromVolume(expert) > 0
    slicer.mrmlScene.RemoveNode(expert)
    tumour = logic.segmentID
    first = dice(logic.maskOf(tumour), truth)
    assert first > 0.5
    picture("2_first_click")

    # 3. What does not belong is taken away by clicks outside.
    click(ui.negativeButton)
    for position in OUTSIDE:
        axial.clickAt(position)
        waitFor(lambda: not logic.isComputing)
    third = dice(logic.maskOf(tumour), truth)
    assert third > first
    picture("3_correction")
    print(f"Dice after one click {first:.2f}, after three {third:.2f}")

    # 4. A second segment, from a box on the slice.
    click(ui.newSegmentButton)
    click(ui.box2dButton)
    axial.sliceNode.JumpSliceByOffsetting(*FEMUR)
    for x, y in FEMUR_BOX:
        axial.click(*axial.rasToXy((x, y, FEMUR[2])))
    waitFor(lambda: not logic.isComputing)
    assert logic.segmentID != tumour
    assert logic.maskOf(logic.segmentID).any(), logic.status.current.text
    picture("4_box")

    # 5. What it is, by its coded name, and all of it in 3D.
    for segmentID, name in ((tumour, "neoplasm"), (logic.segmentID, "femur")):
        logic.selectSegment(segmentID)
        QtTest.QTest.keyClicks(ui.termEdit, name)
        QtTest.QTest.keyClick(ui.termEdit, QtCore.Qt.Key_Return)
    click(ui.show3DButton)
    segmentation = logic.segmentationNode.GetSegmentation()
    waitFor(lambda: all(hasSurface(segmentation.GetSegment(i)) for i in (tumour, logic.segmentID)))
    solid.lookFrom((-0.5, 1.0, 0.3))
    picture("5_in_3d")

    # 6. Export.
    for section in (ui.inputSection, ui.promptsSection):
        section.collapsed = True
    ui.exportSection.collapsed = False
    ui.exportFolderEdit.currentPath = "~"  # of the picture's maker, and not shown
    picture("6_export")
    ui.exportFolderEdit.currentPath = str(tmp_path / "exported")
    click(ui.exportButton)
    assert logic.background.drain(120)
    (written,) = (tmp_path / "exported").iterdir()
    assert written.name == "Thigh CT segmentation.seg.nrrd"
    gui.exit()
