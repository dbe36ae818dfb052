"""Snapshot of a campaign for the panel."""

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
    """Snapshot of a campaign.

    Attributes:
        scans: All scans, in the order of the list.
        thumbnails: Scan identifier to thumbnail, if there is one.
        trainingFolder: Run folder of the last round, or None.
        atWork: Work of a running process on any computer: "train", "predict", or "".
        toPredict: Number of scans that wait for a prediction.
        failure: Why the last round failed; empty if it did not.
        unknownNames: Segment name of no class to scans with it.
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
        """Whether a process on any computer is training."""
        return self.training is not None and self.training.is_alive

    def count(self, *states: str) -> int:
        """Return the number of scans in some states, regardless of who has them open."""
        return sum(scan.stored_state in states for scan in self.scans)


def readCampaign(campaign: Campaign) -> CampaignView:
    """Read a campaign; call on a worker thread."""
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
