"""Cases from DICOM folders, zips and Slicer scenes: segmentations paired with their scans."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pumit.errors import VolumeError
from pumit.io.dicom.files import DicomFile, find_dicom, is_dicom, read_header, stated
from pumit.io.file_part import split_part, with_part
from pumit.io.labels.label_objects import (
    KINDS,
    LabelObject,
    joined,
    label_object,
    read_label_object,
)
from pumit.io.slicer_bundle import SUFFIX, BundleNode, bundle_nodes
from pumit.training.data.found_cases import (
    CaseProblem,
    Item,
    LabelledCase,
    bare_name,
    one_line,
)


@dataclass
class _Series:
    files: list[DicomFile] = field(default_factory=list)

    @cached_property
    def parents(self) -> set[Path]:
        return {file.path.parent for file in self.files}

    @property
    def folder(self) -> Path:
        parents = sorted(self.parents)
        common = parents[0]
        while not all(common == p or common in p.parents for p in parents):
            common = common.parent
        return common

    def text(self, keyword: str) -> str:
        return str(self.files[0].header.get(keyword) or "")


def dicom_cases(folder: Path) -> list[Item]:
    """Find image series that a DICOM-SEG or RTSTRUCT refers to.

    A segmentation is matched to its scan by the referenced series, else by the referenced
    instances, else by the frame of reference if only one series has it.

    Args:
        folder: Usually a folder of patients; cases are named after its subfolders.

    Returns:
        Problems of objects that were not paired, and cases; no cases without such objects.

    Raises:
        VolumeError: If the folder cannot be read.
    """
    series: dict[str, _Series] = defaultdict(_Series)
    objects: list[LabelObject] = []
    problems: list[CaseProblem] = []
    for part in _parts(folder):
        try:
            files = find_dicom(part) if part.is_dir() else []
        except VolumeError as error:
            problems.append(CaseProblem(part.name, one_line(error)))
            continue
        for file in files:
            if file.is_image:
                series[file.series_instance_uid].files.append(file)
            elif str(file.header.get("SOPClassUID", "")) in KINDS:
                try:
                    item = read_label_object(file.path)
                except VolumeError as error:
                    problems.append(CaseProblem(bare_name(file.path), one_line(error)))
                    continue
                objects += [item] if item is not None else []
    if not objects and not any(p.sentence.startswith("DICOM") for p in problems):
        return [*problems]
    return [*problems, *_paired(folder, series, joined(objects))]


def _parts(folder: Path) -> list[Path]:
    """Return folders to read one by one, so a damaged file does not affect other patients."""
    folders = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    loose = [p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")]
    return [folder] if loose or not folders else folders


def _paired(
    folder: Path, series: dict[str, _Series], objects: Sequence[LabelObject]
) -> Iterator[Item]:
    # 1. Find the scan of each object.
    by_instance = {
        str(file.header.get("SOPInstanceUID", "")): uid
        for uid, found in series.items()
        for file in found.files
    }
    drawn: dict[str, list[LabelObject]] = defaultdict(list)
    for item in objects:
        uid = _scan_of(item, series, by_instance)
        if uid:
            drawn[uid].append(item)
            continue
        # A patient may have several segmentations.
        parts = item.path.relative_to(folder).parts
        name = " ".join([*parts[:-1][:1], bare_name(item.path)])
        text = f"the {item.kind} refers to a series that is not there; add the scan's files"
        yield CaseProblem(name, text)
    # 2. Make a case of each scan and each version of its labels.
    names: dict[str, int] = defaultdict(int)
    for uid, items in sorted(drawn.items(), key=lambda pair: pair[1][0].path):
        scan = series[uid]
        for group in _apart(items):
            # Name it after the patient's folder, or after the label if all are in one folder.
            inner = scan.folder.relative_to(folder).parts
            stem = inner[0] if inner else bare_name(group[0].path)
            names[stem] += 1
            name = stem if names[stem] == 1 else f"{stem} {names[stem]}"
            label, *more = (item.path for item in group)
            image = _scan_path(scan, uid, series)
            yield LabelledCase(name, (image,), label, more_labels=tuple(more))
    # 3. Report scans without segmentations.
    labelled = {_top(folder, series[uid].folder) for uid in drawn}
    for uid, scan in series.items():
        top = _top(folder, scan.folder)
        if uid not in drawn and top not in labelled and len(scan.files) > 1:
            labelled.add(top)
            yield CaseProblem(top, "has no DICOM-SEG or RTSTRUCT", is_unlabelled=True)


def _apart(items: Sequence[LabelObject]) -> list[list[LabelObject]]:
    """Group objects of a scan with different segments; equal names mean separate readings."""
    groups: list[list[LabelObject]] = []
    for item in sorted(items, key=lambda o: (o.written, o.path)):
        names = {s.name.casefold() for s in item.segments}
        free = (g for g in groups if not names & {s.name.casefold() for o in g for s in o.segments})
        group = next(free, None)
        if group is None:
            groups.append([item])
        else:
            group.append(item)
    return groups


def _scan_of(
    item: LabelObject, series: dict[str, _Series], by_instance: dict[str, str]
) -> str | None:
    if item.series:
        return item.series if item.series in series else None
    named = {by_instance[i] for i in item.instances if i in by_instance}
    if len(named) == 1:
        return named.pop()
    same = [
        uid
        for uid, scan in series.items()
        if item.frame_of_reference and scan.text("FrameOfReferenceUID") == item.frame_of_reference
    ]
    return same[0] if len(same) == 1 else None


def _scan_path(scan: _Series, uid: str, series: dict[str, _Series]) -> Path:
    """Return the scan's folder, with the series UID if the folder holds other series."""
    folder = scan.folder
    others = {p for other, found in series.items() if other != uid for p in found.parents}
    is_shared = any(folder == path or folder in path.parents for path in others)
    return with_part(folder, uid) if is_shared else folder


