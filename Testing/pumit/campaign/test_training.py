"""A round: trained on what people accepted, judged on patients kept back, used if better."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from labelled_scans import TINY_SIZES
from pumit.campaign import (
    Campaign,
    CampaignSettings,
    LockTaken,
    ScanEntry,
    ShareLock,
    TrainingRound,
)
from pumit.campaign.labels import CampaignClass
from pumit.campaign.predicting import CampaignModel, answer, judge, look_at_scans, predict_open
from pumit.campaign.shared_file import WORK_LOCK, WORK_STALE_S
from pumit.campaign.thumbnail import thumbnail_due
from pumit.campaign.training import train_round
from pumit.errors import PumitError, TrainingError
from pumit.io.labels.label_file import named_segments
from pumit.runs import RunStatus, read_log, read_status, write_status
from pumit.segmentation import Algorithm, ClassLabel, LabelMap
from pumit.training.recipes.reader import read_yaml
from pumit.training.run.reporter import RunStopped
from pumit.volume import Volume

TINY: dict[str, Any] = {
    "task": "segmentation",
    "network": "pumit_segmentation_small",
    "network_sizes": TINY_SIZES,
    "plan": {"patch_size": [16, 32, 32], "batch_size": 2},
    "device": "cpu",
    "threads": 1,
    "schedule": {"steps": 2, "learning_rate": 4e-3, "warm_up": 1},
}
SETTINGS = CampaignSettings(training_seconds=60, refines_clicks=False)


@pytest.fixture
def tiny_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans networks that train in a second."""

    def plan(given: dict[str, Any], *_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(recipe={**TINY, **given, "schedule": TINY["schedule"]})

    monkeypatch.setattr("pumit.training.planning.planner.plan_training", plan)


@pytest.fixture
def fake_run(monkeypatch: pytest.MonkeyPatch, tiny_plan: None) -> dict[str, Any]:
    """A training that takes no time, and figures that a test sets."""
    known: dict[str, Any] = {"dice": {}, "trained": []}

    def finetune(plan: Any, folder: Any, **_: Any) -> Any:
        known["trained"].append(read_yaml(plan))
        if error := known.pop("error", None):
            raise error
        (folder / "model.safetensors").write_bytes(b"")
        return folder / "model.safetensors"

    def judge(_: Any, model: CampaignModel, __: Any, **___: Any) -> tuple[float, dict[str, float]]:
        return known["dice"][model.number], {}

    monkeypatch.setattr("pumit.training.train.finetune", finetune)
    monkeypatch.setattr("pumit.campaign.training.judge", judge)
    return known


def accept_next(campaign: Campaign, truth_of: Callable, count: int) -> None:
    for _ in range(count):
        scan = campaign.next_scan()
        campaign.accept(scan, truth_of(scan), clicks=1)


def test_only_what_people_labelled_trains_or_validates(make_campaign, truth_of, fake_run):
    campaign = make_campaign(12, 4, settings=SETTINGS)
    predicted = campaign.scans()[-1]
    campaign.set_prediction(predicted, number=0, word="good", expected={"outer": 0.99})
    fake_run["dice"] = {1: 0.8}
    one = train_round(campaign)
    used = {case["name"] for case in fake_run["trained"][0]["data"]["cases"]}
    assert used == {s.id for s in campaign.scans() if s.is_truth}
    assert len(one.trained) == 3
    assert one.is_rough
    assert one.is_used
    assert one.sentence == "Round 1: Dice 0.80 on 1 scan (rough): taken into use."


def test_model_is_used_only_if_it_is_better_on_the_fixed_patients(
    make_campaign, truth_of, fake_run
):
    campaign = make_campaign(16, 4, settings=SETTINGS)
    fake_run["dice"] = {1: 0.8, 2: 0.85, 3: 0.84}
    train_round(campaign)
    accept_next(campaign, truth_of, 6)
    second = train_round(campaign)
    assert not second.is_rough
    assert set(second.validated) <= set(campaign.validation.scans)
    assert set(second.validated).isdisjoint(second.trained)
    assert (second.dice, second.dice_before, second.is_used) == (0.85, 0.8, True)
    recipe = fake_run["trained"][1]
    assert recipe["initial"] == str(campaign.folder / "rounds/001/model.safetensors")
    assert recipe["schedule"]["learning_rate"] == pytest.approx(2e-3)
    accept_next(campaign, truth_of, 3)
    third = train_round(campaign)
    assert not third.is_used
    assert "not better" in third.sentence
    assert campaign.chart().sentence == "The last round brought -0.01: you can stop."
    assert not any(s.id in campaign.validation.scans for s in campaign.scans_to_predict())


def test_labels_of_values_that_were_asked_about_train_by_their_classes(
    make_folder, fake_run, tmp_path
):
    lab = make_folder(4, 3)
    campaign = Campaign.create(tmp_path / "c", [lab], ["outer"], settings=SETTINGS)
    campaign.remember_name("2", None)
    fake_run["dice"] = {1: 0.8}
    train_round(campaign)
    cases = fake_run["trained"][0]["data"]["cases"]
    assert len(cases) == 3
    for case in cases:
        (label,) = map(Path, case["label"])
        assert [s.name for s in named_segments(label)] == ["outer"]
        assert (case["drawn"], case["known"]) == ("all", "all")  # its file had no names


def test_training_that_was_stopped_is_continued_as_the_same_round(make_campaign, fake_run):
    campaign = make_campaign(6, 4, settings=SETTINGS)
    fake_run["dice"] = {1: 0.8}
    fake_run["error"] = RunStopped("Stopped.")
    with pytest.raises(RunStopped):
        train_round(campaign)
    assert campaign.next_action().sentence == "Continue the training"
    assert train_round(Campaign.open(campaign.folder)).number == 1
    assert [p.name for p in (campaign.folder / "rounds").iterdir()] == ["001"]


def test_a_round_is_not_finished_while_its_model_is_compared(make_campaign, fake_run, monkeypatch):
    """The status was "Finished. The model can be used now." until clicks were trained."""
    campaign, said = make_campaign(6, 4, settings=SETTINGS), []

    def judge(campaign: Campaign, *_: Any, **__: Any) -> tuple[float, dict[str, float]]:
        write_status(campaign.training_folder(), RunStatus("finished", "Finished."))
        said.append(campaign.training())
        return 0.8, {}

    monkeypatch.setattr("pumit.campaign.training.judge", judge)
    train_round(campaign)
    assert said == [None]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (TrainingError("The data cannot be used: scan01: is odd."), "scan01: is odd"),
        (RuntimeError("need at least one array to concatenate"), "need at least"),
    ],
)
def test_training_that_fails_says_why_and_is_not_begun_again_by_itself(
    make_campaign, fake_run, error, sentence
):
    campaign = make_campaign(6, 4, settings=SETTINGS)
    if isinstance(error, TrainingError):  # it knows a scan by its identifier
        error = TrainingError(str(error).replace("scan01", campaign.scans()[1].id))
    fake_run["error"] = error
    with pytest.raises(type(error), match=sentence):
        train_round(campaign)
    assert campaign.rounds[-1].state == "failed"
    assert not campaign.is_training_due
    fake_run["dice"] = {2: 0.7}
    assert train_round(campaign).number == 2


