"""Predictions of a campaign's open scans, their expected quality, and embeddings."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pumit.batch.task import Answerer, BatchSettings, predictor_for
from pumit.campaign.campaign import Campaign
from pumit.campaign.entry import ScanEntry, quality_of
from pumit.campaign.folder import PREDICTION, CampaignConflict
from pumit.campaign.labels import (
    CampaignClass,
    class_dice,
    class_named,
    segmentation_of,
)
from pumit.campaign.progress import EMBEDDING, read_embedding, used_round
from pumit.campaign.shared_file import working_alone
from pumit.campaign.thumbnail import draw_thumbnail
from pumit.errors import PumitError, VolumeError
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.inference.interactive.uncertainty import doubtful_places
from pumit.segmentation import Algorithm, LabelMap, Mask
from pumit.system.files import write_text
from pumit.system.watch import UNWATCHED

if TYPE_CHECKING:
    from pumit.volume import Volume

Progress = Callable[[str, float], None]
_OVERLAP = 0.5  # of sliding windows: a person corrects the result anyway


@dataclass(frozen=True)
class CampaignModel:
    """A model that predicts a campaign's classes.

    Attributes:
        number: Round that trained it; 0 for an installed model.
        calibration: Class to the ratio of true to expected Dice.
    """

    name: str
    number: int
    calibration: Mapping[str, float]

    def answerer(self, device: str) -> Answerer:
        """Load the model."""
        from pumit.models.index import find_model

        path = str(find_model(self.name))
        return predictor_for(
            BatchSettings(model=path, overlap=_OVERLAP, device=device, tells_doubt=True)
        )


def model_in_use(campaign: Campaign) -> CampaignModel | None:
    """Return the campaign's trained model, else its first model, else None."""
    used = used_round(campaign.rounds)
    if used is not None:
        return CampaignModel(str(campaign.folder / used.model), used.number, used.calibration)
    name = campaign.settings.first_model
    return CampaignModel(name, 0, {}) if name else None


def installed_model_for(classes: Sequence[CampaignClass]) -> str:
    """Return the installed automatic model that has most of the classes; "" if none has any.

    Models whose licence the user has not accepted are skipped.
    """
    from pumit.errors import StructureError
    from pumit.models.card import installed_models
    from pumit.structures.search import accepted, known_candidates

    known: dict[str, int] = {}
    cards = installed_models()
    for one in classes:
        for text in dict.fromkeys((one.name, one.terminology)):
            try:
                found = accepted(*known_candidates(text, cards)) if text else []
            except StructureError:
                continue
            for candidate in found:
                if len(candidate.labels) == 1:
                    known[candidate.card.name] = known.get(candidate.card.name, 0) + 1
            break
    return max(known, key=lambda name: known[name]) if known else ""


def answer(
    answers: Answerer, volume: Volume, classes: Sequence[CampaignClass]
) -> tuple[dict[str, Mask], dict[str, float], LabelMap, Algorithm]:
    """Predict a scan; return masks and expected Dice by class, the label map, and the model."""
    found, signed = answers(volume, UNWATCHED)
    masks: dict[str, Mask] = {}
    expected: dict[str, float] = {}
    for number, label in enumerate(found.classes, start=1):
        own = class_named(label.name, classes) or next(
            (c for c in classes if c.terminology and c.terminology == label.terminology), None
        )
        mask = found.mask(number)
        if own is None or not mask.any():
            continue
        # Several classes of the model may be one of the campaign, such as both sides of a pair.
        masks[own.name] = masks[own.name] | mask if own.name in masks else mask
        if found.expected_dice and (value := found.expected_dice[number - 1]) is not None:
            expected[own.name] = min(value, expected.get(own.name, value))
    return masks, expected, found, signed


