"""Labelled data sets, and pairing of scans and labels by file name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pumit.errors import PumitError
from pumit.io.file_part import split_part
from pumit.io.scans import IMAGE_SUFFIXES, suffix_of
from pumit.system.wording import listed
from pumit.training.data.classes import ClassValue
from pumit.training.recipes.labelled import Drawn, KnownPart, Name

SUFFIXES = (".seg.nrrd", *IMAGE_SUFFIXES)
LABEL_SUFFIXES = (*SUFFIXES, ".dcm")
IMAGE_PATTERN = "images/{case}.*"
LABEL_PATTERN = "labels/{case}.*"
# Common layouts; the pattern with the most pairs wins, on a tie the first.
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
    # A folder with a scan and a segmentation of any name, as Slicer saves them.
    ("{case}/*.*", "{case}/*.seg.nrrd"),
)
SHOWN_PROBLEMS = 12


@dataclass(frozen=True)
class LabelledCase:
    """Paths of a scan and its labels, not read yet.

    Attributes:
        name: Name without suffix, the same in every message.
        images: One file with all channels, or one per channel. May name a part of a file, see
            `io.file_part`.
        label: Label map, `.seg.nrrd`, DICOM-SEG, RTSTRUCT or `scene.mrb#Segmentation`.
        patient: Patient of the scan, if the data identify one; never shown.
        more_labels: Further files with other segments of the same scan.
        is_confirmed: Whether to use the labels although they are unreviewed.
        drawn: Names of the annotated classes, or "all"; None infers them from the labels.
        known: Annotated part of the scan.
        ignore_value: Value of voxels to ignore, or None.
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
        """All label files."""
        return (self.label, *self.more_labels)

    @property
    def files(self) -> tuple[Path, ...]:
        """Files and folders on disk."""
        return tuple(split_part(path)[0] for path in (*self.images, *self.labels))


def said_of(
    case: LabelledCase, drawn: Mapping[Name, Drawn] | Literal["all"], known: KnownPart
) -> LabelledCase:
    """Return a case with `drawn` and `known` set, as in a recipe, unless it has its own values."""
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
    """Reason why a case cannot be used.

    Attributes:
        case: Name of the case; empty if the problem concerns all.
        sentence: The reason, without the case's name.
        is_unlabelled: Whether the only problem is that there are no labels yet.
    """

    case: str
    sentence: str
    is_unlabelled: bool = False

    def __str__(self) -> str:
        return f"{self.case}: {self.sentence}" if self.case else self.sentence


Item = LabelledCase | CaseProblem