def test_acceptance_that_is_undone_during_the_training_does_not_end_it(
    make_campaign, truth_of, fake_run, monkeypatch
):
    campaign = make_campaign(6, 4, settings=SETTINGS)
    first, second = campaign.scans()[4:]
    campaign.accept(first, truth_of(first))
    campaign.undo_accept(first.id)
    empty = SimpleNamespace(classes=(), doubt=None)
    monkeypatch.setattr(CampaignModel, "answerer", lambda *_: lambda *_: (empty, None))
    model = CampaignModel("known", 0, {})
    assert judge(campaign, model, [campaign.scan(first), campaign.scans()[0]])[0] == 0.0
    with pytest.raises(PumitError, match="No validation scan is accepted any more"):
        judge(campaign, model, [campaign.scan(first), second])


def test_second_computer_does_not_train_at_once(make_campaign, fake_run, monkeypatch):
    campaign = make_campaign(6, 4, settings=SETTINGS)
    with ShareLock(campaign.folder / "training.lock"):
        assert campaign.at_work == "train"
        assert campaign.next_action().sentence == "Open the next scan"
        monkeypatch.setattr("pumit.campaign.shared_file.time.sleep", lambda seconds: None)
        ticks = iter(range(0, 10**6, 7))
        monkeypatch.setattr("pumit.campaign.shared_file.time.monotonic", lambda: next(ticks))
        with pytest.raises(LockTaken, match="is already being trained or predicted"):
            train_round(campaign)
    assert not campaign.rounds


