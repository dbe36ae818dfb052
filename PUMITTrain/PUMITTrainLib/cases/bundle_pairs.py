"""Matching of volumes and segmentations in a Slicer bundle (`.mrb`); needs no scene."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pumit.errors import PumitError
from pumit.io.slicer_bundle import BundleNode, bundle_nodes
from slicer.i18n import tr as _


@dataclass(frozen=True)
class BundlePair:
    """Case of a bundle.

    Attributes:
        name: Proposed name.
        image: The image as in a recipe: `scene.mrb#Name`.
        label: Segmentation or label map of the image.
    """

    name: str
    image: str
    label: str


def bundlePairs(path: Path) -> list[BundlePair]:
    """Read the pairs of a bundle; call it on a thread.

    Raises:
        PumitError: If it cannot be read, or has no pair.
    """
    nodes = [node for node in bundle_nodes(path) if node.member]
    volumes = [node for node in nodes if node.kind == "volume"]
    counts = Counter(node.name for node in nodes)
    names = {n.identifier: n.name if counts[n.name] == 1 else n.identifier for n in nodes}
    pairs = []
    for label in nodes:
        volume = None if label.kind == "volume" else _imageOf(label, volumes)
        if volume is not None:
            image = f"{path}#{names[volume.identifier]}"
            pairs.append(BundlePair(volume.name, image, f"{path}#{names[label.identifier]}"))
    if not pairs:
        raise PumitError(
            _("{name} holds no segmentation with its volume; save the scene with both.").format(
                name=path.name
            )
        )
    return pairs


def _imageOf(label: BundleNode, volumes: Sequence[BundleNode]) -> BundleNode | None:
    referred = [v for v in volumes if label.reference and v.identifier == label.reference]
    named = [v for v in volumes if v.name and v.name.lower() in label.name.lower()]
    if referred:
        return referred[0]
    if named:
        return max(named, key=lambda volume: len(volume.name))
    return volumes[0] if len(volumes) == 1 else None
