"""Data sets in the layout of nnU-Net and the Medical Segmentation Decathlon."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.segmentation import ClassLabel
from pumit.training.data.classes import ClassValue, checked_classes, region
from pumit.training.data.found_cases import (
    CaseProblem,
    FoundCases,
    Item,
    LabelledCase,
    bare_name,
    pair_files,
    said_of,
)
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.model import read_model

IGNORE = "ignore"


def read_dataset_json(folder: Path) -> FoundCases:
    """Read cases, classes and channels of a folder with dataset.json, imagesTr and labelsTr.

    Supports nnU-Net versions 1 and 2 and the Decathlon, with one file per channel or all channels
    in a 4D file. A label with several values is a region; regions keep the order of the labels,
    which nnU-Net's `regions_class_order` refers to as well. Voxels of nnU-Net's label `ignore` are
    unknown. Two keys are extensions that other programs ignore: `drawn`, case to the names of its
    annotated classes, and `known`; see `LabelledData`.

    Raises:
        PumitError: If dataset.json is damaged or has no labels.
    """
    try:
        content = json.loads((folder / "dataset.json").read_text(encoding="utf-8-sig"))
        channels = _channels(content)
        classes = classes_of_labels(content["labels"])
        partly = {key: content[key] for key in ("drawn", "known") if key in content}
        said = read_model(LabelledData, partly, "dataset.json")
        rows = content.get("dataset") or content.get("training")
        ending = str(content.get("file_ending", ".nii.gz"))
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, PumitError):
            raise
        raise PumitError(
            f"dataset.json cannot be used ({type(error).__name__}: {error}); it needs labels and "
            "channel_names (or modality)."
        ) from None
    layout = "dataset.json"
    if rows:
        found = FoundCases.of(_named_cases(folder, rows, len(channels)), layout)
    else:
        images = f"imagesTr/{{case}}_{{channel}}{ending}"
        found = pair_files(folder, images, f"labelsTr/{{case}}{ending}", channel_names=channels)
    ignored = ignored_value(content["labels"])
    items: list[Item] = [*found.problems]
    for case in found.data.cases:
        if channels and not rows and len(case.images) not in (1, len(channels)):
            text = f"has {len(case.images)} files where dataset.json names the channels"
            items.append(CaseProblem(case.name, f"{text} {', '.join(channels)}"))
        else:
            items.append(replace(said_of(case, said.drawn, said.known), ignore_value=ignored))
    return FoundCases.of(items, layout, classes=classes, channels=channels)


def _channels(content: Mapping[str, Any]) -> tuple[str, ...]:
    given = content.get("channel_names") or content.get("modality") or {}
    if isinstance(given, Mapping):
        return tuple(str(given[key]) for key in sorted(given, key=int))
    return (str(given),) if isinstance(given, str) else tuple(map(str, given))


def classes_of_labels(labels: Mapping[str, Any]) -> tuple[ClassValue, ...]:
    """Return the classes and regions of a dataset.json's `labels`.

    Raises:
        PumitError: If a class is invalid.
    """
    found = []
    for key, value in labels.items():
        # The Decathlon and nnU-Net 1 write {"1": "liver"}, nnU-Net 2 {"liver": 1}.
        number, name = (int(key), str(value)) if str(key).isdecimal() else (value, str(key))
        if isinstance(number, (list, tuple)):
            found.append(region(ClassLabel(name), number))
            continue
        if name == IGNORE:
            continue
        found.append(ClassValue(int(number), ClassLabel(name)))
    return checked_classes(found)


def ignored_value(labels: Mapping[str, Any]) -> int | None:
    """Return the value of nnU-Net's label `ignore`, or None."""
    if isinstance(labels.get(IGNORE), int):
        return int(labels[IGNORE])
    values = [str(key) for key, name in labels.items() if name == IGNORE]
    return next((int(value) for value in values if value.isdecimal()), None)


def _named_cases(folder: Path, rows: Any, channels: int) -> Iterator[Item]:
    """Yield the cases that the file lists: `[{image, label}]` or `{name: {images, label}}`."""
    is_named = isinstance(rows, Mapping)
    for key, row in rows.items() if is_named else enumerate(rows):
        try:
            label = folder / row["label"]
            given = [folder / i for i in (row["images"] if "images" in row else [row["image"]])]
        except (KeyError, TypeError):
            raise PumitError(f"Entry {key} of dataset.json needs an image and a label.") from None
        name = str(key) if is_named else bare_name(label)
        if len(given) == 1 and not given[0].is_file():
            # nnU-Net 1 lists case.nii.gz for files named case_0000.nii.gz and so on.
            stem = bare_name(given[0])
            suffix = given[0].name[len(stem) :]
            split = [given[0].with_name(f"{stem}_{c:04d}{suffix}") for c in range(channels or 1)]
            given = split if split[0].is_file() else given
        absent = [path for path in (*given, label) if not path.is_file()]
        if absent == [label] and label.parent.is_dir():
            yield CaseProblem(name, f"has no label {label.name}", is_unlabelled=True)
            continue
        yield from (CaseProblem(name, f"there is no file {path.name}") for path in absent)
        if not absent:
            yield LabelledCase(name, tuple(given), label)
