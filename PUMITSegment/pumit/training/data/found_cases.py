"""A labelled data set: scans paired with labels by their names, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pumit.errors import PumitError
from pumit.system.wording import listed
from pumit.training.data.classes import ClassValue
from pumit.training.recipes.labelled import Drawn, KnownPart, Name

SUFFIXES = (
    ".seg.nrrd",
    ".nii.gz",
    ".nii",
    ".nrrd",
    ".nhdr",
    ".mha",
    ".mhd",
    ".png",
    ".jpg",
    ".jpeg",
)
LABEL_SUFFIXES = (*SUFFIXES, ".dcm")
IMAGE_PATTERN = "images/{case}.*"
LABEL_PATTERN = "labels/{case}.*"
# Where labs have their pairs; of these what pairs most is taken, of equal ones the first.
USUAL_PATTERNS = (
    (IMAGE_PATTERN, LABEL_PATTERN),
    ("images/{case}_{channel}.*", LABEL_PATTERN),
    ("imagesTr/{case}.*", "labelsTr/{case}.*"),
    ("imagesTr/{case}_{channel}.*", "labelsTr/{case}.*"),
    ("image/{case}.*", "label/{case}.*"),
    ("images/{case}.*", "masks/{case}.*"),
    ("images/{case}.*", "segmentations/{case}.*"),
    ("images/{case}.*", "labels/{case}_seg.*"),
    ("images/{case}.*", "labels/{case}_label.*"),
    ("images/{case}.*", "labels/{case}_mask.*"),
    ("images/{case}.*", "masks/{case}_mask.*"),
    ("images/{case}_image.*", "labels/{case}_label.*"),
    ("{case}/image.*", "{case}/label.*"),
    ("{case}/image.*", "{case}/mask.*"),
    ("{case}/image.*", "{case}/segmentation.*"),
    ("{case}/imaging.*", "{case}/segmentation.*"),
    ("{case}/{case}_{channel}.*", "{case}/{case}_seg.*"),
    ("{case}/{case}-{channel}.*", "{case}/{case}-seg.*"),
    ("{case}/{channel}.*", "{case}/seg.*"),
    ("{case}/{channel}.*", "{case}/label.*"),
    ("{case}.*", "{case}.seg.nrrd"),
    ("{case}.*", "{case}_seg.*"),
    ("{case}.*", "{case}-seg.*"),
    ("{case}.*", "{case}_label.*"),
    ("{case}.*", "{case}-label.*"),
    ("{case}.*", "{case}_mask.*"),
    ("{case}.*", "{case}_gt.*"),
    ("{case}.*", "{case}_segmentation.*"),
    ("{case}.*", "{case}-segmentation.*"),
    ("{case}.*", "{case} Segmentation.seg.nrrd"),
    ("{case}_image.*", "{case}_label.*"),
    ("{case}_image.*", "{case}_mask.*"),
    ("{case}_ct.*", "{case}_seg.*"),
    ("{case}_{channel}.*", "{case}_seg.*"),
    # Folders of DICOM files next to label maps.
    ("images/{case}", LABEL_PATTERN),
    ("imagesTr/{case}", "labelsTr/{case}.*"),
    ("dicom/{case}", LABEL_PATTERN),
    ("{case}/dicom", "{case}/label.*"),
    ("{case}/DICOM", "{case}/label.*"),
    ("{case}", "{case}.*"),
    # A scan and a segmentation of whatever names in their own folder, as Slicer saves them.
    ("{case}/*.*", "{case}/*.seg.nrrd"),
)
Files = dict[str, dict[str, list[Path]]]
SHOWN_PROBLEMS = 12


@dataclass(frozen=True)
class LabelledCase:
    """A scan with its label map, not read yet.

    Attributes:
        name: Bare name, the same in every message.
        images: One file with all channels, or one for each. May name a part of a file, see
            `io.file_part`.
        label: The label map, `.seg.nrrd`, DICOM-SEG, RTSTRUCT or `scene.mrb#Segmentation`.
        patient: Patient of the scan, where the data tell; never shown.
        more_labels: Further files with other segments of the same scan.
        is_confirmed: Whether the user wants its labels though they are unreviewed.
        drawn: Names of the classes that were drawn, or "all"; None for what the labels tell.
        known: Part of the scan of which the labels tell what is there.
        ignore_value: Value of voxels of unknown meaning, or None.
    """

    name: str
    images: tuple[Path, ...]
    label: Path
    patient: str = ""
    more_labels: tuple[Path, ...] = ()
    is_confirmed: bool = False
    drawn: tuple[str, ...] | Literal["all"] | None = None
    known: KnownPart = "all"
    ignore_value: int | None = None

    @property
    def labels(self) -> tuple[Path, ...]:
        """All files with labels."""
        return (self.label, *self.more_labels)

    @property
    def files(self) -> tuple[Path, ...]:
        """Files and folders on the disk."""
        from pumit.io.file_part import split_part

        return tuple(split_part(path)[0] for path in (*self.images, *self.labels))


def said_of(
    case: LabelledCase, drawn: Mapping[Name, Drawn] | Literal["all"], known: KnownPart
) -> LabelledCase:
    """Return a case with what the user says of its labels, where it does not say so itself.

    Args:
        drawn: Case to the classes that were drawn in it, or "all".
        known: Part of each scan of which the labels tell what is there.
    """
    names = {str(k): v for k, v in drawn.items()} if isinstance(drawn, Mapping) else {}
    own = names.get(case.name, "all" if drawn == "all" else None)
    listed = tuple(map(str, own)) if isinstance(own, list) else own
    return replace(
        case,
        drawn=listed if case.drawn is None else case.drawn,
        known=known if case.known == "all" else case.known,
    )


@dataclass(frozen=True)
class CaseProblem:
    """Reason why a case cannot be used, in words.

    Attributes:
        case: The case's name; empty where it concerns all.
        sentence: Without the name.
        is_unlabelled: Whether nothing is wrong with it but that it has no labels yet.
    """

    case: str
    sentence: str
    is_unlabelled: bool = False

    def __str__(self) -> str:
        return f"{self.case}: {self.sentence}" if self.case else self.sentence


def guess_pairs(folder: Path, *, repeats_single: bool = False) -> FoundCases | None:
    """Pair a folder's files by the usual patterns.

    Returns:
        What the pattern with the most pairs finds; None where none finds any.
    """
    best: FoundCases | None = None
    most = (0, 0)
    for images, labels in USUAL_PATTERNS:
        first, slash, _ = images.partition("/")
        if slash and "{" not in first and not (folder / first).is_dir():
            continue
        found = pair_files(folder, images, labels, repeats_single=repeats_single)
        worth = (len(found.data.cases), -len(found.problems))
        if found.data.cases and worth > most:
            best, most = found, worth
    return best


def pair_files(
    folder: Path,
    images: str,
    labels: str,
    *,
    repeats_single: bool = False,
    channel_names: Sequence[str] = (),
) -> FoundCases:
    """Pair the files of two patterns by what `{case}` stands for in them.

    Args:
        images: Such as "images/{case}.*" (any suffix of an image) or, with several files for a
            case, "images/{case}_{channel}.nii.gz"; without any suffix, folders of DICOM files.
        labels: Such as "labels/{case}.*".
        repeats_single: Whether a case may have only the first channel.
        channel_names: Names of the channels 0000, 0001 and so on, for messages.

    Raises:
        PumitError: If a pattern has no `{case}`.
    """
    found_labels = _matches(folder, labels, LABEL_SUFFIXES)
    taken = {
        path for groups in found_labels.values() for paths in groups.values() for path in paths
    }
    found_images = _matches(folder, images, SUFFIXES, without=taken)
    problems = [
        CaseProblem(case, f"has no label like {labels!r}", is_unlabelled=True)
        for case in sorted({*found_images} - {*found_labels})
    ]
    problems += [
        CaseProblem(case, f"has a label and no image like {images!r}")
        for case in sorted({*found_labels} - {*found_images})
    ]
    both = sorted({*found_images} & {*found_labels})
    channels = sorted({channel for case in both for channel in found_images[case]})
    cases = []
    for name in both:
        files, label = found_images[name], found_labels[name]
        missing = [channel for channel in channels if channel not in files]
        if missing and not (repeats_single and len(files) == 1):
            called = [_called(channel, channel_names) for channel in missing]
            problems.append(CaseProblem(name, f"lacks channel {', '.join(called)}"))
            continue
        crowded = any(len(paths) > 1 for paths in (*files.values(), *label.values()))
        if crowded or len(label) > 1:
            problems.append(CaseProblem(name, "is there twice, with different suffixes"))
            continue
        cases.append(
            LabelledCase(name, tuple(files[c][0] for c in sorted(files)), min(label.values())[0])
        )
    # Numbers are nnU-Net's and name nothing.
    named = tuple(c for c in channels if c)
    names = () if all(c.isdecimal() for c in named) else named
    layout = f"images {images}, labels {labels}"
    return FoundCases(LabelledSet(tuple(cases), (), names), tuple(problems), layout)


def _called(channel: str, names: Sequence[str]) -> str:
    is_known = channel.isdecimal() and int(channel) < len(names)
    return f"{channel} ({names[int(channel)]})" if is_known else channel


def _matches(
    folder: Path,
    pattern: str,
    known: Iterable[str],
    without: frozenset[Path] | set[Path] = frozenset(),
) -> Files:
    """Files by case and channel ("" where the pattern has none)."""
    if "{case}" not in pattern:
        raise PumitError(f"The pattern {pattern!r} needs {{case}}, such as {IMAGE_PATTERN!r}.")
    glob = pattern.replace("{case}", "*").replace("{channel}", "*")
    regex = re.escape(pattern).replace(re.escape("{case}"), r"(?P<case>[^/]+?)", 1)
    regex = regex.replace(re.escape("{case}"), "(?P=case)")  # BraTS: name/name_t1.nii.gz
    regex = regex.replace(re.escape("{channel}"), r"(?P<channel>[^/_]+)", 1)
    suffixes = "|".join(re.escape(s) for s in known)
    regex = regex.replace(re.escape(".*"), f"(?i:{suffixes})").replace(r"\*", "[^/]*")
    found: Files = {}
    is_folder = "." not in pattern.rpartition("/")[2]
    for path in sorted(folder.glob(glob)):
        match = re.fullmatch(regex, path.relative_to(folder).as_posix())
        is_kind = path.is_dir() if is_folder else path.is_file()
        if match and is_kind and not path.name.startswith(".") and path not in without:
            groups = match.groupdict()
            channel = groups.get("channel") or ""
            found.setdefault(groups["case"], {}).setdefault(channel, []).append(path)
    return found


def one_line(error: Exception) -> str:
    """Return an error's message as part of a sentence."""
    return " ".join(str(error).split()).removesuffix(".")


