"""Both modules on a lab's generated scans, with clicks and trainings that a test plays."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import slicer
from panel_scene import Panel
from pumit.campaign import Campaign, TrainingRound
from pumit.export.labelmap import write_labels
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.export.volume_file import write_volume_file
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.volume import Volume
from PUMITSegmentLib.segments.segment_list import segmentNames
from PUMITSlicerLib.mrml import VolumeFrame
from scripted_worker import SHAPE
from train_module import TrainModule

CLASSES = ("outer", "inner")


def makeScan(number: int) -> tuple[Volume, np.ndarray]:
    """A bright ball with a brighter one in it, in noise, and its labels."""
    random = np.random.default_rng(number)
    middle = np.array(SHAPE) / 2 + random.uniform(-1.5, 1.5, 3)
    distance = np.sqrt(((np.indices(SHAPE) - middle[:, None, None, None]) ** 2).sum(axis=0))
    labels = np.zeros(SHAPE, np.uint8)
    labels[distance < 7.5] = 1
    labels[distance < 4] = 2
    array = 100.0 * labels + random.normal(0, 8, SHAPE)
    return Volume(array.astype(np.int16), (2.0, 1.0, 1.0)), labels


def makeLab(folder: Path, count: int, labelled: Sequence[int] = ()) -> Path:
    """A folder of scans, some of them labelled."""
    (folder / "images").mkdir(parents=True)
    (folder / "labels").mkdir()
    for number in range(count):
        volume, labels = makeScan(number)
        write_volume_file(volume.array, volume, folder / "images" / f"scan{number:02d}.nii.gz")
        if number in labelled:
            write_labels(labels, volume, folder / "labels" / f"scan{number:02d}.nii.gz")
    return folder


def truthOf(name: str, names: Sequence[str] = CLASSES) -> Segmentation:
    """The true segments of a scan, by the number at the end of its name."""
    volume, labels = makeScan(int(name[-2:]))
    segments = tuple(Segment(n, labels == i) for i, n in enumerate(names, start=1))
    return Segmentation(volume, segments, Algorithm("hippo", "1", "AUTOMATIC"))


class PlayedTraining:
    """Trains and predicts at once, as the commands would; their process has ended then.

    Attributes:
        launched: Arguments of each command.
        isAlive: Whether the process is still there, and has done nothing yet.
    """

    def __init__(self) -> None:
        self.launched: list[list[str]] = []
        self.isAlive = False

    def launch(self, folder: Path, arguments: Sequence[str]) -> int:
        self.launched.append(list(arguments))
        if self.isAlive:
            return os.getpid()
        campaign = Campaign.open(folder)
        if arguments[1] == "train":
            train(campaign)
        if arguments[1] == "predict" or "--predict" in arguments:
            predict(campaign)
        process = subprocess.Popen([sys.executable, "-c", ""])
        process.wait()
        return process.pid


def train(campaign: Campaign, dice: float = 0.8) -> None:
    """A round ends with a model."""
    campaign.draw_validation()
    number = len(campaign.rounds) + 1
    ready = tuple(s.id for s in campaign.scans() if s.is_truth and not s.is_validation)
    campaign.save_round(
        TrainingRound(
            number,
            "finished",
            f"rounds/{number:03d}",
            ready[1:],
            ready[:1],
            True,
            dice + 0.05 * number,
            dice if number > 1 else None,
            True,
            "model.safetensors",
            sentence=f"Round {number}: Dice 0.85.",
        )
    )


def predict(campaign: Campaign) -> None:
    """All open scans get a prediction."""
    number = len(campaign.rounds)
    for place, scan in enumerate(campaign.scans_to_predict()):
        write_seg_nrrd(truthOf(scan.name), campaign.home(scan) / "prediction.seg.nrrd")
        expected = 0.95 - 0.05 * place
        word = "good" if expected > 0.9 else "check"
        campaign.set_prediction(
            scan, number=number, word=word, expected={"outer": 0.96, "inner": expected},
            places={"outer": [(5.0, 8.0, 9.0), (11.0, 8.0, 7.0)]},
        )  # fmt: skip


class CampaignModules(TrainModule):
    """PUMIT Train and PUMIT Segment in one Slicer.

    Attributes:
        folder: The campaign.
        segment: PUMIT Segment, whose clicks the test answers.
        training: The processes.
    """

    def __init__(self, root: Path, loadModule: Any, monkeypatch: Any) -> None:
        self.folder = root / "campaign"
        self.segment = Panel(loadModule)
        self.segment.gui.exit()
        super().__init__(root / "runs", loadModule, monkeypatch)
        self.training = PlayedTraining()
        object.__setattr__(self.parts, "launcher", self.training)

    @property
    def campaign(self) -> Campaign:
        """The campaign as it is on the disk."""
        return Campaign.open(self.folder)

    def settle(self) -> None:
        """Let both modules do what they began, and what follows from it."""
        segment = self.segment.logic.background
        for _ in range(4):
            isIdle = self.background.isIdle and segment.isIdle
            super().settle()
            assert segment.drain(20)
            slicer.app.processEvents()
            if isIdle:
                break

    def create(self, lab: Path, classes: str = "outer, inner") -> None:
        """Make a campaign of a folder through the panel."""
        ui = self.ui
        self.press(ui.campaignNewButton)
        ui.campaignFolderEdit.currentPath = str(self.folder)
        ui.campaignScansEdit.currentPath = str(lab)
        ui.campaignClassesEdit.text = classes
        self.press(ui.campaignCreateButton)
        self.look()

    def look(self) -> None:
        """Let the panel see the folder as it is."""
        self.settle()
        self.logic.campaign.refresh()
        self.settle()

    def pressAction(self) -> str:
        """Press the one button, and return what it said."""
        said = self.ui.campaignActionButton.text
        self.press(self.ui.campaignActionButton)
        self.look()
        return said

    def check(self, name: str = "") -> None:
        """Open a scan by its name, or the next one, in PUMIT Segment."""
        checking = self.logic.checking
        if name:
            checking.open(self.campaign.scan(name).id)
        else:
            checking.openNext()
        self.look()

    def checkPredicted(self, lab: Path) -> None:
        """Make a campaign with a round of training, and open the first of its predictions."""
        self.create(lab)
        train(self.campaign)
        predict(self.campaign)
        self.look()
        self.check()

    @property
    def checked(self) -> Any:
        """The scan that PUMIT Segment has open."""
        return self.segment.logic.reviewing.scan

    def draw(self, names: Sequence[str] = CLASSES) -> None:
        """Click once in each segment, and let the answer be the truth."""
        logic = self.segment.logic
        _volume, labels = makeScan(int(self.checked.given.name[-2:]))
        ids = {name: key for key, name in segmentNames(logic.segmentationNode).items()}
        for number, name in enumerate(names, start=1):
            logic.selectSegment(ids[name])
            d, h, w = np.argwhere(labels == number)[0]
            self.segment.click(self._ras(d, h, w))
            self.segment.answer(labels == number)
        logic.stopPlacing()
        self.process()

    def accept(self) -> None:
        """Draw all classes, and press the key."""
        self.draw()
        self.key("A")

    def ring(self) -> None:
        """Let the time come at which drafts are kept."""
        self.timers.ring()
        self.settle()

    def _ras(self, d: int, h: int, w: int) -> tuple[float, float, float]:
        frame = VolumeFrame(self.segment.logic.volumeNode)
        (ras,) = frame.lpsToWorld(frame.indexToLps([(d, h, w)])).tolist()
        return tuple(ras)

    def row(self, name: str) -> list[str]:
        """Cells of a scan in the list."""
        table = self.ui.campaignTable
        for row in range(table.rowCount):
            if table.item(row, 0).text().split("\n")[0] == name:
                return [table.item(row, column).text() for column in range(4)]
        raise AssertionError(name)

    def key(self, letter: str) -> None:
        """Press a key in the window."""
        from Qt import QtGui, QtTest

        window = slicer.util.mainWindow()
        window.activateWindow()
        window.setFocus()
        self.process()
        QtTest.QTest.keyClick(window, QtGui.QKeySequence(letter)[0].key())
        self.look()

    def decide(self, press: Callable[[], None]) -> None:
        press()
        self.look()

    def close(self) -> None:
        super().close()
        self.segment.close()
