"""Search for scans and labels in arbitrary folders, and identification by content."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.campaign.entry import ALL_DRAWN, ScanEntry, ScanState
from pumit.campaign.labels import CampaignClass, classes_of_segment, segment_names
from pumit.campaign.shared_file import FILE, ROUNDS, STATE
from pumit.errors import PumitError, VolumeError
from pumit.io.scans import IMAGE_SUFFIXES, Scan, find_scans, suffix_of

if TYPE_CHECKING:
    from pumit.io.labels.label_file import LabelledSegment
    from pumit.training.data.classes import ClassValue

# Size in bytes and number of the parts hashed for a fingerprint, spread over the file because its
# ends hold only headers and borders.
_PART, _PARTS = 1 << 16, 64
_DETACHED = (".nhdr", ".mhd")  # headers of voxels in other files
DATA_SET = "dataset.json"
# Label folders beside image folders.
_LABEL_FOLDERS = re.compile(
    r"(labels?|masks?|segmentations?|predictions?|preds?)(tr|ts|val)?", re.IGNORECASE
)
# Test labels, as nnU-Net names them, and predictions: they must not be used for training.
_NOT_TRUTH = re.compile(
    r"(labels?|masks?|segmentations?)ts|(predictions?|preds?)(tr|ts|val)?", re.IGNORECASE
)
_NO_SCAN = "{name} is a label for which no scan is left and is not used."
_IMAGE_FOLDERS = re.compile(r"(images?|scans?|volumes?)(tr|ts|val)?", re.IGNORECASE)
_LABEL_WORDS = ("seg", "segmentation", "label", "gt", "mask")
_LABEL_ENDING = re.compile(rf"[_\-. ]({'|'.join(_LABEL_WORDS)})$", re.IGNORECASE)
_CHANNEL = re.compile(r"(?P<stem>.+)_(?P<channel>\d{4})")


@dataclass(frozen=True)
class FoundScan:
    """A found scan with its labels, if any.

    Attributes:
        entry: Entry, but with absolute paths and the original patient identifier.
        values: Label value to its names in the data set.
        segments: Segments of its labels, once read.
    """

    entry: ScanEntry
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    segments: tuple[LabelledSegment, ...] = ()

    @property
    def images(self) -> tuple[Path, ...]:
        """Files, one for each channel, or a DICOM folder."""
        return tuple(map(Path, self.entry.images))

    def with_labels_read(self, problems: list[str]) -> FoundScan:
        """Return the scan with the segments of its labels; add read errors to `problems`."""
        from pumit.io.labels.label_source import announced_segments, require_grid
        from pumit.training.data.found_cases import one_line

        entry = self.entry
        try:
            paths = tuple(map(Path, entry.given_labels))
            require_grid(paths, self.images[0])
            segments = tuple(s for path in paths for s in announced_segments(path))
            marks = tuple(map(_mark, paths))
        except (VolumeError, OSError) as error:
            word = f"its label cannot be used: {one_line(error)}."
            problems.append(f"{entry.name}: {word}")
            return replace(self, entry=replace(entry, word=word, given_labels=()))
        word = next((s.unreviewed for s in segments if s.unreviewed), "")
        state: ScanState = "open"
        if entry.given_labels:
            state = "predicted" if word else "labelled"
        entry = replace(entry, word=word, state=state, given_marks=marks)
        return FoundScan(entry, self.values, segments)

    def kept(
        self, classes: Sequence[CampaignClass], kept_path: Callable[[Path], str], **more: Any
    ) -> ScanEntry:
        """Return the entry to store in a campaign with these classes."""
        values = {
            value: list(names)
            for value, names in self.values.items()
            if {*names} != {c.name for c in classes_of_segment(value, classes)}
        }
        names = (name for s in self.segments for name in segment_names(s, values))
        labels = map(Path, self.entry.given_labels)
        return replace(
            self.entry,
            images=tuple(map(kept_path, self.images)),
            given_labels=tuple(map(kept_path, labels)),
            given_names=tuple(dict.fromkeys(names)),
            given_values=values,
            revision=1,
            **more,
        )


@dataclass
class FoundScans:
    """Result of a search.

    Attributes:
        classes: Classes defined by a data set, such as in its dataset.json.
        channels: Names of the channels of each data set.
        values: Data set folder to its label values and their names; None if its dataset.json
            cannot be read.
    """

    scans: list[FoundScan] = field(default_factory=list)
    classes: tuple[ClassValue, ...] = ()
    channels: set[tuple[str, ...]] = field(default_factory=set)
    values: dict[Path, Mapping[str, Sequence[str]] | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def find_campaign_scans(paths: Sequence[Path]) -> FoundScans:
    """Find scans and their labels, if any.

    Raises:
        PumitError: If a path does not exist.
    """
    found = FoundScans()
    for path in paths:
        if not path.exists():
            raise PumitError(f"There is no file or folder {path.name!r}; check the path.")
    roots = [path for path in paths if path.is_dir()]
    walked = [(path, root) for root in roots for path in _files(root)]
    campaigns = {path.parent for path, _ in walked if path.name == FILE}
    # Of a campaign in the folder of its scans, only what it wrote itself is not the lab's.
    homes = {p.parent for p, _ in walked if p.name == STATE and p.parent.parent.parent in campaigns}
    rounds = {root / ROUNDS for root in campaigns.intersection(roots)}
    foreign = homes | rounds | campaigns.difference(roots)

    def is_of_lab(path: Path) -> bool:
        return foreign.isdisjoint((path, *path.parents))

    # 1. Cases of data sets, pairs by common naming schemes, and DICOM with its segmentations.
    sets = [path.parent for path, _ in walked if path.name == DATA_SET]
    places = filter(is_of_lab, dict.fromkeys([*sets, *roots]))
    cases = [case for place in places for case in _cases(place, found, is_of_lab)]
    images = {image for case in cases for image in case.images}
    series = {case.entry.series for case in cases} - {""}
    # 2. All other scans of the folders, with the label maps beside them.
    taken = images.union(*(map(Path, case.entry.given_labels) for case in cases))
    scans: list[Scan] = []
    for path in paths:
        try:
            others = find_scans([path], whole_tree=True)
        except VolumeError as error:
            found.problems.append(str(error))
            continue
        scans += [s for s in others if not path.is_dir() or is_of_lab(s.path)]
    files = (
        (path, root)
        for path, root in walked
        if suffix_of(path, IMAGE_SUFFIXES) and path not in taken and is_of_lab(path)
    )
    scans = [s for s in scans if s.series or s.path not in taken]
    scans, pairs, unused = _paired(scans, images, files, is_only=len(roots) == 1)
    for scan in scans:
        own = _channels(scan)
        if scan.series not in series if scan.series else own and not images & {*own}:
            # Of data sets within data sets, the innermost one says what its values are.
            near = next((p for p in scan.path.parents if p in found.values), None)
            values = found.values[near] if near is not None else {}
            labels = pairs.get(scan.path, []) if values is not None else []
            cases.append(_found(scan.name, own, scan.series or "", labels, values=values or {}))
    found.problems += unused
    # 3. Fingerprints, and removal of duplicates.
    known = (_recognised(case, found) for case in cases)
    kept = _once((scan for scan in known if scan.entry.digest), found.problems)
    short = [s.entry.name.rpartition("/")[2] for s in kept]
    found.scans = [
        replace(s, entry=replace(s.entry, name=name)) if short.count(name) == 1 else s
        for s, name in zip(kept, short, strict=True)
    ]
    return found


def _found(
    name: str, images: Sequence[Path], series: str, labels: Sequence[Path], **more: Any
) -> FoundScan:
    from pumit.training.data.dataset_json import IGNORE

    files, given = tuple(map(str, images)), tuple(map(str, labels))
    values = more.pop("values", {})
    if given and not more.get("given_drawn"):  # a data set has drawn the classes that it names
        named = (n for names in values.values() for n in names if n != IGNORE)
        more["given_drawn"] = tuple(dict.fromkeys(named))
    return FoundScan(ScanEntry("", name, files, series, given, **more), values)


def _cases(
    folder: Path, found: FoundScans, is_of_lab: Callable[[Path], bool]
) -> Iterator[FoundScan]:
    from pumit.io.file_part import split_part
    from pumit.io.slicer_bundle import is_bundle
    from pumit.training.data.dataset_json import IGNORE
    from pumit.training.data.labelled_set import cases_of_folder

    try:
        cases = cases_of_folder(folder).data
    except PumitError as error:
        if (folder / DATA_SET).is_file():  # a data set that cannot be read
            found.problems.append(str(error))
            found.values[folder] = None
        return
    found.classes = found.classes or cases.classes
    found.channels |= {cases.channels} if cases.cases else set()
    names: dict[str, list[str]] = {}
    for one in cases.classes:
        for value in one.values:
            names.setdefault(str(value), []).append(one.label.name)
    ignored = {c.ignore_value for c in cases.cases} - {None}
    values = names | {str(value): [IGNORE] for value in ignored}
    if values:
        found.values[folder] = values
    for case in cases.cases:
        labels = [path for path in case.labels if is_of_lab(path)]
        if not labels or not all(map(is_of_lab, case.images)):
            continue
        parts = [split_part(path) for path in case.images]
        if is_bundle(parts[0][0]):
            text = "is in a Slicer scene and is not used; save scan and segmentation as files."
            found.problems.append(f"{case.name} {text}")
            continue
        yield _found(
            case.name,
            [path for path, _ in parts],
            parts[0][1],
            labels,
            patient=case.patient,
            values=values,
            given_drawn=ALL_DRAWN if case.drawn == "all" else case.drawn or (),
            given_known=case.known,
        )


def _paired(
    scans: Sequence[Scan],
    labelled: Iterable[Path],
    files: Iterable[tuple[Path, Path]],
    *,
    is_only: bool,
) -> tuple[list[Scan], dict[Path, list[Path]], list[str]]:
    """Distinguish label maps from scans, by the names of files and folders.

    Args:
        files: Candidate label maps, each with the given root folder.
        is_only: Whether only one folder was given, which then is not a label folder itself.

    Returns:
        Scans, scan paths to their labels, and a sentence for each unused label.
    """
    stems = {p.parent / _bare(p) for p in (*labelled, *(scan.path for scan in scans))}
    labels: dict[Path, tuple[Path, str, str]] = {}
    below: dict[Path, list[str]] = {}
    for path, root in files:
        inside = path.relative_to(root.parent).parts[is_only:-1]
        base = _LABEL_ENDING.sub("", _bare(path))
        depth = next((i for i, p in enumerate(inside) if _LABEL_FOLDERS.fullmatch(p)), None)
        if depth is not None:
            home = path.parents[len(inside) - depth]
            below[path] = [p for p in inside[depth:] if not _LABEL_FOLDERS.fullmatch(p)]
        elif base != _bare(path) and path.parent / base in stems:
            home = path.parent
        else:
            continue
        labels[path] = home, base, (path.relative_to(root).parent / _bare(path)).as_posix()
    by_name: dict[str, list[Scan]] = {}
    for scan in scans:
        if scan.path not in labels:
            by_name.setdefault(_bare(scan.path), []).append(scan)
    pairs: dict[Path, list[Path]] = {}
    unused = []
    for path, (home, base, name) in labels.items():
        if any(map(_NOT_TRUTH.fullmatch, path.relative_to(home).parts[:-1])):
            unused.append(f"{name} is a test label or a prediction and is not used.")
            continue
        near = [s.path for s in by_name.get(base, ()) if s.path.is_relative_to(home)]
        if folders := below.get(path):  # such as that of its patient, where the scan has it, too
            around = ((p, p.relative_to(home).parts[:-1]) for p in near)
            near = [p for p, parts in around if folders == [q for q in parts if q in folders]]
        ranks = sorted((_distance(p), p) for p in near)
        if not ranks or (len(ranks) > 1 and ranks[0][0] == ranks[1][0]):  # ambiguous
            unused.append(_NO_SCAN.format(name=name))
        else:
            pairs.setdefault(ranks[0][1], []).append(path)
    for scan_path, own in pairs.items():
        # Only files with named segments can be joined; of others one is used.
        named = [p for p in own if p.name.lower().endswith(".nrrd")]
        pairs[scan_path] = kept = named or sorted(own, key=_rank)[:1]
        unused += [_NO_SCAN.format(name=labels[p][2]) for p in own if p not in kept]
    return [s for s in scans if s.path not in labels], pairs, unused


def _rank(label: Path) -> int:
    ending = _LABEL_ENDING.search(_bare(label))
    return _LABEL_WORDS.index(ending[1].lower()) if ending else 0


def _distance(path: Path) -> tuple[int, bool]:
    """Return a sort key by folder depth; an image folder adds no depth and wins ties."""
    is_image_folder = bool(_IMAGE_FOLDERS.fullmatch(path.parent.name))
    return len(path.parts) - is_image_folder, not is_image_folder


def proposed_classes(scans: Sequence[FoundScan]) -> tuple[ClassValue, ...]:
    """Return the classes in the labels."""
    from pumit.training.data.class_matching import is_class
    from pumit.training.data.class_proposal import ClassProposal

    proposal = ClassProposal()
    for scan in scans:
        proposal.add(scan.entry.name, filter(is_class, scan.segments))
    return proposal.classes()


def patient_marks(
    scans: Sequence[ScanEntry], there: Sequence[ScanEntry], salt: str, *, is_slow: bool = True
) -> dict[str, str]:
    """Return scan identifiers with the salted hashes of their patients.

    Patients that the data do not state are guessed from the paths of all scans. Scans already in
    the campaign (`there`) keep their hashes.

    Args:
        is_slow: Whether a hash takes 50 ms and 16 MiB. The salt lies in the campaign's folder, so
            with a fast hash its readers could try all patient numbers of a hospital.
    """
    from pumit.training.data.split import patients_of

    @cache
    def mark(text: str) -> str:
        if not is_slow:
            return hashlib.sha256(f"{salt} {text}".encode()).hexdigest()[:12]
        return hashlib.scrypt(text.encode(), salt=salt.encode(), n=2**14, r=8, p=1, dklen=6).hex()

    known = {s.id: s for s in there if s.images}
    of = {s.id: mark(f"id {s.patient}") for s in scans if s.patient}
    of |= {key: scan.patient for key, scan in known.items()}
    found = {key: (scan.path, scan.series) for key, scan in known.items()}
    found |= {s.id: (Path(s.images[0]), s.series) for s in scans if s.id not in of}
    by_name: dict[str, list[str]] = {}
    for key, name in zip(found, bare_paths([*found.values()]), strict=True):
        by_name.setdefault(name, []).append(key)
    for patient, names in patients_of([*by_name], None, {})[0].items():
        keys = [key for name in names for key in by_name[name]]
        first = next((of[key] for key in keys if key in of), mark(f"name {patient}"))
        of = {**dict.fromkeys(keys, first), **of}
    return of


def _stem(path: Path) -> str:
    return path.name[: len(path.name) - len(suffix_of(path, IMAGE_SUFFIXES) or "")]


def _bare(path: Path) -> str:
    return _stem(path).removesuffix("_0000")


def bare_paths(scans: Sequence[tuple[Path, str]]) -> list[str]:
    """Return paths of scans from their common parent, without file extensions.

    The identifier is appended to a series that shares its folder with others.
    """
    parts = [p.absolute().with_name(_stem(p).removesuffix("_0000")).parts for p, _ in scans]
    steps = enumerate(zip(*parts, strict=False))
    shortest = min(map(len, parts), default=1)
    common = next((depth for depth, here in steps if len({*here}) > 1), shortest - 1)
    count = Counter(path for path, _ in scans)
    return [
        "/".join((*names[common:], series) if count[path] > 1 else names[common:])
        for names, (path, series) in zip(parts, scans, strict=True)
    ]


def is_named_after(path: Path, name: str) -> bool:
    """Return whether a label's file name is that of a scan, such as NAME-label.nii.gz."""
    last = name.rpartition("/")[2].removesuffix("_0000")
    return last in (_bare(path), _LABEL_ENDING.sub("", _bare(path)))