def bare_name(path: Path) -> str:
    """Return a file's name without the suffix of an image."""
    suffix = next((s for s in LABEL_SUFFIXES if path.name.lower().endswith(s)), "")
    return path.name[: len(path.name) - len(suffix)]


@dataclass(frozen=True)
class LabelledSet:
    """A data set.

    Attributes:
        cases: Cases in order of their names, which differ.
        classes: Classes in order of their values; the i-th from 1 on is the network's class i.
        channels: Names of the image channels, such as "CT"; empty where no one says.
        repeats_single: Whether a case of one channel stands for all channels.
        doubts: Doubtful findings for the user, in words.
    """

    cases: tuple[LabelledCase, ...]
    classes: tuple[ClassValue, ...]
    channels: tuple[str, ...]
    repeats_single: bool = False
    doubts: tuple[str, ...] = ()

    def cases_named(self, names: Iterable[str]) -> list[LabelledCase]:
        """Cases of these names, in their order."""
        by_name = {case.name: case for case in self.cases}
        return [by_name[name] for name in names]


@dataclass(frozen=True)
class FoundCases:
    """The cases that a recipe's `data` names, with all problems that were found.

    Attributes:
        data: The data set; its classes are empty where no one names them.
        problems: Problems of cases that cannot be used, which are not in the data set; scans
            without labels among them, with which nothing is wrong.
        layout: Way in which the cases were found, in words, such as the patterns.
        origins: Case to its folder, as the recipe names it, and its name there; those that are
            listed have none.
    """

    data: LabelledSet
    problems: tuple[CaseProblem, ...]
    layout: str
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def all_at_once(problems: Iterable[str], what: str = "The data cannot be used") -> None:
    """Raise one error that lists all problems, if there are any.

    Raises:
        PumitError: With the first dozen of them in words, and how many more there are.
    """
    found = list(problems)
    if not found:
        return
    raise PumitError(f"{what}: {listed(found, SHOWN_PROBLEMS, ';')}.")