def _top(folder: Path, path: Path) -> str:
    """Return the name of the top-level subfolder."""
    parts = path.relative_to(folder).parts
    return parts[0] if parts else folder.name


def with_patients(cases: Iterable[LabelledCase]) -> list[LabelledCase]:
    """Return cases with the patients that DICOM states, each named after its first case.

    Cases that have a patient keep it. No patient ID is kept.
    """
    first: dict[str, str] = {}
    found = []
    for case in cases:
        number = "" if case.patient else _patient_id(case)
        patient = first.setdefault(number, case.name) if number else case.patient
        found.append(replace(case, patient=patient))
    return found


def _patient_id(case: LabelledCase) -> str:
    """Return the PatientID of a scan in DICOM; empty if it states none, and for other files."""
    file, series = split_part(case.images[0])
    with suppress(OSError, VolumeError):
        if file.suffix.lower() == ".zip":
            item = label_object(file)
            return "" if item is None else stated(item.patient)
        for path in sorted(file.rglob("*")) if file.is_dir() else [file]:
            scan = _image_in(path)
            if scan is not None and series.partition("#")[0] in ("", scan.series_instance_uid):
                return scan.patient
    return ""


def _image_in(path: Path) -> DicomFile | None:
    """Return the header of an image in DICOM; None for other files, and damaged ones."""
    with suppress(OSError, VolumeError):
        with path.open("rb") as stream:
            start = stream.read(132)
        if is_dicom(start) and (found := read_header(path)).is_image:
            return found
    return None


def zip_cases(files: Sequence[Path]) -> Iterator[Item]:
    """Find the DICOM series of each zip, and its DICOM-SEG or RTSTRUCT.

    A zip without a segmentation counts as unlabelled.
    """
    for path in files:
        try:
            found = label_object(path)
        except VolumeError as error:
            yield CaseProblem(path.stem, one_line(error))
            continue
        if found is None:
            text = "the zip holds no DICOM-SEG or RTSTRUCT"
            yield CaseProblem(path.stem, text, is_unlabelled=True)
        else:
            yield LabelledCase(path.stem, (path,), path)


def bundle_cases(files: Sequence[Path]) -> Iterator[Item]:
    """Pair each segmentation of Slicer scenes, `.mrb` files, with its reference volume."""
    for path in files:
        stem = path.name[: -len(SUFFIX)]
        try:
            nodes = bundle_nodes(path)
        except VolumeError as error:
            yield CaseProblem(stem, one_line(error))
            continue
        labels = [n for n in nodes if n.kind != "volume"]
        if not labels:
            yield CaseProblem(stem, "the scene holds no segmentation", is_unlabelled=True)
        for node in labels:
            name = stem if len(labels) == 1 else f"{stem} {node.name}"
            scan = _volume_of(node, nodes)
            if scan is None:
                text = f"the scene does not say on which volume {node.name!r} was drawn"
                yield CaseProblem(name, f"{text}; name both under data.cases")
            elif scan.transform != node.transform:
                text = f"{node.name!r} and {scan.name!r} are under different transforms"
                yield CaseProblem(name, f"{text}; harden them in Slicer")
            else:
                image, label = (with_part(path, _unique(n, nodes)) for n in (scan, node))
                yield LabelledCase(name, (image,), label)


def _unique(node: BundleNode, nodes: Sequence[BundleNode]) -> str:
    is_alone = sum(n.name == node.name for n in nodes) == 1
    return node.name if is_alone and node.name else node.identifier


def _volume_of(node: BundleNode, nodes: Sequence[BundleNode]) -> BundleNode | None:
    volumes = [n for n in nodes if n.kind == "volume"]
    named = [n for n in volumes if n.identifier == node.reference]
    found = named or (volumes if len(volumes) == 1 else [])
    return found[0] if found else None
