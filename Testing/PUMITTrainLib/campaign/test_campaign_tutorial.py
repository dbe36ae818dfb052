"""Walks through the tutorial on campaigns with a real training, and makes its pictures.

`PUMIT_SCREENSHOTS=Resources/tutorial_campaign` writes them where the tutorial shows them. Without
it nothing is done: it takes minutes. The scans are generated.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.program.waiting import waitFor

REPOSITORY = Path(__file__).resolve().parents[3]
TRAIN = REPOSITORY / "PUMITTrain" / "PUMITTrain.py"
SEGMENT = REPOSITORY / "PUMITSegment" / "PUMITSegment.py"
SIZE = (1500, 1000)
CLASSES = ("liver", "spleen", "left kidney")
COUNT, LABELLED, SECONDS = 16, 4, 60.0
# A slice on which the organs are seen, RAS mm.
ORGANS = (0.0, -10.0, -6.0)


def makeLab(folder: Path) -> Path:
    """Generated abdomens, four of them with labels."""
    from pumit.export.seg_nrrd import write_seg_nrrd
    from pumit.export.volume_file import write_volume_file
    from pumit.segmentation import Algorithm, Segment, Segmentation
    from PUMITSlicerLib.generated_scan import generatedScan
    from PUMITTrainLib.cases.example_cases import coarse

    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    for number in range(COUNT):
        scan = coarse(generatedScan(number))
        name = f"abdomen{number + 1:02d}"
        write_volume_file(scan.volume.array, scan.volume, folder / "images" / f"{name}.nii.gz")
        if number < LABELLED:
            segments = tuple(Segment(each, scan.masks[each]) for each in CLASSES)
            label = Segmentation(scan.volume, segments, Algorithm("Lab", "1"))
            target = folder / "labels" / f"{name}.seg.nrrd"
            write_seg_nrrd(label, target, is_reviewed=True)
    return folder


def click(widget: Any) -> None:
    from Qt import QtCore, QtTest

    QtTest.QTest.mouseClick(widget, QtCore.Qt.LeftButton)


class Walk:
    """Both modules, the views, and a user who walks through the tutorial."""

    def __init__(self, loadModule: Any, pictures: Path) -> None:
        import slicer

        self.segmentFrame = loadModule(SEGMENT).widgetRepresentation()
        self.frame = loadModule(TRAIN).widgetRepresentation()
        self.gui = slicer.util.getModuleWidget("PUMITTrain")
        self.segment = slicer.util.getModuleWidget("PUMITSegment")
        self.ui, self.logic = self.gui.panel.ui, self.gui.logic
        self._pictures = pictures
        for frame in (self.frame, self.segmentFrame):
            frame.resize(420, SIZE[1])
        self.select("PUMITTrain")
        for name in ("casesSection", "learnSection", "runSection", "resultSection"):
            getattr(self.ui, name).collapsed = True

    def select(self, name: str) -> None:
        """There is no window whose selector would change the module."""
        isTrain = name == "PUMITTrain"
        (self.segment if isTrain else self.gui).exit()
        (self.segmentFrame if isTrain else self.frame).hide()
        (self.frame if isTrain else self.segmentFrame).show()
        (self.gui if isTrain else self.segment).enter()

    def look(self) -> None:
        """Let the panel see the folder as it is."""
        import slicer

        for _ in range(4):
            self.logic.campaign.refresh()
            waitFor(lambda: not self.logic.background.isBusy)
            slicer.app.processEvents()

    def picture(self, name: str, views: Sequence[Any] = ()) -> None:
        """What a user would see now: the panel of PUMIT Train, or PUMIT Segment with views."""
        from harness.views.picture import compose
        from harness.widgets.layout_faults import inModulePanel
        from PIL import Image

        self.look()
        file = self._pictures / f"{name}.png"
        if views:
            compose(self.segmentFrame, views, file, SIZE)
        else:
            inModulePanel(self.frame)
            self.frame.grab().save(str(file))
        # A palette: half a megabyte each would weigh on every clone.
        Image.open(file).quantize(256, dither=Image.Dither.NONE, kmeans=2).save(file, optimize=True)

    def waitForTraining(self) -> None:
        work = self.logic.campaign
        waitFor(lambda: not work.isRunning)
        self.look()
        print(self.logic.status.current.text, [r.sentence for r in work.campaign.rounds])


@pytest.mark.slow
def test_tutorial_on_a_real_campaign(loadModule, sliceView, pictures, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    import slicer
    from PUMITTrainLib.processes import DetachedLauncher

    monkeypatch.setenv("PUMIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    # As fast as it can: nothing else is to be done here.
    launch = DetachedLauncher.launch
    monkeypatch.setattr(
        DetachedLauncher,
        "launch",
        lambda self, folder, arguments: launch(self, folder, [*arguments, "--foreground"]),
    )
    lab = makeLab(tmp_path / "lab")
    views = [sliceView("Red", "Axial"), sliceView("Green", "Coronal")]
    walk = Walk(loadModule, pictures)
    selected = ["PUMITTrain"]
    monkeypatch.setattr(slicer.util, "selectedModule", lambda: selected[0])

    def select(name: str) -> None:
        selected[0] = name
        walk.select(name)

    monkeypatch.setattr(slicer.util, "selectModule", select)
    ui, work, checking = walk.ui, walk.logic.campaign, walk.logic.checking
    # 1. New
    click(ui.campaignNewButton)
    ui.campaignFolderEdit.currentPath = str(tmp_path / "abdomens")
    ui.campaignScansEdit.currentPath = str(lab)
    walk.picture("1_new")
    click(ui.campaignCreateButton)
    waitFor(lambda: work.view is not None)
    work.campaign.change_settings(training_seconds=SECONDS, refines_clicks=False, first_model="")
    waitFor(lambda: (walk.look(), len(work.view.thumbnails) == COUNT)[1])
    walk.picture("2_list")
    # 2. Train
    click(ui.campaignActionButton)
    waitFor(lambda: (walk.look(), work.view.isTraining)[1])
    walk.picture("3_training")
    walk.waitForTraining()
    assert work.view.count("predicted") > 0, walk.logic.status.current.text
    # 3. Check
    checking.open(next(s.id for s in work.view.scans if s.stored_state == "predicted"))
    waitFor(lambda: checking.isChecking)
    for view in views:
        view.show(walk.segment.logic.volumeNode)
        view.jumpTo(ORGANS)
    walk.picture("4_check", views)
    for _ in range(4):
        waitFor(lambda: checking.isChecking and not checking.isOpening)
        name = checking.undoText
        checking.accept()
        if checking.isChecking:  # a scan for validation, of which nothing is drawn
            checking.later()
            continue
        waitFor(lambda name=name: checking.undoText != name)
    # 4. Train again, by itself
    waitFor(lambda: len(work.campaign.rounds) > 1 or not work.isRunning)
    if not work.isRunning and len(work.campaign.rounds) < 2:
        work.train()
    walk.waitForTraining()
    select("PUMITTrain")
    walk.picture("5_rounds")
