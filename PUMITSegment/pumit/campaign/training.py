"""A round of a campaign: train on the accepted scans, and keep the model if it is better."""

import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pumit.campaign.campaign import CLICKS, Campaign
from pumit.campaign.entry import ScanEntry
from pumit.campaign.folder import GIVEN
from pumit.campaign.predicting import CampaignModel, judge, model_in_use
from pumit.campaign.progress import (
    TrainingRound,
    learnt_from,
    trainable,
    used_round,
)
from pumit.campaign.shared_file import ROUNDS, working_alone
from pumit.errors import PumitError
from pumit.runs import read_status
from pumit.system.files import make_folder, write_text
from pumit.system.wording import count_of

logger = logging.getLogger(__name__)

PLAN, CLICK_PLAN = "plan.yaml", "plan_clicks.yaml"
CLICK_MODEL = "default"  # what the first round starts from, unless the plan trains from scratch
FEWEST_TRAINED = 2
# Factor of the learning rate when a round first starts from the previous model.
WARM_RATE = 0.5
# Largest drop of Dice at which a model that is not compared on the same scans is still used.
ROUGH_LOSS = 0.05
# Steps planned on a busy computer are too few on an idle one: raise them, and limit the time.
MORE_STEPS, FEWER_VALIDATIONS = 12, 4
# Time for fine-tuning the click model, as a fraction of the training time.
CLICK_SHARE = 0.5
# Part of the click model to train, below this many scans: few weights first, all with enough data.
CLICK_PARTS = ((8, "decoder"), (16, "adapters"), (sys.maxsize, "all"))
NICENESS = 15


def work_in_background() -> None:
    """Lower the priority of this process."""
    nice = getattr(os, "nice", None)
    if nice is not None:
        with suppress(OSError):
            nice(NICENESS)
        return
    with suppress(ImportError, OSError, AttributeError):  # Windows
        import psutil

        psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)


def train_round(campaign: Campaign, *, device: str = "auto") -> TrainingRound:
    """Train on the accepted scans, or resume an interrupted training.

    The new model is used if its validation Dice is higher than the previous model's. If the two
    cannot be compared on the same scans, it is used unless its Dice is clearly lower.

    Raises:
        PumitError: If too few scans are accepted, a scan cannot be used, or another process trains.
        RunStopped: If the training was stopped; the same call resumes it.
    """
    from pumit.training.run.reporter import RunStopped

    with working_alone(campaign.folder, "train"):
        campaign.refresh()
        one = _begun(campaign)
        try:
            if one.dice is None:  # else it was interrupted while the click model was trained
                one = _judged(campaign, one, _train(campaign, one, device), device)
                campaign.save_round(one)
            if campaign.settings.refines_clicks:
                one = _with_clicks(campaign, one, device)
        except RunStopped:
            raise
        except Exception as error:
            is_said = isinstance(error, PumitError)
            text = _with_names(campaign, str(error)) if is_said else f"{type(error).__name__}."
            campaign.save_round(replace(one, state="failed", sentence=text))
            if not is_said:
                raise
            raise type(error)(text) from None
        one = replace(one, state="finished", seconds=_seconds(campaign, one))
        one = replace(one, sentence=_sentence(one))
        campaign.save_round(one)
    return one


def _begun(campaign: Campaign) -> TrainingRound:
    if campaign.rounds and campaign.rounds[-1].state == "training":
        return campaign.rounds[-1]
    if unknown := campaign.unknown_names():
        name = next(iter(unknown))
        raise PumitError(
            f"Labels have a segment {name!r}, which is no class of this campaign; say which it is "
            f"(`pumit campaign name FOLDER {name!r} CLASS`)."
        )
    campaign.draw_validation()
    scans = campaign.scans()
    ready, validation = trainable(scans), campaign.validation
    number = max((r.number for r in campaign.rounds), default=0) + 1
    validated = list(validation.labelled)
    if not validated:
        patients = sorted({s.patient for s in ready})
        if len(patients) < FEWEST_TRAINED:
            raise PumitError(
                f"Two patients at least must be labelled before a training; {len(patients)} "
                f"{'is' if len(patients) == 1 else 'are'}. Accept more scans first."
            )
        validated = _left_out(ready, campaign.rounds)
    trained = [s.id for s in ready if s.id not in set(validated)]
    if not trained:
        raise PumitError("Nothing is accepted to train on; accept some scans first.")
    folder = f"{ROUNDS}/{number:03d}"
    make_folder(campaign.folder / folder)
    one = TrainingRound(
        number, "training", folder, tuple(trained), tuple(validated), validation.is_rough
    )
    campaign.save_round(one)
    return one