def _channels(scan: Scan) -> tuple[Path, ...]:
    match = _CHANNEL.fullmatch(_stem(scan.path))
    if scan.path.is_dir() or match is None:
        return (scan.path,)
    ending = scan.path.name[len(_stem(scan.path)) :]
    first = scan.path.with_name(f"{match['stem']}_0000{ending}")
    if match["channel"] != "0000":
        return () if first.is_file() else (scan.path,)
    from pumit.io.scans import channel_files

    return tuple(channel_files(first))


def _recognised(scan: FoundScan, found: FoundScans) -> FoundScan:
    from pumit.training.data.found_cases import one_line

    entry = scan.entry
    try:
        digest, size, series, patient = fingerprint(scan.images, entry.series)
    except (VolumeError, OSError) as error:
        found.problems.append(f"{entry.name}: {one_line(error)}.")
        return scan
    match = _CHANNEL.fullmatch(entry.name)
    known = replace(
        entry,
        id=digest[:12],
        name=match["stem"] if match and match["channel"] == "0000" else entry.name,
        series=series,
        patient=patient or entry.patient,
        digest=digest,
        size=size,
    )
    return replace(scan, entry=known)


def _once(scans: Iterable[FoundScan], problems: list[str]) -> list[FoundScan]:
    """Remove duplicates, preferring ones with labels; add a sentence for each to `problems`."""
    kept: dict[str, FoundScan] = {}
    for scan in scans:
        first = kept.setdefault(scan.entry.id, scan)
        if first.images[0].resolve() != scan.images[0].resolve():
            problems.append(f"{scan.entry.name} is a copy of {first.entry.name} and counts once.")
        if scan.entry.given_labels and not first.entry.given_labels:
            kept[scan.entry.id] = scan
    return list(kept.values())