def guess_pairs(folder: Path, *, repeats_single: bool = False) -> FoundCases | None:
    """Pair a folder's files by the usual patterns.

    Returns:
        Cases of the pattern with the most pairs; None if no pattern finds any.
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
    """Pair the files of two patterns by their `{case}`.

    Args:
        images: Pattern such as "images/{case}.*" (any image suffix) or, with one file per channel,
            "images/{case}_{channel}.nii.gz"; without a suffix, folders of DICOM files.
        labels: Pattern such as "labels/{case}.*".
        repeats_single: Whether a case may have only the first channel.
        channel_names: Names of the channels 0000, 0001 and so on, for messages.

    Raises:
        PumitError: If a pattern has no `{case}`.
    """
    found_labels = _matches(folder, labels, LABEL_SUFFIXES)
    taken = {p for groups in found_labels.values() for paths in groups.values() for p in paths}
    found_images = _matches(folder, images, SUFFIXES, without=taken)
    both = found_images.keys() & found_labels.keys()
    channels = sorted({channel for case in both for channel in found_images[case]})
    items: list[Item] = []
    for name in sorted(found_images.keys() | found_labels.keys()):
        files, label = found_images.get(name, {}), found_labels.get(name, {})
        missing = [_called(c, channel_names) for c in channels if c not in files]
        if not label:
            text = f"has no label like {labels!r}"
            items.append(CaseProblem(name, text, is_unlabelled=True))
        elif not files:
            items.append(CaseProblem(name, f"has a label and no image like {images!r}"))
        elif missing and not (repeats_single and len(files) == 1):
            items.append(CaseProblem(name, f"lacks channel {', '.join(missing)}"))
        elif len(label) > 1 or any(len(p) > 1 for p in (*files.values(), *label.values())):
            items.append(CaseProblem(name, "is there twice, with different suffixes"))
        else:
            paths = tuple(files[c][0] for c in sorted(files))
            items.append(LabelledCase(name, paths, min(label.values())[0]))
    # nnU-Net's channel numbers are not names.
    named = tuple(c for c in channels if c)
    names = () if all(c.isdecimal() for c in named) else named
    return FoundCases.of(items, f"images: {images}, labels: {labels}", channels=names)


def _called(channel: str, names: Sequence[str]) -> str:
    is_known = channel.isdecimal() and int(channel) < len(names)
    return f"{channel} ({names[int(channel)]})" if is_known else channel


def _matches(
    folder: Path,
    pattern: str,
    known: Iterable[str],
    without: Collection[Path] = (),
) -> dict[str, dict[str, list[Path]]]:
    """Return files by case and channel ("" if the pattern has no channel)."""
    if "{case}" not in pattern:
        raise PumitError(f"The pattern {pattern!r} needs {{case}}, such as {IMAGE_PATTERN!r}.")
    glob = pattern.replace("{case}", "*").replace("{channel}", "*")
    regex = re.escape(pattern).replace(re.escape("{case}"), r"(?P<case>[^/]+?)", 1)
    regex = regex.replace(re.escape("{case}"), "(?P=case)")  # BraTS: name/name_t1.nii.gz
    regex = regex.replace(re.escape("{channel}"), r"(?P<channel>[^/_]+)", 1)
    suffixes = "|".join(re.escape(s) for s in known)
    regex = regex.replace(re.escape(".*"), f"(?i:{suffixes})").replace(r"\*", "[^/]*")
    found: dict[str, dict[str, list[Path]]] = {}
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
    """Return an error's message on one line, without the full stop and without a path."""
    if isinstance(error, OSError) and error.strerror:
        return f"a file cannot be read ({error.strerror})"
    return " ".join(str(error).split()).removesuffix(".")


def bare_name(path: Path) -> str:
    """Return a file name without its image or label suffix."""
    return path.name[: len(path.name) - len(suffix_of(path, LABEL_SUFFIXES) or "")]


@dataclass(frozen=True)
class LabelledSet:
    """A labelled data set.

    Attributes:
        cases: Cases sorted by name; names are unique.
        classes: Classes in order of their values; the i-th, from 1 on, is the network's class i.
        channels: Names of the image channels, such as "CT"; empty if unknown.
        repeats_single: Whether to repeat the image of a single-channel case for all channels.
        doubts: Warnings for the user.
    """

    cases: tuple[LabelledCase, ...]
    classes: tuple[ClassValue, ...]
    channels: tuple[str, ...]
    repeats_single: bool = False
    doubts: tuple[str, ...] = ()

    def cases_named(self, names: Iterable[str]) -> list[LabelledCase]:
        """Return the cases with these names, in the order of the names."""
        by_name = {case.name: case for case in self.cases}
        return [by_name[name] for name in names]


@dataclass(frozen=True)
class FoundCases:
    """Cases found for a recipe's `data`, with all problems.

    Attributes:
        data: The data set; its classes are empty if they are not named.
        problems: Problems of cases that are not in the data set, including scans that merely have
            no labels.
        layout: Description of how the cases were found, such as the patterns.
        origins: Case to its folder, as in the recipe, and its name there; listed cases have none.
    """

    data: LabelledSet
    problems: tuple[CaseProblem, ...]
    layout: str
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        items: Iterable[Item],
        layout: str,
        *,
        classes: tuple[ClassValue, ...] = (),
        channels: tuple[str, ...] = (),
    ) -> FoundCases:
        """Separate the cases from the problems."""
        found = list(items)
        cases = tuple(item for item in found if isinstance(item, LabelledCase))
        problems = tuple(item for item in found if isinstance(item, CaseProblem))
        return cls(LabelledSet(cases, classes, channels), problems, layout)


def all_at_once(problems: Iterable[str], what: str = "The data cannot be used") -> None:
    """Raise one error that lists all problems, if there are any.

    Raises:
        PumitError: With the first 12 problems and the number of the others.
    """
    found = list(problems)
    if not found:
        return
    raise PumitError(f"{what}: {listed(found, SHOWN_PROBLEMS, ';')}.")
