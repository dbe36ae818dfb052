"""What the scene remembers of the panel. Settings of this computer are not here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from slicer.parameterNodeWrapper import WithinRange, parameterNodeWrapper

from PUMITTrainLib.choices import CaseSource, ClickPart, Goal, PresetName


@parameterNodeWrapper
class TrainParameters:
    """Typed view of the module's parameter node.

    Attributes:
        source: Kind of source that cases were added from last.
        folder: Folder that was added last.
        imagePattern: Name pattern of images in the next one, such as "images/{case}.nii.gz"; empty
            where that is found out.
        labelPattern: Name pattern of labels in it.
        folders: Folders that were added, as text; see `case_folders`.
        caseList: Cases that are listed one by one, as text; see `case_list`. The nodes of such
            cases are references of the parameter node.
        caseEdits: The user's changes of cases that were found, as text; see `case_edits`.
        classEdits: Classes as the user wants them, as text; empty for those that are found.
        goal: Goal of the training.
        part: Trained weights of the promptable network.
        network: Network of an automatic model; empty for the planned one.
        unlabelled: Folder of scans without labels that it learns from first; empty for none.
        preset: Preset of the training time.
        validationShare: Share of the patients for validation.
        folds: Number of folds of a cross-validation of the patients; 0 for none.
        name: Name of run and model; empty for a name made of data and goal.
        device: Device of the training, such as "auto", "cpu" or "cuda:0".
        runFolder: The run that is shown; empty for none.
    """

    source: CaseSource = CaseSource.SCENE
    folder: str = ""
    imagePattern: str = ""
    labelPattern: str = ""
    folders: str = ""
    caseList: str = ""
    caseEdits: str = ""
    classEdits: str = ""
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
    if TYPE_CHECKING:  # of the wrapper
        parameterNode: Any