def test_predicting_is_seen_by_others_and_done_once(make_campaign, monkeypatch):
    campaign = make_campaign(6, 2, settings=CampaignSettings(first_model="known"))
    seen: list[tuple[str, str]] = []

    def predict(*_: Any) -> None:
        other = Campaign.open(campaign.folder)
        seen.append((other.at_work, other.next_action().kind))

    monkeypatch.setattr(CampaignModel, "answerer", lambda self, device: predict)
    monkeypatch.setattr("pumit.campaign.predicting._predict", predict)
    assert campaign.next_action().kind == "predict"
    assert predict_open(campaign)[0] == 4
    assert seen == [("predict", "open")] * 4
    assert campaign.at_work == ""


def test_rough_figures_compare_both_models_on_a_patient_that_neither_has_seen(
    make_campaign, truth_of, fake_run
):
    campaign = make_campaign(7, 3, settings=SETTINGS)
    fake_run["dice"] = {1: 0.8, 2: 0.9}
    first = train_round(campaign)
    partial, whole = (s for s in campaign.scans() if s.state == "open" and s.name > "scan04")
    campaign.accept(partial, truth_of(partial), drawn=["outer"])
    campaign.accept(whole, truth_of(whole))
    second = train_round(campaign)
    assert second.validated == (whole.id,)
    assert set(first.validated) <= set(second.trained)
    assert (second.dice_before, second.dice) == (0.8, 0.9)


def test_two_classes_of_a_model_that_are_one_of_the_campaign_are_joined():
    labels = np.zeros((2, 2, 2), np.uint8)
    labels[0], labels[1] = 1, 2
    sides = (ClassLabel("left kidney"), ClassLabel("right kidney"))
    found = LabelMap(labels, sides, expected_dice=(0.6, 0.9))
    kidney = CampaignClass("kidney", 1, other_names=("left kidney", "right kidney"))
    signed = Algorithm("model", "1", "AUTOMATIC")
    masks, expected, *_ = answer(lambda *_: (found, signed), Volume(labels), [kidney])
    assert masks["kidney"].all()
    assert expected == {"kidney": 0.6}


def test_a_scan_that_is_gone_hinders_no_other(make_campaign, monkeypatch):
    campaign = make_campaign(4, settings=CampaignSettings(first_model="known"))
    gone, *others = campaign.scans()
    gone.path.unlink()
    predicted: list[str] = []

    def predict(campaign: Campaign, scan: ScanEntry, *_: Any) -> None:
        campaign.volume(scan)
        predicted.append(scan.name)

    monkeypatch.setattr(CampaignModel, "answerer", lambda self, device: predict)
    monkeypatch.setattr("pumit.campaign.predicting._predict", predict)
    done, (problem,) = predict_open(campaign)
    assert (done, predicted) == (3, [s.name for s in others])
    assert problem.startswith(f"{gone.name} is not where it was")
    assert campaign.scan(gone.id).word == problem
    assert gone.id not in [s.id for s in campaign.scans_to_predict()]


def test_rough_figures_turn_down_only_what_is_clearly_worse(make_campaign, truth_of, fake_run):
    campaign = make_campaign(6, 3, settings=SETTINGS)
    fake_run["dice"] = {1: 0.8, 2: 0.78, 3: 0.6}
    assert train_round(campaign).is_used
    campaign.save_round(replace(campaign.rounds[0], trained=tuple(s.id for s in campaign.scans())))
    assert train_round(campaign).is_used
    campaign.save_round(replace(campaign.rounds[1], trained=tuple(s.id for s in campaign.scans())))
    assert not train_round(campaign).is_used


def test_rough_figures_are_of_a_patient_that_no_model_has_seen(make_campaign, truth_of, fake_run):
    campaign = make_campaign(7, 3, settings=SETTINGS)
    fake_run["dice"] = {1: 0.8, 2: 0.9, 3: 0.9, 4: 0.9}
    rounds = [train_round(campaign)]
    for _ in range(2):
        accept_next(campaign, truth_of, 1)
        rounds.append(train_round(campaign))
    for number, one in enumerate(rounds):
        seen = {key for before in rounds[:number] for key in before.trained}
        assert seen.isdisjoint(one.validated)
        assert ("initial" in fake_run["trained"][number]) == bool(number)
    # Where all is seen, it begins as the first one did.
    campaign.save_round(replace(rounds[0], trained=tuple(s.id for s in campaign.scans())))
    assert train_round(campaign).dice_before is None
    assert "initial" not in fake_run["trained"][-1]


