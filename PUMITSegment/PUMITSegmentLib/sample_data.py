"""Scans to try the module with, in Slicer's module Sample Data."""

from __future__ import annotations

from pathlib import Path

import slicer
from slicer.i18n import tr as _

CATEGORY = "PUMIT"
GENERATED = "PUMITGeneratedAbdomen"
LIVER = "PUMITCTLiver"
# The liver CT that Slicer itself offers as CTLiver: liver_100 of the Medical Segmentation
# Decathlon, CC BY-SA 4.0. Under Slicer's own file name, so that one download serves both.
LIVER_FILE = "CTLiver.nrrd"
LIVER_SHA256 = "e16eae0ae6fefa858c5c11e58f0f1bb81834d81b7102e021571056324ef6f37e"
LIVER_URL = f"https://github.com/Slicer/SlicerTestingData/releases/download/SHA256/{LIVER_SHA256}"
_ICONS = Path(__file__).resolve().parent.parent / "Resources" / "Icons"


def registerSampleData(iconsFolder: str | Path = _ICONS) -> None:
    """Offer the scans in Slicer's Sample Data; to be called when Slicer has started.

    Args:
        iconsFolder: Folder of the thumbnails.
    """
    from SampleData import SampleDataLogic

    SampleDataLogic.registerCustomSampleDataSource(
        category=CATEGORY,
        sampleName=GENERATED,
        # Never read: the scan is made here. But Slicer wants an address for every entry.
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
    """Make the generated abdomen and show it.

    Returns:
        The new vtkMRMLScalarVolumeNode.
    """
    # Not at file scope: registering happens while Slicer starts.
    from PUMITSlicerLib.generated_scan import generatedScan
    from PUMITSlicerLib.mrml import addVolumeNode

    node = addVolumeNode(_("Generated abdomen"), generatedScan().volume)
    display = node.GetDisplayNode()
    display.SetAutoWindowLevel(False)
    # As abdomens are usually viewed.
    display.SetWindowLevel(400, 40)
    slicer.util.setSliceViewerLayers(background=node, fit=True)
    return node


class _Generator:
    """Generator of a data set, which Slicer calls instead of a download."""

    def __call__(self, source: object) -> list[object]:
        return [loadGeneratedScan()]

    def __repr__(self) -> str:
        # Slicer compares entries by their text: after a reload this must be the same entry.
        return "PUMIT generated abdomen"
