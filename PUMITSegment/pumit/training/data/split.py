"""Split cases into training and validation by name, fold or share, grouped by patient."""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pumit.errors import PumitError
from pumit.system.wording import listed
from pumit.training.data.found_cases import all_at_once
from pumit.training.recipes.labelled import LabelledData

Groups = dict[str, list[str]]
# Patterns of patient identifiers in case names; the first that groups the cases is used.
NAMED = (
    # patient001_frame12, sub-03_ses-02_T1w, p7_b: a labelled identifier.
    r"(?:^|[_\-. /])((?:patient|pat|subject|subj|sub|volunteer|proband|p)[_\-]?\d+)(?=$|[_\-. /])",
    # 012_visit2, GLI-0003_week04, a12_left: followed by a time, a repetition or a side.
    r"^(.+?)[_\-. ](?:frame|phase|time|tp|t|visit|v|session|ses|scan|series|run|week|month|day|"
    r"exam|study|followup|fu|baseline|left|right|lt|rt|l|r|ed|es|pre|post)[_\-]?\d*$",
    # BraTS-GLI-00003-000, 12_1: a number followed by a second number.
    r"^(.*\d{2,})[_\-]\d{1,3}$",
)
MOST_SCANS = 8.0  # mean scans per patient; larger groups are more likely sites or organs
SHOWN = 3


def known_patients(names: Sequence[str], patient_of: Mapping[str, str]) -> Groups:
    """Group cases by known patient; a case without a patient is a group by itself.

    Args:
        patient_of: Case to patient, where known.
    """
    groups: Groups = {}
    for name in names:
        groups.setdefault(patient_of.get(name) or name, []).append(name)
    return groups


