"""Which scans, labels and classes a data set has, found in a folder or named one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.training.class_values import ClassValue, classes_from
from pumit.training.recipe_file import check_keys

SUFFIXES = (".nii.gz", ".nii", ".nrrd", ".nhdr", ".mha", ".mhd", ".png", ".jpg", ".jpeg")
IMAGE_PATTERN = "images/{case}.*"
LABEL_PATTERN = "labels/{case}.*"
SHOWN_PROBLEMS = 12

CASE_KINDS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "image": (str, list),
    "images": (list,),
    "label": (str,),
}


@dataclass(frozen=True)
class LabelledCase:
    """A scan with its label map, not read yet.

    Attributes:
        name: Bare name, the same in every message.
        images: One file with all channels, or one for each.
        label: The label map.
    """

    name: str
    images: tuple[Path, ...]
    label: Path


@dataclass(frozen=True)
class LabelledSet:
    """A data set.

    Attributes:
        cases: In order of their names, which differ.
        classes: In order of their values; the i-th from 1 on is the network's class i.
        channels: Names of the image channels, such as "CT"; empty where nobody says.
        repeats_single: Whether a case of one channel stands for all channels.
    """

    cases: tuple[LabelledCase, ...]
    classes: tuple[ClassValue, ...]
    channels: tuple[str, ...]
    repeats_single: bool = False


def all_at_once(problems: Iterable[str], what: str = "The data cannot be used") -> None:
    """Raise one error that lists all problems, if there are any.

    Raises:
        PumitError: With the first dozen of them in words, and how many more there are.
    """
    found = list(problems)
    if not found:
        return
    shown = "; ".join(found[:SHOWN_PROBLEMS])
    more = f"; and {len(found) - SHOWN_PROBLEMS} more" if len(found) > SHOWN_PROBLEMS else ""
    raise PumitError(f"{what}: {shown}{more}.")


def find_labelled_set(data: Mapping[str, Any], resolve: Callable[[str], Path]) -> LabelledSet:
    """Find the cases of a recipe's `data`.

    Its keys are `folder` (pairs in images/ and labels/, or where the patterns `images` and
    `labels` say; or a folder with the dataset.json of nnU-Net or the Medical Segmentation
    Decathlon) or `cases` (a list of `{image, label, name}`), and `classes`, `channels` and
    `repeat_single_channel`.

    Args:
        data: Keys and values; their names and kinds are checked already.
        resolve: Makes paths of texts.

    Raises:
        PumitError: If anything is missing, with all that is wrong at once.
    """
    from pumit.training.dataset_json import read_dataset_json

    classes = classes_from(data["classes"]) if "classes" in data else ()
    channels = tuple(str(c) for c in data.get("channels", ()))
    repeats = bool(data.get("repeat_single_channel", False))
    if ("folder" in data) == ("cases" in data):
        raise PumitError(
            "The recipe's data needs either a folder (`--data FOLDER` gives it too) or cases."
        )
    if "cases" in data:
        cases = _listed_cases(data["cases"], resolve)
    else:
        folder = resolve(data["folder"])
        if not folder.is_dir():
            raise PumitError(f"There is no folder {folder.name!r}; correct data.folder.")
        if (folder / "dataset.json").is_file() and not {"images", "labels"} & data.keys():
            described = read_dataset_json(folder)
            cases = list(described.cases)
            classes, channels = classes or described.classes, channels or described.channels
        else:
            patterns = data.get("images", IMAGE_PATTERN), data.get("labels", LABEL_PATTERN)
            cases = paired_cases(folder, *patterns, repeats_single=repeats)
    if not cases:
        raise PumitError("The data set holds no case; check data.folder and its patterns.")
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    all_at_once(f"{name} is there twice; rename or remove one" for name in twice)
    cases.sort(key=lambda case: case.name)
    return LabelledSet(tuple(cases), classes, channels, repeats)


def paired_cases(
    folder: Path, images: str, labels: str, *, repeats_single: bool = False
) -> list[LabelledCase]:
    """Pair the files of two patterns by what `{case}` stands for in them.

    Args:
        folder: Where the patterns begin.
        images: Such as "images/{case}.*" (any suffix of an image) or, with several files for a
            case, "images/{case}_{channel}.nii.gz".
        labels: Such as "labels/{case}.*".
        repeats_single: Whether a case may have the first channel alone.

    Raises:
        PumitError: If a case lacks its image, label or a channel that others have.
    """
    found_images = _matches(folder, images)
    found_labels = _matches(folder, labels)
    if not found_images or not found_labels:
        pattern = labels if found_images else images
        raise PumitError(f"No file in {folder.name!r} is called like {pattern!r}; correct it.")
    problems = [
        f"{case} has no label like {labels!r}" for case in sorted({*found_images} - {*found_labels})
    ]
    problems += [
        f"{case} has no image like {images!r}" for case in sorted({*found_labels} - {*found_images})
    ]
    channels = sorted({channel for files in found_images.values() for channel in files})
    cases = []
    for name in sorted({*found_images} & {*found_labels}):
        files, label = found_images[name], found_labels[name]
        missing = [channel for channel in channels if channel not in files]
        if missing and not (repeats_single and len(files) == 1):
            problems.append(f"{name} lacks channel {', '.join(missing)}")
        crowded = any(len(paths) > 1 for paths in (*files.values(), *label.values()))
        if crowded or len(label) > 1:
            problems.append(f"{name} is there twice, with different suffixes")
        cases.append(
            LabelledCase(name, tuple(files[c][0] for c in sorted(files)), min(label.values())[0])
        )
    all_at_once(problems)
    return cases


def _matches(folder: Path, pattern: str) -> dict[str, dict[str, list[Path]]]:
    """Files by case and channel ("" where the pattern has none)."""
    if pattern.count("{case}") != 1:
        raise PumitError(f"The pattern {pattern!r} needs {{case}} once, such as {IMAGE_PATTERN!r}.")
    glob = pattern.replace("{case}", "*").replace("{channel}", "*")
    regex = re.escape(pattern).replace(re.escape("{case}"), r"(?P<case>[^/]+?)")
    regex = regex.replace(re.escape("{channel}"), r"(?P<channel>[^/_]+)")
    suffixes = "|".join(re.escape(s) for s in SUFFIXES)
    regex = regex.replace(re.escape(".*"), f"(?:{suffixes})").replace(r"\*", "[^/]*")
    found: dict[str, dict[str, list[Path]]] = {}
    for path in sorted(folder.glob(glob)):
        match = re.fullmatch(regex, path.relative_to(folder).as_posix())
        if match and not path.name.startswith("."):
            groups = match.groupdict()
            channel = groups.get("channel") or ""
            found.setdefault(groups["case"], {}).setdefault(channel, []).append(path)
    return found


def _listed_cases(rows: Any, resolve: Callable[[str], Path]) -> list[LabelledCase]:
    cases, problems = [], []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise PumitError(f"Case {number} in data.cases needs the keys image and label.")
        check_keys(row, CASE_KINDS, f"case {number} of data.cases")
        given = row.get("images", row.get("image", []))
        images = tuple(resolve(str(i)) for i in (given if isinstance(given, list) else [given]))
        if not images or "label" not in row:
            problems.append(f"case {number} needs the keys image and label")
            continue
        label = resolve(row["label"])
        name = str(row.get("name", bare_name(images[0])))
        absent = [path.name for path in (*images, label) if not path.exists()]
        problems += [f"{name}: there is no file {file}" for file in absent]
        cases.append(LabelledCase(name, images, label))
    all_at_once(problems)
    return cases


def bare_name(path: Path) -> str:
    """A file's name without the suffix of an image."""
    suffix = next((s for s in SUFFIXES if path.name.lower().endswith(s)), "")
    return path.name[: len(path.name) - len(suffix)]