def test_patients_that_a_model_has_seen_are_not_kept_for_validation(
    make_campaign, make_folder, truth_of, fake_run
):
    campaign = make_campaign(6, 6, settings=SETTINGS)
    fake_run["dice"] = {1: 0.8}
    first = train_round(campaign)
    assert not campaign.validation.patients
    campaign.add_scans([make_folder(9, 9, name="more")])
    campaign.draw_validation()
    assert len(campaign.validation.patients) == 2
    assert set(first.trained).isdisjoint(campaign.validation.scans)


@pytest.mark.slow
def test_a_round_and_its_predictions(make_campaign, tiny_plan):
    campaign = make_campaign(12, 4, settings=SETTINGS)
    one = train_round(campaign, device="cpu")
    assert one.dice is not None
    assert (campaign.folder / one.model).is_file()
    # Whatever so little training gives, it is used in this test.
    campaign.save_round(replace(one, is_used=True))
    waiting = campaign.scans_to_predict()
    assert len(waiting) == 6
    done, problems = predict_open(campaign, device="cpu")
    assert (done, problems) == (6, [])
    for scan in campaign.scans():
        prediction = campaign.home(scan) / "prediction.seg.nrrd"
        if scan.id not in {s.id for s in waiting}:
            assert not prediction.exists()
        elif prediction.exists():
            assert scan.state == "predicted"
            assert all(s.name in ("outer", "inner") for s in named_segments(prediction))
    assert not campaign.scans_to_predict()
    assert look_at_scans(campaign, device="cpu") == 12
    assert all(thumbnail_due(campaign, s).is_file() for s in campaign.scans())
    assert campaign.next_scan("uncertain") is not None


def test_round_of_a_later_version_is_read(make_campaign):
    campaign = make_campaign(1)
    campaign.save_round(TrainingRound(1, "finished", trained=("a",)))
    campaign._change(lambda c: {**c, "rounds": [{**c["rounds"][0], "unheard_of": 1}]})
    assert Campaign.open(campaign.folder).rounds[0].trained == ("a",)


@pytest.mark.slow
def test_killed_training_is_continued_where_it_was_saved(make_campaign, tiny_plan, monkeypatch):
    campaign = make_campaign(6, 4, settings=SETTINGS)
    # 1. A round that is planned and was not trained: long, and saved after every step.
    with monkeypatch.context() as patch:
        patch.setattr("pumit.training.train.finetune", lambda *_, **__: sys.exit())
        with pytest.raises(SystemExit):
            train_round(campaign)
    folder = campaign.folder / "rounds" / "001"
    recipe = read_yaml(folder / "plan.yaml")
    recipe["schedule"] |= {"steps": 100_000, "checkpoint_seconds": 0.0, "log_every": 1}
    (folder / "plan.yaml").write_text(yaml.safe_dump(recipe))
    # 2. Killed after some steps.
    command = [sys.executable, "-m", "pumit", "campaign", "train", str(campaign.folder)]
    process = subprocess.Popen([*command, "--device", "cpu"], stdout=subprocess.DEVNULL)
    try:
        while (status := read_status(folder)) is None or status.step < 3:
            assert process.poll() is None
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()
    lock = campaign.folder / WORK_LOCK
    os.utime(lock, (lock.stat().st_mtime - 2 * WORK_STALE_S,) * 2)  # a while later
    assert campaign.next_action().sentence == "Continue the training"
    # 3. Continued, and ended soon after.
    done = read_status(folder)
    recipe["schedule"]["steps"] = done.step + 2
    (folder / "plan.yaml").write_text(yaml.safe_dump(recipe))
    one = train_round(Campaign.open(campaign.folder), device="cpu")
    assert (one.number, one.state) == (1, "finished")
    steps = [record["step"] for record in read_log(folder)[0] if "loss" in record]
    assert steps[-1] == done.step + 2
    assert steps.count(1) == 1