def fingerprint(files: Sequence[Path], series: str = "") -> tuple[str, int, str, str]:
    """Compute a fingerprint of a scan's content, without reading all of it.

    Args:
        files: Files, one for each channel, or a DICOM folder.

    Returns:
        Fingerprint, size of the first file (0 for a folder), DICOM series and patient.

    Raises:
        VolumeError: If it is not a scan.
        OSError: If it cannot be read.
    """
    first = files[0]
    if first.is_dir():
        uid, patient = _series_in(first, series)
        return hashlib.sha256(uid.encode()).hexdigest()[:24], 0, uid, patient
    if detached := [path for path in files if path.suffix.lower() in _DETACHED]:
        from pumit.io.images.itk_image import data_files

        # Scans of one protocol have the same header.
        files = [*files, *(data for path in detached for data in data_files(path))]
    content, sizes = hashlib.sha256(), [path.stat().st_size for path in files]
    if not all(sizes):
        raise VolumeError("The file is empty.")
    for path, size in zip(files, sizes, strict=True):
        content.update(b"%d " % size)
        with path.open("rb") as file:
            for at in (*range(0, size, max(_PART, size // _PARTS)), max(0, size - _PART)):
                file.seek(at)
                content.update(file.read(_PART))
    patient = ""
    with first.open("rb") as file:
        is_dicom = file.read(132).endswith(b"DICM")
    if is_dicom:
        from pumit.io.dicom.files import read_header

        header = read_header(first)
        series, patient = header.series_instance_uid, header.patient
    return content.hexdigest()[:24], sizes[0], series, patient


def _series_in(folder: Path, series: str) -> tuple[str, str]:
    from pumit.io.dicom.files import is_dicom, read_header

    for path in _files(folder):
        with suppress(OSError, VolumeError):
            with path.open("rb") as stream:
                if not is_dicom(stream.read(132)):
                    continue
            file = read_header(path)
            if file.is_image and series.partition("#")[0] in ("", file.series_instance_uid):
                uid = series or file.series_instance_uid
                return uid, file.patient
    raise VolumeError("The folder holds no scan.")


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(names) if not name.startswith("."))


def find_again(
    roots: Sequence[Path], digest: str, *, size: int, series: str, others: Sequence[str] = ()
) -> Path | None:
    """Find a moved or renamed scan by its content.

    Args:
        size: Size of the first file; 0 for a DICOM folder.
        others: File names of the other channels, beside the first.
    """
    for root in roots:
        if not size and series:
            with suppress(VolumeError):
                for scan in find_scans([root], series=series):
                    if scan.path.is_dir() and fingerprint([scan.path], series)[0] == digest:
                        return scan.path
            continue
        for path in [root] if root.is_file() else _files(root):
            with suppress(OSError, VolumeError):
                files = [path, *map(path.with_name, others)]
                if path.stat().st_size == size and fingerprint(files)[0] == digest:
                    return path
    return None


def _mark(path: Path) -> str:
    digest, size, _, _ = fingerprint([path])
    return f"{digest} {size}"


def moved_label(label: Path, scan: Path, moved: Path, *, mark: str, roots: Sequence[Path]) -> Path:
    """Return where a label is, after its scan was moved or renamed.

    A label at the former path may be of another scan by now, so it is known by its content.

    Args:
        label: Former path of the label.
        scan: Former path of the scan.
        moved: Path of the scan now.
        mark: Fingerprint and size of the label; empty if unknown.

    Raises:
        VolumeError: If the label is not found.
    """
    beside = moved.parent / os.path.relpath(label, scan.parent)
    renamed = beside.with_name(label.name.replace(_bare(scan), _bare(moved)))
    there = list({p.resolve(): p for p in (renamed, beside, label) if p.exists()}.values())
    if not mark and len(there) == 1:  # of several, nothing tells which is this scan's
        return there[0]
    for path in there if mark else ():
        with suppress(OSError, VolumeError):
            if _mark(path) == mark:
                return path
    if mark:
        digest, size = mark.split()
        if found := find_again(roots, digest, size=int(size), series=""):
            return found
        if not label.exists() and moved.name == scan.name:  # both were moved, the label edited
            return beside
    raise VolumeError(
        f"{scan.name} was moved, and its label {label.name} is not found or has changed; put the "
        "label back beside it, or leave the scan out."
    )
