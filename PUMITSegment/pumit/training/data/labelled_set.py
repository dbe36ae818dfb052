"""Find the scans, labels and classes of a data set, in folders or listed one by one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pumit.errors import PumitError, VolumeError
from pumit.io.dicom.files import find_dicom
from pumit.io.file_part import file_exists
from pumit.io.labels.label_source import announced_segments, unreviewed_of
from pumit.io.scans import IMAGE_SUFFIXES, suffix_of
from pumit.io.slicer_bundle import SUFFIX, is_bundle
from pumit.system.wording import count_of, listed
from pumit.training.data.class_matching import is_class
from pumit.training.data.class_proposal import ClassProposal
from pumit.training.data.classes import checked_classes, classes_of
from pumit.training.data.dataset_json import read_dataset_json
from pumit.training.data.dicom_cases import (
    bundle_cases,
    dicom_cases,
    with_patients,
    zip_cases,
)
from pumit.training.data.found_cases import (
    IMAGE_PATTERN,
    LABEL_PATTERN,
    CaseProblem,
    FoundCases,
    Item,
    LabelledSet,
    all_at_once,
    bare_name,
    guess_pairs,
    one_line,
    pair_files,
    said_of,
)
from pumit.training.data.found_cases import LabelledCase as LabelledCase
from pumit.training.recipes.labelled import CaseEntry, Drawn, LabelledData, Name

SHOWN_NAMES = 6


def find_labelled_set(given: LabelledData, resolve: Callable[[str], Path]) -> LabelledSet:
    """Find the cases of a recipe's `data`, with classes from the labels if it names none.

    Scans without labels and scans with unreviewed labels (unless in `use_unreviewed`) are skipped
    and noted in `doubts`.

    Raises:
        PumitError: If anything is wrong; the message lists all problems.
    """
    found = find_cases(given, resolve)
    all_at_once(str(problem) for problem in found.problems if not problem.is_unlabelled)
    unlabelled = [problem for problem in found.problems if problem.is_unlabelled]
    if not found.data.cases and unlabelled:
        raise PumitError(
            f"None of {len(unlabelled)} scans has labels: {unlabelled[0]}. Draw in some of them."
        )
    if not found.data.cases:
        raise PumitError("The data set holds no case; check data.folder and its patterns.")
    data = found.data
    if unlabelled:
        lack = "has no labels and is" if len(unlabelled) == 1 else "have no labels and are"
        text = f"{count_of(len(unlabelled), 'scan')} {lack} not used"
        data = replace(data, doubts=(*data.doubts, text))
    data = _reviewed(data, given)
    return data if data.classes else with_proposed_classes(data)


def _reviewed(data: LabelledSet, given: LabelledData) -> LabelledSet:
    """Return a data set without cases whose labels are unreviewed.

    Raises:
        PumitError: If no other case is left, or the recipe's split names one of them.
    """
    sentences = {c.name: unreviewed_of(c.labels) for c in data.cases if not c.is_confirmed}
    sentences = {name: sentence for name, sentence in sentences.items() if sentence}
    if not sentences:
        return data
    held = given.validation if isinstance(given.validation, list) else []
    wanted = sentences.keys() & set(map(str, [*(given.training or []), *held]))
    names = sorted(wanted or sentences)
    causes = ", ".join(sorted({sentences[name] for name in names})[:SHOWN_NAMES])
    text = (
        f"labels of {listed(names, SHOWN_NAMES)} ({causes}); mark their segments completed in "
        "Slicer, or confirm them with --use-unreviewed (data.use_unreviewed: true)"
    )
    if wanted:
        raise PumitError(f"The recipe names {text}.")
    kept = tuple(case for case in data.cases if case.name not in sentences)
    if not kept:
        raise PumitError(f"There are no reviewed labels, only {text}.")
    return replace(data, cases=kept, doubts=(*data.doubts, f"not used: {text}"))


def find_cases(data: LabelledData, resolve: Callable[[str], Path]) -> FoundCases:
    """Find the cases of a recipe's `data`, and their problems.

    With several sources, a case's name is prefixed with the number of its folder: `folder2-case`.
    The folder's name is not used, as it may identify a patient and case names are logged.

    Raises:
        PumitError: If nothing can be inspected: no folder, or a damaged dataset.json.
    """
    classes = () if data.classes is None else classes_of(data.classes)
    channels = tuple(map(str, data.channels))
    repeats = data.repeat_single_channel
    if (data.folder is not None) == bool({"folders", "cases"} & data.model_fields_set):
        raise PumitError(
            "The recipe's data needs either a folder (`--data FOLDER` gives it too), or folders "
            "and cases."
        )
    if data.folder is not None:
        patterns = _patterns(data.images, data.labels)
        found = cases_of_folder(resolve(data.folder), patterns, repeats_single=repeats)
    else:
        found = _of_sources(data, resolve)
    left_out = set(map(str, data.leave_out))
    kept = [case for case in found.data.cases if case.name not in left_out]
    kept = [c if c.is_confirmed else _confirmed(c, data.use_unreviewed) for c in kept]
    kept = [said_of(c, data.drawn, data.known) for c in kept]
    if data.ignore is not None:
        kept = [replace(c, ignore_value=data.ignore) for c in kept]
    names = [case.name for case in kept]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems = [p for p in found.problems if p.case not in left_out]
    problems += [CaseProblem(name, "is there twice; rename or remove one") for name in twice]
    kept = sorted((c for c in kept if c.name not in twice), key=lambda case: case.name)
    made = LabelledSet(
        tuple(with_patients(kept)),
        classes or found.data.classes,
        channels or found.data.channels,
        repeats,
    )
    return FoundCases(made, tuple(problems), found.layout, found.origins)


def cases_of_folder(
    folder: Path, patterns: tuple[str, str] | None = None, *, repeats_single: bool = False
) -> FoundCases:
    """Find the cases of a folder in any supported layout.

    In this order: the given patterns (see `pair_files`), a dataset.json of nnU-Net or the
    Decathlon, the usual patterns, DICOM series with DICOM-SEG or RTSTRUCT, Slicer scenes (`.mrb`),
    zips of DICOM. A single `.mrb` or zip is accepted instead of a folder.

    Raises:
        PumitError: If the folder is missing, or its layout is not recognised.
    """
    if folder.is_file() and is_bundle(folder):
        return FoundCases.of(bundle_cases([folder]), "a Slicer scene")
    if folder.is_file() and folder.suffix.lower() == ".zip":
        return FoundCases.of(zip_cases([folder]), "a DICOM zip")
    if not folder.is_dir():
        if folder.exists():
            raise PumitError(f"{folder.name!r} is a file; give the folder of images and labels.")
        raise PumitError(f"There is no folder {folder.name!r}; correct its path, or move it back.")
    if patterns is None:
        found = _found_in(folder, repeats_single)
        if found is not None:
            return found
    images, labels = patterns or (IMAGE_PATTERN, LABEL_PATTERN)
    found = pair_files(folder, images, labels, repeats_single=repeats_single)
    if not found.data.cases and not found.problems:
        only_dicom = patterns is None and not any(
            suffix_of(path, IMAGE_SUFFIXES) for path in folder.rglob("*")
        )
        with suppress(VolumeError):
            files = find_dicom(folder) if only_dicom else []
            series = {file.series_instance_uid for file in files if file.is_image}
            if series:
                raise PumitError(
                    f"{folder.name!r} has {len(series)} DICOM series, "
                    "but no DICOM-SEG or RTSTRUCT of them; add the segmentations to the folder."
                )
        raise PumitError(
            f"No files in {folder.name!r} are called like {images!r} and {labels!r}; give the "
            "patterns of image files and label files (--images and --labels of pumit data; in a "
            "recipe data.images and data.labels), or a folder with dataset.json, DICOM or Slicer "
            "scenes."
        )
    return found


def _found_in(folder: Path, repeats_single: bool) -> FoundCases | None:
    if (folder / "dataset.json").is_file():
        return read_dataset_json(folder)
    pairs = guess_pairs(folder, repeats_single=repeats_single)
    if pairs is not None:
        return pairs
    items = dicom_cases(folder)
    if items:
        return FoundCases.of(items, "DICOM series with their segmentations")
    scenes = sorted(p for p in folder.iterdir() if p.name.lower().endswith(SUFFIX))
    if scenes:
        return FoundCases.of(bundle_cases(scenes), "Slicer scenes")
    zips = sorted(p for p in folder.iterdir() if p.suffix.lower() == ".zip")
    if zips:
        return FoundCases.of(zip_cases(zips), "DICOM zips")
    return None


def _patterns(images: str | None, labels: str | None) -> tuple[str, str] | None:
    """Return the patterns of a recipe, or None if it has none."""
    return (images or IMAGE_PATTERN, labels or LABEL_PATTERN) if images or labels else None


def _of_sources(data: LabelledData, resolve: Callable[[str], Path]) -> FoundCases:
    """Return the cases of several folders and the listed ones; failing folders become problems."""
    items = list(_listed_cases(data.cases, resolve))
    layouts = ["listed cases"] if data.cases else []
    sets: list[LabelledSet] = []
    origins: dict[str, tuple[str, str]] = {}
    is_alone = len(data.folders) == 1 and not data.cases
    for number, row in enumerate(data.folders, start=1):
        patterns = _patterns(row.images, row.labels)
        try:
            found = cases_of_folder(
                resolve(row.folder), patterns, repeats_single=data.repeat_single_channel
            )
        except PumitError as error:
            items.append(CaseProblem("", str(error).removesuffix(".")))
            continue
        layouts.append(found.layout)
        sets.append(found.data)
        prefix = "" if is_alone else f"folder{number}-"
        left_out = set(map(str, row.leave_out))
        patients = {str(case): str(patient) for case, patient in row.patients.items()}
        for case in found.data.cases:
            if case.name not in left_out:
                origins[prefix + case.name] = (row.folder, case.name)
                said = said_of(_confirmed(case, row.use_unreviewed), row.drawn, row.known)
                patient = patients.get(case.name, case.patient)
                items.append(replace(said, name=prefix + case.name, patient=patient))
        for problem in found.problems:
            if problem.case not in left_out:
                origins[prefix + problem.case] = (row.folder, problem.case)
                items.append(replace(problem, case=problem.case and prefix + problem.case))
    classes = list(dict.fromkeys(s.classes for s in sets if s.classes))
    if len(classes) > 1 and data.classes is None:
        text = "the folders name their classes differently; name them in data.classes"
        items.append(CaseProblem("", text))
    channels = {s.channels for s in sets}
    several = {tuple(map(str.casefold, s.channels)): s.channels for s in sets}
    several = {key: names for key, names in several.items() if len(names) > 1}
    if len(several) > 1 and not data.channels:
        shown = "; ".join(", ".join(names) for names in several.values())
        text = f"the folders have different channels ({shown}); train them apart, or give "
        items.append(CaseProblem("", f"{text}data.channels if they mean the same"))
    found = FoundCases.of(
        items,
        "; ".join(dict.fromkeys(layouts)),
        classes=classes[0] if len(classes) == 1 else (),
        channels=channels.pop() if len(channels) == 1 else (),
    )
    return replace(found, origins=origins)


def _confirmed(case: LabelledCase, names: bool | Sequence[Name]) -> LabelledCase:
    is_confirmed = names if isinstance(names, bool) else case.name in map(str, names)
    return replace(case, is_confirmed=is_confirmed)


def with_proposed_classes(data: LabelledSet) -> LabelledSet:
    """Return a data set with classes proposed from its labels.

    Raises:
        PumitError: If labels cannot be read, or nothing is labelled.
    """
    proposal, problems = ClassProposal(), []
    for case in data.cases:
        try:
            for label in case.labels:
                found_here = announced_segments(label)
                proposal.add(case.name, [s for s in found_here if is_class(s, case.ignore_value)])
        except VolumeError as error:
            problems.append(f"{case.name}: {one_line(error)}")
    all_at_once(problems)
    found = proposal.classes()
    if not found:
        raise PumitError(
            "every label map is empty: there is nothing to learn; name the classes under "
            "data.classes."
        )
    doubts = (*data.doubts, *proposal.problems(), *proposal.doubts())
    classes = checked_classes(found)
    return LabelledSet(data.cases, classes, data.channels, data.repeats_single, doubts)


def _listed_cases(rows: Sequence[CaseEntry], resolve: Callable[[str], Path]) -> Iterator[Item]:
    for number, row in enumerate(rows, start=1):
        images, labels = (
            tuple(resolve(text) for text in ([given] if isinstance(given, str) else given or []))
            for given in (row.image if row.images is None else row.images, row.label)
        )
        if not images or not labels:
            yield CaseProblem(row.name or f"case {number}", "needs the keys image and label")
            continue
        name = row.name or bare_name(images[0])
        absent = [path.name for path in (*images, *labels) if not file_exists(path)]
        yield from (CaseProblem(name, f"there is no file {file}") for file in absent)
        if not absent:
            case = LabelledCase(name, images, labels[0], str(row.patient), labels[1:])
            drawn: dict[Name, Drawn] = {} if row.drawn is None else {name: row.drawn}
            yield said_of(case, drawn, row.known or "all")
