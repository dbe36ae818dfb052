"""Parameter node of the module. Settings of this computer are not in it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

from slicer.parameterNodeWrapper import WithinRange, parameterNodeWrapper


class CaseSource(enum.Enum):
    """Kind of a source of cases; sources can be combined."""

    SCENE = "scene"
    FOLDER = "folder"
    FILES = "files"


class Goal(enum.Enum):
    """Goal of a training; the value is that of `pumit plan --goal`."""

    CLICKS = "clicks"
    AUTOMATIC = "automatic"
    CLASSIFICATION = "classification"


class ClickPart(enum.Enum):
    """Trained weights of the promptable network; the value is that of the recipe."""

    DECODER = "decoder"
    ADAPTERS = "adapters"
    ALL = "all"


class PresetName(enum.Enum):
    """Preset of the training time; the value is that of `pumit plan --preset`."""

    QUICK = "quick"
    BALANCED = "balanced"
    THOROUGH = "thorough"


@parameterNodeWrapper
class TrainParameters:
    """Parameter node wrapper of the module.

    Attributes:
        source: Kind of source from which cases were added last.
        folder: Folder that was added last.
        imagePattern: Name pattern of images in the next one, such as "images/{case}.nii.gz";
            empty to detect it.
        labelPattern: Name pattern of labels in it.
        folders: Folders that were added, as text; see `case_folders`.
        caseList: Individually listed cases, as text; see `case_list`. Nodes of these cases are
            references of the parameter node.
        caseEdits: The user's edits of cases, as text; see `case_edits`.
        classEdits: The user's classes, as text; empty for the classes that were found.
        classFolder: Folder with a folder of scans for each class, or MedMNIST file, for a
            classification.
        goal: Goal of the training.
        part: Trained weights of the promptable network.
        network: Network of an automatic model; empty for the planned one.
        unlabelled: Folder of unlabelled scans for pre-training; empty for none.
        preset: Preset of the training time.
        validationShare: Fraction of the patients for validation.
        folds: Number of folds of a cross-validation by patients; 0 for none.
        name: Name of run and model; empty for a name from data and goal.
        device: Device of the training, such as "auto", "cpu" or "cuda:0".
        runFolder: Folder of the run that is shown; empty for none.
    """

    source: CaseSource = CaseSource.SCENE
    folder: str = ""
    imagePattern: str = ""
    labelPattern: str = ""
    folders: str = ""
    caseList: str = ""
    caseEdits: str = ""
    classEdits: str = ""
    classFolder: str = ""
    goal: Goal = Goal.CLICKS
    part: ClickPart = ClickPart.ALL
    network: str = ""
    unlabelled: str = ""
    preset: PresetName = PresetName.BALANCED
    validationShare: Annotated[float, WithinRange(0.05, 0.5)] = 0.2
    folds: Annotated[int, WithinRange(0, 10)] = 0
    name: str = ""
    device: str = "auto"
    runFolder: str = ""
    if TYPE_CHECKING:  # added by the wrapper
        parameterNode: Any