def judge(
    campaign: Campaign, model: CampaignModel, scans: Sequence[ScanEntry], *, device: str = "auto"
) -> tuple[float, dict[str, float]]:
    """Return a model's mean Dice on labelled scans, and the ratio of true to expected Dice.

    Raises:
        PumitError: If none of the scans is labelled any more.
    """
    scans = [s for s in scans if s.is_truth]
    if not scans:
        raise PumitError("No validation scan is accepted any more; accept some, and train again.")
    answers = model.answerer(device)
    # In partially annotated scans, a correct prediction may count as an error.
    whole = [s for s in scans if s.known == "all"] or scans
    means: list[float] = []
    pairs: dict[str, list[tuple[float, float]]] = {}
    for scan in whole:
        volume = campaign.volume(scan)
        truth = campaign.truth(scan, volume)
        masks, expected, _, _ = answer(answers, volume, campaign.classes)
        drawn = set(scan.drawn or (c.name for c in campaign.classes))
        dice = {k: d for k, d in class_dice(truth, masks).items() if k in drawn}
        means.append(sum(dice.values()) / len(dice) if dice else 1.0)
        for name, value in expected.items():
            if name in dice:
                pairs.setdefault(name, []).append((dice[name], value))
    ratios = {
        name: min(1.0, sum(d for d, _ in found) / max(sum(e for _, e in found), 1e-6))
        for name, found in pairs.items()
    }
    return sum(means) / len(means), {name: round(r, 4) for name, r in ratios.items()}


def predict_open(
    campaign: Campaign, *, device: str = "auto", progress: Progress | None = None
) -> tuple[int, list[str]]:
    """Predict open scans that the current model has not predicted, except validation scans.

    Returns:
        Number of predicted scans, and sentences about scans that cannot be predicted.

    Raises:
        PumitError: If there is no model yet, another process trains or predicts, or the disk is
            full.
    """
    model, done, problems = model_in_use(campaign), 0, []
    if model is None:
        raise PumitError(
            "There is no model yet: accept some scans, then train (`pumit campaign train`)."
        )
    with working_alone(campaign.folder, "predict"):
        campaign.draw_validation()
        scans = campaign.scans_to_predict()
        answers = model.answerer(device) if scans else None
        for number, scan in enumerate(scans):
            if progress is not None:
                progress(f"{number + 1} of {len(scans)} scans", number / len(scans))
            now = campaign.scan(scan)
            if answers is None or now.is_truth or now.checked_by:
                continue  # a person was faster
            try:
                _predict(campaign, now, model, answers)
                done += 1
            except CampaignConflict:
                continue
            except VolumeError as error:
                problems.append(str(error))
                campaign.set_prediction(scan, number=model.number, word=str(error))
    return done, problems


def _predict(campaign: Campaign, scan: ScanEntry, model: CampaignModel, answers: Answerer) -> None:
    volume = campaign.volume(scan)
    masks, expected, label_map, signed = answer(answers, volume, campaign.classes)
    expected = {k: round(v * model.calibration.get(k, 1.0), 4) for k, v in expected.items()}
    found = segmentation_of(masks, volume, campaign.classes, signed)
    target = campaign.home(scan) / PREDICTION
    written = target.with_name(f".predicted-{secrets.token_hex(6)}.seg.nrrd")
    word = "nothing found"
    if found is not None:
        write_seg_nrrd(found, written)
        lowest = min(expected.values(), default=0.0)
        word = quality_of(lowest)
    places = {}
    if label_map.doubt is not None:
        for name, mask in masks.items():
            found_at = doubtful_places(mask, label_map.doubt, volume.spacing_mm)
            places[name] = [volume.index_to_world(at).round(2).tolist() for at in found_at]

    def place() -> None:
        if found is not None:
            os.replace(written, target)
        else:
            target.unlink(missing_ok=True)

    try:
        campaign.set_prediction(
            scan, number=model.number, word=word, expected=expected, places=places, place=place
        )
    finally:
        written.unlink(missing_ok=True)


def look_at_scans(
    campaign: Campaign, *, device: str = "auto", progress: Progress | None = None
) -> int:
    """Draw thumbnails, and store image embeddings, which `choose_scan` uses for variety.

    Returns:
        Number of scans that got an embedding. An unreadable scan's error becomes its word.
    """
    missing = [
        s
        for s in campaign.scans()
        if s.stored_state != "left_out" and read_embedding(campaign.home(s)) is None
    ]
    if not missing:
        return 0
    from pumit.inference.interactive.prompt_solver import scan_embedding
    from pumit.inference.interactive.segmenter import load_segmenter

    segmenter, done = load_segmenter("default", device), 0
    for number, scan in enumerate(missing):
        if progress is not None:
            progress(f"Looking at {number + 1} of {len(missing)} scans", number / len(missing))
        try:
            volume = campaign.volume(scan)
            draw_thumbnail(campaign, scan, volume)
            values = scan_embedding(segmenter, volume)
        except VolumeError as error:
            campaign.set_word(scan, str(error))
            continue
        rounded = [round(float(v), 4) for v in values]
        write_text(campaign.home(scan) / EMBEDDING, json.dumps(rounded))
        done += 1
    return done
