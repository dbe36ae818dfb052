"""Plans, and recipes that are edited and checked while they are typed."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import slicer
from pumit.errors import DiskFullError
from pumit.networks.build import build_network
from pumit.system.consent import give_consent
from pumit.training.validate import read_recipe
from PUMITSlicerLib.computing.availability import AvailableDevice
from PUMITTrainLib.cases.case_row import ClassRow
from PUMITTrainLib.cases.scene_snapshot import SceneSnapshot
from PUMITTrainLib.parameters import ClickPart, Goal, PresetName
from PUMITTrainLib.plan.planning import fileName, nameOf

RECIPE = "task: segmentation\ndata:\n  folder: x\nschedule:\n  steps: 40  # few\n"


@pytest.fixture
def planned(train: Any) -> Any:
    train.addCases(1)
    train.plan()
    train.answerPlan(RECIPE)
    return train


def test_a_plan_of_changed_settings_is_not_called_ready(train):
    train.addCases(1)
    train.plan()
    train.logic.parameters.preset = PresetName.THOROUGH
    train.answerPlan(RECIPE)
    assert train.status == "Cases or settings have changed; plan again."


def test_broken_yaml_is_known_at_once(planned):
    planning = planned.logic.planning
    planning.setRecipeText("task: segmentation\ndata: [1, 2\nschedule:\n")
    assert planning.recipeProblem.line in (2, 3)
    assert planned.logic.runs.whyNoStart == planning.recipeProblem.sentence
    planning.resetRecipe()
    assert not planning.isEdited


def test_wrong_key_is_found_with_its_line(planned):
    planning, checker = planned.logic.planning, planned.checker
    planning.setRecipeText(RECIPE.replace("steps", "step"))
    planning.setRecipeText(RECIPE.replace("steps", "stepz"))
    assert not checker.texts
    planned.timers.ring()
    assert checker.texts == [RECIPE.replace("steps", "stepz")]
    checker.answer("Unknown key 'stepz' in schedule; did you mean 'steps'?")
    assert planning.recipeProblem.line == 5
    assert "did you mean 'steps'?" in planned.logic.runs.whyNoStart
    planning.setRecipeText(RECIPE.replace("40", "50"))
    planned.timers.ring()
    checker.answer("")
    assert planning.recipeProblem is None


def test_edited_recipe_is_what_runs(planned):
    text = RECIPE.replace("40", "50")
    planned.logic.planning.setRecipeText(text)
    planned.start()
    ((folder, _arguments),) = planned.launcher.launched
    assert (folder / "recipe.yaml").read_text() == text


def test_a_recipe_that_begins_with_a_restricted_model_needs_consent_once(
    planned, tmp_path, monkeypatch
):
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    planning = planned.logic.planning
    assert planning.restricted is None
    planning.setRecipeText(RECIPE + "initial: default\n")
    assert planning.restricted is None
    planning.setRecipeText(RECIPE + "initial: research\n")
    assert planning.restricted.licence == "CC BY-NC-SA 4.0"
    planning.setRecipeText(RECIPE + "initial: [research\n")
    assert planning.restricted is None
    planning.setRecipeText(RECIPE + "initial: research\n")
    give_consent("research", planning.restricted.licence)
    assert planning.restricted is None


def test_edits_are_not_lost_by_a_changed_setting(planned):
    planned.logic.planning.setRecipeText(RECIPE.replace("40", "50"))
    planned.logic.parameters.validationShare = 0.3
    planned.start()
    assert not planned.launcher.launched
    assert "lose the edits" in planned.status
    planned.logic.parameters.validationShare = 0.2
    planned.start()
    assert len(planned.launcher.launched) == 1


def test_second_run_gets_a_folder_and_files_of_its_own(planned):
    planned.start()
    first = planned.launcher.launched[-1][0]
    planned.start(evenIfBusy=True)
    planned.answerPlan()
    second = planned.launcher.launched[-1][0]
    assert first != second
    assert sorted(p.name for p in (first / "data").iterdir()) == sorted(
        p.name for p in (second / "data").iterdir()
    )


def test_choices_reach_the_plan(train):
    train.addCases(1)
    parameters = train.logic.parameters
    parameters.goal, parameters.part = Goal.CLICKS, ClickPart.ADAPTERS
    parameters.preset, parameters.folds, parameters.name = PresetName.THOROUGH, 5, "hearts"
    train.plan()
    call = train.programs.last
    assert {"thorough", "clicks"} <= set(call.arguments)
    config = call.config
    assert (config["part"], config["folds"], config["name"]) == ("adapters", 5, "hearts")
    assert "validation" not in config["data"]
    parameters.goal, parameters.network, parameters.folds = Goal.AUTOMATIC, "basic_unet", 0
    train.logic.planning.cancel()
    train.plan()
    config = train.programs.last.config
    assert (config["network"], config["data"]["validation"]) == ("basic_unet", 0.2)
    assert "part" not in config


@pytest.mark.slow
def test_core_knows_every_key_of_the_request(train, tmp_path):
    train.addCases(1)
    cases, parameters = train.logic.cases, train.logic.parameters
    cases.addFiles([tmp_path / "a.nrrd", tmp_path / "b.nrrd"], tmp_path / "label.nrrd")
    cases.setPatient(("", "a"), "P1")
    cases.addClass(ClassRow("whole", (1, 2), ("all",), "liver", (1.0, 0.0, 0.0)))
    parameters.device, parameters.name, parameters.network = "cpu", "hearts", "basic_unet"
    for goal, task in ((Goal.AUTOMATIC, "segmentation"), (Goal.CLICKS, "promptable")):
        parameters.goal = goal
        train.plan()
        read_recipe({**train.programs.last.config, "task": task}, "config.yaml")
        train.logic.planning.cancel()


def test_model_without_a_name_is_called_after_its_classes(train):
    rows = [ClassRow("left atrium"), ClassRow("aorta"), ClassRow("vein")]
    assert nameOf(rows[:2], Goal.AUTOMATIC) == "left_atrium-aorta"
    assert nameOf(rows, Goal.CLICKS) == "left_atrium-aorta-more-clicks"
    assert nameOf([], Goal.CLICKS) == ""
    assert fileName(" ../a: b?/ ") == "a_b"
    train.addCases(1)
    train.read()
    train.answerCheck()
    train.plan()
    assert train.programs.last.config["name"] == "liver-clicks"


def test_networks_on_offer_can_be_trained(train):
    from pumit.training.segmentation.networks import trainable_names

    assert {choice.name for choice in train.logic.planning.networks} == set(trainable_names())


def test_every_family_is_on_offer_in_a_small_size_first(train):
    first = [choice.name for choice in train.logic.planning.networks][:7]
    assert [name.split("_")[0] for name in first] == [
        "pumit",
        "pumit",
        "basic",
        "nnformer",
        "hymamba",
        "unetr",
        "swin",
    ]


def test_sizes_that_are_reported_are_those_of_the_networks(train):
    import torch

    for choice in train.logic.planning.networks:
        with torch.device("meta"):
            network = build_network(choice.name)
        millions = round(sum(p.numel() for p in network.parameters()) / 1e6)
        assert f"about {millions} million" in choice.tooltip, choice.name


def test_devices_are_requested_once(train):
    train.logic.setup.requestDevices()
    train.settle()
    assert train.logic.setup.devices == (AvailableDevice("cpu", "Processor"),)


def test_missing_packages_keep_a_run_from_starting(train):
    train.addCases(1)
    train.missing = "To compute on this machine, torch must be installed into Slicer's Python."
    train.logic.enter()
    train.settle()
    assert train.logic.setup.isMissing
    train.logic.runs.start()
    assert train.status == train.missing
    train.missing = ""
    train.logic.setup.check()
    train.settle()
    assert not train.logic.runs.whyNoStart


def test_edits_after_a_start_are_known_to_belong_to_that_run(planned):
    planned.start()
    planned.logic.planning.setRecipeText(RECIPE.replace("40", "50"))
    planned.start(evenIfBusy=True)
    assert len(planned.launcher.launched) == 1
    assert "belongs to a run already" in planned.status
    assert "Cases or settings changed" not in planned.status


def test_a_draft_that_somebody_deleted_is_made_again(planned):
    shutil.rmtree(planned.root)
    assert not planned.logic.planning.isUpToDate
    planned.start()
    planned.answerPlan(RECIPE)
    ((folder, _arguments),) = planned.launcher.launched
    assert (folder / "recipe.yaml").read_text() == RECIPE
    assert len(list((folder / "data").iterdir())) == 2  # image and label were written again


def test_a_folder_of_runs_that_cannot_be_written_is_said(train):
    train.root.write_text("a file", encoding="utf-8")
    train.addCases(1)
    train.read()
    assert "folder cannot be created" in train.status
    train.root.unlink()
    train.read()
    train.answerCheck()
    assert train.logic.runs.whyNoStart == ""


def test_a_case_that_cannot_be_written_is_not_silently_left_out(train, monkeypatch):
    write = SceneSnapshot.write

    def full(taken: Any, folder: Path) -> Any:
        if taken.name == "scan1":
            raise DiskFullError("The result cannot be written: the disk is full; make room.")
        return write(taken, folder)

    monkeypatch.setattr(SceneSnapshot, "write", full)
    train.addCases(2)
    train.start()
    assert not train.programs.calls
    assert train.status == "scan1: The result cannot be written: the disk is full; make room."
    assert train.logic.runs.whyNoStart.startswith("scan1: ")
    monkeypatch.undo()
    train.read()
    train.answerCheck()
    folder = train.startRun()
    assert len(list((folder / "data").iterdir())) == 4


def test_cancel_while_a_case_is_written_for_a_plan_ends_the_planning(planned):
    planned.logic.parameters.preset = PresetName.THOROUGH
    node = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")[0]
    node.GetSegmentation().GetNthSegment(0).SetName("kidney")  # so it is written again
    planned.logic.planning.make()
    assert planned.status == "Exporting scan0 from the scene..."
    planned.logic.cancel()
    planned.settle()
    assert planned.status == "Planning was cancelled."
    assert not planned.logic.planning.isPlanning
    assert len(planned.programs.calls) == 1  # the first plan's


@pytest.mark.parametrize("work", ["read", "plan", "compare"])
def test_a_closed_scene_leaves_no_work_on_the_status_line(train, work):
    train.addCases(2)
    labels = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")
    {
        "read": train.logic.cases.check,
        "plan": train.logic.planning.make,
        "compare": lambda: train.logic.comparison.start(*labels, 2.0),
    }[work]()
    train.settle()
    assert train.logic.status.isWorking
    slicer.mrmlScene.Clear()
    train.settle()
    assert not train.logic.status.isWorking, train.status
    assert train.programs.last.isCancelled


def test_what_is_left_out_after_start_was_pressed_is_not_trained_on(train):
    train.addCases(2)
    train.start()
    train.logic.cases.setExcluded(("", "scan1"), True)
    train.answerPlan()
    assert not train.launcher.launched
    assert train.status == (
        "Cases or settings have changed since you pressed Start; press it again."
    )
    train.start()
    (case,) = train.programs.last.config["data"]["cases"]
    assert case["name"] == "scan0"
    train.answerPlan()
    assert len(train.launcher.launched) == 1


def test_a_plan_keeps_its_request_while_cases_are_read_again(train):
    """The program reads it seconds after its start."""
    train.addCases(1)
    train.logic.parameters.name = "mine"
    train.plan()
    plan = train.programs.last
    before = plan.config
    train.read()
    assert train.programs.last.arguments[0] == "data"
    assert plan.config == before
    assert before["name"] == "mine"


def test_cases_read_while_they_are_written_for_a_plan_end_the_planning(train):
    train.addCases(1)
    train.logic.planning.make()
    assert train.logic.planning.isPlanning
    train.read()
    assert not train.logic.planning.isPlanning
    train.answerCheck()
    assert train.logic.runs.whyNoStart == ""


def test_a_run_does_not_start_while_its_cases_are_read_again(train):
    train.addCases(1)
    train.start()
    plan = train.programs.last
    train.read()
    plan.output.write_text(RECIPE, encoding="utf-8")
    plan.end()
    train.settle()
    assert not train.launcher.launched
    assert train.status == "The cases are still being read."
