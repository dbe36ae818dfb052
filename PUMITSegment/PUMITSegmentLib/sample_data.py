"""Sample scans for Slicer's Sample Data module."""

from __future__ import annotations

from pathlib import Path

import slicer
from slicer.i18n import tr as _

CATEGORY = "PUMIT"
GENERATED = "PUMITGeneratedAbdomen"
LIVER = "PUMITCTLiver"
# The liver CT that Slicer offers as CTLiver: liver_100 of the Medical Segmentation Decathlon, CC
# BY-SA 4.0. It has Slicer's file name, so that both share one download.
LIVER_FILE = "CTLiver.nrrd"
LIVER_SHA256 = "e16eae0ae6fefa858c5c11e58f0f1bb81834d81b7102e021571056324ef6f37e"
LIVER_URL = f"https://github.com/Slicer/SlicerTestingData/releases/download/SHA256/{LIVER_SHA256}"
_ICONS = Path(__file__).resolve().parent.parent / "Resources" / "Icons"


def registerSampleData(iconsFolder: str | Path = _ICONS) -> None:
    """Register the scans in Slicer's Sample Data; call this when Slicer has started."""
    from SampleData import SampleDataLogic

    SampleDataLogic.registerCustomSampleDataSource(
        category=CATEGORY,
        sampleName=GENERATED,
        # Never read, since the scan is generated, but Slicer requires a URL for every entry.
        uris="https://github.com/pumit/SlicerPUMIT",
        fileNames=f"{GENERATED}.nrrd",
        nodeNames=GENERATED,
        customDownloader=_Generator(),
        thumbnailFileName=str(Path(iconsFolder) / f"{GENERATED}.png"),
    )
    SampleDataLogic.registerCustomSampleDataSource(
        category=CATEGORY,
        sampleName=LIVER,
        uris=LIVER_URL,
        fileNames=LIVER_FILE,
        nodeNames=LIVER,
        checksums=f"SHA256:{LIVER_SHA256}",
        thumbnailFileName=str(Path(iconsFolder) / f"{LIVER}.png"),
    )


def loadGeneratedScan():
    """Generate the abdominal scan and show it."""
    # Imported here, since registration runs while Slicer starts.
    from PUMITSlicerLib.generated_scan import generatedScan
    from PUMITSlicerLib.mrml import addVolumeNode

    node = addVolumeNode(_("Generated abdomen"), generatedScan().volume)
    display = node.GetDisplayNode()
    display.SetAutoWindowLevel(False)
    # Usual abdominal window.
    display.SetWindowLevel(400, 40)
    slicer.util.setSliceViewerLayers(background=node, fit=True)
    return node


class _Generator:
    """Custom downloader that generates the data set."""

    def __call__(self, source: object) -> list[object]:
        return [loadGeneratedScan()]

    def __repr__(self) -> str:
        # Slicer compares entries by their text, which must not change at a reload.
        return "PUMIT generated abdomen"