def _left_out(ready: Sequence[ScanEntry], rounds: Sequence[TrainingRound]) -> list[str]:
    """Return the scans of one patient to validate on, if no validation scan is labelled.

    Prefer patients that no model was trained on, because the new model starts from the previous
    one; then complete labels; then patients not used for validation in the current model's round.
    A later round that leaves out another patient trains on this one.
    """
    used = used_round(rounds)
    seen, last = learnt_from(rounds), set(used.validated) if used is not None else set()

    def cost(patient: str) -> tuple[int, int, int, str]:
        own = [s for s in ready if s.patient == patient]
        partial = sum(s.known != "all" or bool(s.drawn) for s in own)
        return (
            sum(s.id in seen for s in own), partial, sum(s.id in last for s in own), patient,
        )  # fmt: skip

    chosen = min({s.patient for s in ready}, key=cost)
    return [s.id for s in ready if s.patient == chosen]


def _train(campaign: Campaign, one: TrainingRound, device: str) -> Path:
    from pumit.training.train import finetune

    folder = campaign.folder / one.folder
    plan = folder / PLAN
    if not plan.exists():
        _write(plan, _planned(campaign, one, device))
    return finetune(plan, folder, device=device)


def _is_seen(campaign: Campaign, one: TrainingRound) -> bool:
    return not learnt_from(campaign.rounds).isdisjoint(one.validated)


def _planned(campaign: Campaign, one: TrainingRound, device: str) -> dict[str, Any]:
    """Return the recipe: that of the current model, starting from its weights.

    A new recipe is planned for the first round, and if earlier rounds were trained on this round's
    validation scans.
    """
    data, clock = _data(campaign, one), _time(campaign.settings.training_seconds, device)
    used = used_round(campaign.rounds)
    if used is not None and not _is_seen(campaign, one):
        from pumit.training.recipes.reader import read_yaml

        before = read_yaml(campaign.folder / used.folder / PLAN)
        schedule = {**before["schedule"], **clock}
        if before.get("initial", CLICK_MODEL) == CLICK_MODEL:
            schedule["learning_rate"] *= WARM_RATE
        return {
            **before,
            "name": _name(campaign, one),
            "data": data,
            "initial": str(campaign.folder / used.model),
            "schedule": schedule,
        }
    from pumit.training.planning.planner import plan_training

    given = {
        "name": _name(campaign, one),
        "register": False,
        "data": data,
        "schedule": clock,
    }
    planned = plan_training(
        given, Path, source="the campaign", preset="quick", goal="automatic", device=device
    )
    schedule = {**planned.recipe["schedule"], **clock}
    schedule["steps"] *= MORE_STEPS
    schedule["validate_every"] = schedule.get("validate_every", 0) * FEWER_VALIDATIONS
    return {**planned.recipe, "schedule": schedule}


def _time(seconds: float, device: str) -> dict[str, Any]:
    """Return the time limit; on a CPU in processor time, as other programs have priority."""
    from pumit.inference.loading import pick_device
    from pumit.system.machine import usable_cores

    if pick_device(device).type != "cpu":
        return {"seconds": seconds, "clock": "wall"}
    cores = min(usable_cores(), int(os.environ.get("OMP_NUM_THREADS") or usable_cores()))
    return {"seconds": seconds * max(1, cores), "clock": "processor"}


