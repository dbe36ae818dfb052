"""Volumes and segmentations in a Slicer scene bundle, `.mrb`."""

import posixpath
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote
from xml.etree import ElementTree

from pumit.errors import VolumeError
from pumit.io.dicom.files import check_zip
from pumit.io.parser_errors import parsing

SUFFIX = ".mrb"
MOST_SCENE_BYTES = 64 << 20  # of the .mrml file
# Suffixes that a temporary file must keep, because readers look at them.
_SUFFIXES = (".seg.nrrd", ".nii.gz", ".nii", ".nrrd", ".mha")

Kind = Literal["volume", "labels", "segmentation"]
_KINDS: dict[str, Kind] = {
    "Volume": "volume",
    "VectorVolume": "volume",
    "LabelMapVolume": "labels",
    "Segmentation": "segmentation",
}


@dataclass(frozen=True)
class BundleNode:
    """A volume, label map or segmentation of a scene.

    Attributes:
        member: Its file in the bundle; empty if it has none.
        reference: ID of the source volume of a segmentation or label map; empty if not stated.
        transform: ID of its parent transform; empty if it has none.
    """

    name: str
    kind: Kind
    member: str
    identifier: str
    reference: str = ""
    transform: str = ""


def is_bundle(path: Path) -> bool:
    """Return whether a file name ends with `.mrb`."""
    return path.name.lower().endswith(SUFFIX)


def bundle_nodes(path: Path) -> list[BundleNode]:
    """List the volumes, label maps and segmentations of a bundle, in scene order.

    Raises:
        VolumeError: If the file is not a bundle, or its scene cannot be read.
    """
    with parsing("Slicer bundle"), zipfile.ZipFile(path) as archive:
        return _nodes(archive)


def _nodes(archive: zipfile.ZipFile) -> list[BundleNode]:
    scenes = [m for m in archive.infolist() if m.filename.lower().endswith(".mrml")]
    if len(scenes) != 1:
        raise VolumeError(
            f"The Slicer bundle holds {len(scenes)} scenes (.mrml) instead of one; save it again."
        )
    if scenes[0].file_size > MOST_SCENE_BYTES:
        raise VolumeError("The scene of the Slicer bundle is far too large; save it again.")
    text = archive.read(scenes[0])
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        # Slicer writes neither; entity expansion could fill the memory.
        raise VolumeError(
            "The scene of the Slicer bundle was not written by Slicer; open it in Slicer and save "
            "it again."
        )
    try:
        elements = list(ElementTree.fromstring(text))
    except ElementTree.ParseError:
        raise VolumeError("The scene of the Slicer bundle is damaged; save it again.") from None
    folder = posixpath.dirname(scenes[0].filename)
    files = {e.get("id", ""): e.get("fileName", "") for e in elements if e.get("fileName")}
    found = []
    for element in elements:
        kind = _KINDS.get(element.tag)
        if kind is None:
            continue
        references = _references(element.get("references", ""))
        storage = str(references.get("storage") or element.get("storageNodeRef", ""))
        given = unquote(files.get(storage.split(" ")[0], "")).replace("\\", "/")
        # A path out of the bundle matches no member, and nothing is unpacked to it.
        member = posixpath.normpath(posixpath.join(folder, given)) if given else ""
        reference = references.get("referenceImageGeometryRef") or references.get(
            "AssociatedNodeID", ""
        )
        transform = str(references.get("transform") or element.get("transformNodeRef", ""))
        name, identifier = element.get("name", ""), element.get("id", "")
        found.append(BundleNode(name, kind, member, identifier, reference, transform))
    return found


def _references(text: str) -> dict[str, str]:
    """Parse MRML references, `role:ID ID;role:ID;`, to the first ID of each role."""
    pairs = (part.partition(":") for part in text.split(";") if ":" in part)
    return {role.strip(): ids.split()[0] for role, _, ids in pairs if ids.split()}


def find_node(path: Path, name: str) -> BundleNode:
    """Return the node with an ID, or else with a name.

    Raises:
        VolumeError: If there is none, or several have the name.
    """
    nodes = bundle_nodes(path)
    found = [n for n in nodes if n.identifier == name] or [n for n in nodes if n.name == name]
    if not found:
        names = ", ".join(n.name for n in nodes[:12]) or "no volume or segmentation"
        raise VolumeError(f"There is no node {name!r} in {path.name}; it holds {names}.")
    if len(found) > 1:
        ids = ", ".join(n.identifier for n in found)
        raise VolumeError(f"Several nodes of {path.name} are called {name!r}; name one of {ids}.")
    return found[0]


@contextmanager
def unpacked(path: Path, node: BundleNode) -> Iterator[Path]:
    """Unpack the file of a node to a temporary folder that is deleted afterwards.

    Raises:
        VolumeError: If the bundle lacks the file, its format is unsupported, or it is far too
            large for a scan.
    """
    with tempfile.TemporaryDirectory(prefix="pumit-") as folder:
        with parsing("Slicer bundle"), zipfile.ZipFile(path) as archive:
            if node.member not in archive.namelist():
                raise VolumeError(
                    f"{path.name} holds no file for {node.name!r}; save the scene again."
                )
            member = archive.getinfo(node.member)
            check_zip([member], member.compress_size, folder)
            lower = node.member.lower()
            suffix = next((s for s in _SUFFIXES if lower.endswith(s)), "")
            if not suffix:
                raise VolumeError(
                    f"{node.name!r} is saved as {posixpath.splitext(lower)[1] or 'a file'}, "
                    "which PUMIT does not read from a bundle; save it as .nrrd (segmentations as "
                    ".seg.nrrd)."
                )
            target = Path(folder, f"node{suffix}")
            with archive.open(member) as packed, target.open("wb") as out:
                shutil.copyfileobj(packed, out, 1 << 20)
        yield target
