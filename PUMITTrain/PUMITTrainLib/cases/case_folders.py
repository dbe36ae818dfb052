"""Folders of cases, stored in the parameter node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from PUMITTrainLib.choices import CaseSource


@dataclass(frozen=True)
class CaseFolder:
    """Folder of cases.

    Attributes:
        folder: Path of the folder.
        images: Name pattern of images; empty to detect it.
        labels: Name pattern of labels; empty to detect it.
    """

    folder: str
    images: str = ""
    labels: str = ""


@dataclass(frozen=True)
class SourceRow:
    """Source of cases in the table.

    Attributes:
        kind: The scene, files, or a folder.
        count: Number of its cases.
        folder: Path of the folder; empty for the scene and files.
    """

    kind: CaseSource
    count: int
    folder: str = ""

    @property
    def name(self) -> str:
        """Name of the folder."""
        return Path(self.folder).name or self.folder


def readFolders(text: str) -> tuple[CaseFolder, ...]:
    """Parse the parameter node's text to folders, in the order they were added."""
    try:
        return tuple(
            CaseFolder(str(row["folder"]), str(row["images"]), str(row["labels"]))
            for row in json.loads(text or "[]")
        )
    except (ValueError, TypeError, KeyError):
        return ()  # from a later version, or edited by hand


def writeFolders(folders: Sequence[CaseFolder]) -> str:
    """Serialize folders for the parameter node."""
    return json.dumps([asdict(folder) for folder in folders]) if folders else ""