def _with_clicks(campaign: Campaign, one: TrainingRound, device: str) -> TrainingRound:
    from pumit.training.train import finetune

    folder = campaign.folder / f"{one.folder}{CLICKS}"
    plan = folder / CLICK_PLAN
    if not plan.exists():
        make_folder(folder)
        initial = None if _is_seen(campaign, one) else campaign.click_model
        count = len(one.trained)
        recipe = {
            "task": "promptable",
            "name": f"{_name(campaign, one)}-clicks",
            "initial": CLICK_MODEL if initial is None else str(initial),
            "part": next(part for most, part in CLICK_PARTS if count < most),
            "register": False,
            "data": _data(campaign, one),
            "validation": {"answers": 8, "scenes": 4},
            "schedule": {
                **_time(campaign.settings.training_seconds * CLICK_SHARE, device),
                "validate_every": 100,
            },
        }
        _write(plan, recipe)
    try:
        checkpoint = finetune(plan, folder, device=device)
    except PumitError as error:
        logger.info("the clicks were not refined: %s", type(error).__name__)
        return one
    found = json.loads((folder / "validation.json").read_text(encoding="utf-8"))
    after = float(found["mean"].get("score", 0.0))
    before = [row["before"][0] for row in found["rows"] if row.get("before")]
    mean = sum(before) / len(before) if before else 0.0
    one = replace(one, click_dice=round(after, 4), click_dice_before=round(mean, 4))
    if after <= mean:
        return one
    return replace(one, click_model=checkpoint.relative_to(campaign.folder).as_posix())


def _data(campaign: Campaign, one: TrainingRound) -> dict[str, Any]:
    """Return the recipe's data, with scan identifiers as case names so that logs are anonymous."""
    cases: list[dict[str, Any]] = []
    for key in (*one.trained, *one.validated):
        scan = campaign.scan(key)
        images, labels = campaign.image_parts(scan), campaign.training_labels(scan)
        row = {
            "name": key, "images": list(map(str, images)), "label": list(map(str, labels)),
            "patient": scan.patient,
        }  # fmt: skip
        is_ours = scan.stored_state == "accepted" or labels[0].name == GIVEN
        if is_ours or scan.drawn or scan.known != "all":
            # A class without a segment is absent, unless the person did not annotate it.
            row |= {"drawn": list(scan.drawn) or "all", "known": scan.known}
        cases.append(row)
    return {
        "cases": cases,
        "classes": [c.as_row() for c in campaign.classes],
        "training": list(one.trained),
        "validation": list(one.validated),
        **({"channels": list(campaign.channels)} if campaign.channels else {}),
    }


def _judged(campaign: Campaign, one: TrainingRound, checkpoint: Path, device: str) -> TrainingRound:
    scans = [campaign.scan(key) for key in one.validated]
    model = checkpoint.relative_to(campaign.folder).as_posix()
    dice, calibration = judge(
        campaign, CampaignModel(str(checkpoint), one.number, {}), scans, device=device
    )
    former = model_in_use(campaign)
    used = used_round(campaign.rounds)
    before: float | None = None
    if former is not None and former.number != one.number and not _is_seen(campaign, one):
        before = round(judge(campaign, former, scans, device=device)[0], 4)
    if before is not None:
        is_used = dice > before
    else:
        is_used = used is None or used.dice is None or dice >= used.dice - ROUGH_LOSS
    return replace(
        one, model=model, dice=round(dice, 4), dice_before=before, calibration=calibration,
        is_used=is_used,
    )  # fmt: skip


def _write(path: Path, recipe: dict[str, Any]) -> None:
    from pumit.training.recipes.writer import recipe_text

    write_text(path, recipe_text(recipe, ("A round of a campaign.",)))


def _name(campaign: Campaign, one: TrainingRound) -> str:
    from pumit.models.user_index import name_from

    return name_from(f"{campaign.name[:30]}-{one.number}")


def _with_names(campaign: Campaign, text: str) -> str:
    for scan in campaign.scans():
        text = text.replace(scan.id, scan.name)
    return text


def _seconds(campaign: Campaign, one: TrainingRound) -> float:
    found = [read_status(campaign.folder / f) for f in (one.folder, f"{one.folder}{CLICKS}")]
    return round(sum(status.seconds for status in found if status is not None), 1)


def _sentence(one: TrainingRound) -> str:
    on = f"on {count_of(len(one.validated), 'scan')}{' (rough)' if one.is_rough else ''}"
    before = "" if one.dice_before is None else f", {one.dice_before:.2f} before"
    used = "taken into use" if one.is_used else "not better, so the model before stays"
    return f"Round {one.number}: Dice {one.dice:.2f} {on}{before}: {used}."
