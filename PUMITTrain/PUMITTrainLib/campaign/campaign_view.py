"""A campaign as the panel shows it, read at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pumit.campaign import (
    Campaign,
    CampaignChart,
    CampaignClass,
    CampaignSettings,
    NextAction,
    ScanEntry,
)
from pumit.campaign.thumbnail import thumbnail_of
from pumit.runs import RunStatus

_UNKNOWN = 0.5  # certainty of a scan without a prediction
_STAGES = ("checking", "predicted", "open", "later", "labelled", "accepted", "left_out")


@dataclass(frozen=True)
class CampaignView:
    """A campaign at one moment.

    Attributes:
        folder: Its folder.
        name: Its name.
        classes: Its classes.
        scans: All scans, in the order of the list.
        thumbnails: Scan to its picture, where there is one.
        action: What comes next.
        chart: Curves over the rounds.
        settings: Its settings.
        training: Status of the training that is not judged yet; None for none.
        trainingFolder: Folder of that run, or None.
        atWork: What a process does now, on whichever computer: "train", "predict", or "".
        toPredict: Scans that wait for a prediction.
        failure: Why the last round failed; empty where it did not.
        unknownNames: Name of segments that no class has, to scans with it.
    """

    folder: Path
    name: str
    classes: tuple[CampaignClass, ...]
    scans: tuple[ScanEntry, ...]
    thumbnails: Mapping[str, Path]
    action: NextAction
    chart: CampaignChart
    settings: CampaignSettings
    training: RunStatus | None
    trainingFolder: Path | None
    atWork: str
    toPredict: int
    failure: str
    unknownNames: Mapping[str, list[str]]

    @property
    def isTraining(self) -> bool:
        """Whether a process trains it now, on whatever computer."""
        return self.training is not None and self.training.is_alive

    def count(self, *states: str) -> int:
        """How many scans are in one of these states, open or not."""
        return sum(scan.stored_state in states for scan in self.scans)


def readCampaign(campaign: Campaign) -> CampaignView:
    """Read a campaign; on a thread."""
    scans = campaign.scans()
    settings, rounds = campaign.settings, campaign.rounds
    found = ((scan.id, thumbnail_of(campaign, scan)) for scan in scans)
    last = rounds[-1] if rounds else None
    return CampaignView(
        campaign.folder,
        campaign.name,
        campaign.classes,
        tuple(sorted(scans, key=_uncertain) if settings.order == "uncertain" else scans),
        {key: path for key, path in found if path is not None},
        campaign.next_action(),
        campaign.chart(),
        settings,
        campaign.training(),
        campaign.training_folder(),
        campaign.at_work,
        len(campaign.scans_to_predict()),
        last.sentence if last is not None and last.state == "failed" else "",
        campaign.unknown_names(scans),
    )


def _uncertain(scan: ScanEntry) -> tuple[int, float, int]:
    certainty = scan.certainty
    return _STAGES.index(scan.state), _UNKNOWN if certainty is None else certainty, scan.order