def matched_patients(names: Sequence[str], pattern: str) -> Groups:
    """Group cases by a regular expression: by its first group, or else the whole match.

    Raises:
        PumitError: If the pattern is invalid, does not match a name, or gives a single patient.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise PumitError(f"data.patient is no regular expression: {error}.") from None
    groups: Groups = {}
    for name in names:
        match = compiled.search(name)
        if match is None:
            raise PumitError(f"data.patient {pattern!r} matches nothing in {name!r}; correct it.")
        groups.setdefault(match.group(1 if compiled.groups else 0), []).append(name)
    if len(groups) == 1:
        raise PumitError(f"data.patient {pattern!r} finds the same patient in all cases.")
    return groups


def guessed_pattern(names: Sequence[str]) -> str | None:
    """Return a pattern by which some patients have several scans, or None."""
    for pattern in NAMED:
        compiled = re.compile(pattern, re.IGNORECASE)
        found = [compiled.search(name) for name in names]
        if not all(found):
            continue
        patients = {match.group(1) for match in found if match}
        if 1 < len(patients) < len(names) <= MOST_SCANS * len(patients):
            return f"(?i){pattern}"
    # A/ct, A/pet, B/ct: the same few file names in one folder per patient.
    folders, files = ({name.rpartition("/")[at] for name in names} for at in (0, 2))
    is_grouped = max(2, len(files)) <= len(folders) < len(names) <= MOST_SCANS * len(folders)
    return "^(.+)/" if is_grouped and "" not in folders else None


def about_guess(groups: Groups) -> str:
    """Return a note on patients that were guessed from the names."""
    several = {patient: cases for patient, cases in groups.items() if len(cases) > 1}
    shown = listed((f"{p} ({', '.join(c[:SHOWN])})" for p, c in several.items()), SHOWN)
    return (
        f"{len(groups)} patients are guessed from the names of {sum(map(len, groups.values()))} "
        f"cases, such as {shown}; correct data.patient if they are others"
    )


@dataclass(frozen=True)
class Split:
    """Names of the training and validation cases, with warnings."""

    training: tuple[str, ...]
    validation: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def split_cases(
    names: Sequence[str],
    data: LabelledData,
    *,
    seed: int,
    patients: Mapping[str, str] | None = None,
) -> Split:
    """Split a data set.

    Uses these keys of a recipe's `data`: `validation` (names, or a share of the patients; an empty
    list or 0 trains on all), `training` (names; by default all others), `fold` ("2 of 5"), `share`
    (fraction of the training patients; a larger share contains a smaller one) and `patient` (a
    regular expression whose first group, else the whole match, is the patient). Without `patient`,
    patients are taken from the data, else guessed from the names with a warning.

    Args:
        patients: Case to patient, where the data identify them.

    Raises:
        PumitError: If a name is unknown, a value is invalid, or nothing is left to train on.
    """
    if len(names) == 1:
        only = tuple(names)
        return Split(only, only, (f"{names[0]} is the only case: it is validated on as well",))
    groups, notes = patients_of(names, data.patient, patients or {})
    validation = _held_out(names, data, groups, seed)
    taken = set(validation)
    if data.training is not None:
        training = _known(names, data.training, "data.training")
        all_at_once(
            f"{name} is to be trained and validated on" for name in training if name in taken
        )
    else:
        training = [name for name in names if name not in taken]
    training = _share(training, groups, data.share, seed)
    if not training:
        raise PumitError("No case is left to train on; validate on fewer of them.")
    # Name cases, not patients: notes are logged, and a patient may be a real identifier.
    crossing = [g for g in groups.values() if {*g} & taken and {*g} & {*training}]
    if not validation:
        notes.append("no case is left for validation: the accuracy of the model stays unknown")
    notes += [f"{', '.join(g)} are of one patient, trained and validated on" for g in crossing]
    return Split(tuple(sorted(training)), tuple(sorted(validation)), tuple(notes))


def patients_of(
    names: Sequence[str], pattern: str | None, patient_of: Mapping[str, str]
) -> tuple[Groups, list[str]]:
    """Group cases by patient in order of the names, and return notes for the user.

    Args:
        pattern: A recipe's `data.patient`, which takes precedence.
        patient_of: Case to patient, where the data identify them.

    Raises:
        PumitError: If the pattern cannot be used.
    """
    if pattern is not None:
        return matched_patients(names, pattern), []
    known = {name: patient for name, patient in patient_of.items() if patient}
    if known:
        return known_patients(names, known), []
    guess = guessed_pattern(names)
    if guess is None:
        return {name: [name] for name in names}, []
    groups = matched_patients(names, guess)
    return groups, [about_guess(groups)]


def _held_out(names: Sequence[str], data: LabelledData, patients: Groups, seed: int) -> list[str]:
    chosen = data.validation
    if isinstance(chosen, list):
        if data.fold is not None:
            raise PumitError("Give either data.fold or a list data.validation, not both.")
        return _known(names, chosen, "data.validation") if chosen else []
    groups = _shuffled(patients, seed)
    if data.fold is not None:
        held = groups[_fold(data.fold, len(groups)) :: _folds(data.fold)]
    else:
        if not 0 <= chosen < 1:
            raise PumitError(f"data.validation must be a share from 0 to below 1, got {chosen}.")
        # A single patient can only be trained on.
        held = groups[: max(1, round(len(groups) * chosen))] if chosen and len(groups) > 1 else []
    return [name for group in held for name in group]


def _shuffled(patients: Mapping[str, list[str]], seed: int) -> list[list[str]]:
    groups = [patients[p] for p in sorted(patients)]
    random.Random(seed).shuffle(groups)
    return groups


def _folds(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*(?:of|/)\s*(\d+)\s*", str(text))
    if match is None or not 1 <= int(match[1]) <= int(match[2]) or int(match[2]) < 2:
        raise PumitError(f"data.fold must be like '1 of 5', got {text!r}.")
    return int(match[2])


def _fold(text: str, groups: int) -> int:
    folds = _folds(text)
    if folds > groups:
        raise PumitError(f"data.fold {text!r} needs {folds} patients, there are {groups}.")
    return int(re.findall(r"\d+", str(text))[0]) - 1


def _known(names: Sequence[str], chosen: Sequence[Any], where: str) -> list[str]:
    problems = []
    for name in map(str, chosen):
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            problems.append(f"{where} names {name!r}" + (f" (near: {near[0]!r})" if near else ""))
    all_at_once(problems, "There are no such cases")
    if not chosen:
        raise PumitError(f"{where} is empty; name cases or leave it out.")
    return list(dict.fromkeys(map(str, chosen)))


def _share(
    training: list[str], patients: Mapping[str, list[str]], share: float, seed: int
) -> list[str]:
    if not 0 < share <= 1:
        raise PumitError(f"data.share must be above 0 and at most 1, got {share}.")
    groups = [[n for n in group if n in training] for group in _shuffled(patients, seed + 1)]
    groups = [group for group in groups if group]
    kept = groups[: max(1, round(len(groups) * share))]
    return [name for group in kept for name in group]
