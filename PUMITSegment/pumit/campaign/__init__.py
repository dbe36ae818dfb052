"""Annotation campaigns: label a set of scans with model predictions reviewed by people."""

from pumit.campaign.campaign import Campaign, CampaignSettings
from pumit.campaign.entry import ScanEntry, ScanState
from pumit.campaign.folder import CampaignConflict, ScanFiles
from pumit.campaign.labels import CampaignClass
from pumit.campaign.progress import (
    CampaignChart,
    NextAction,
    ScanOrder,
    TrainingRound,
    ValidationSet,
)
from pumit.campaign.shared_file import LockTaken, ShareLock

__all__ = [
    "Campaign",
    "CampaignChart",
    "CampaignClass",
    "CampaignConflict",
    "CampaignSettings",
    "LockTaken",
    "NextAction",
    "ScanEntry",
    "ScanFiles",
    "ScanOrder",
    "ScanState",
    "ShareLock",
    "TrainingRound",
    "ValidationSet",
]
