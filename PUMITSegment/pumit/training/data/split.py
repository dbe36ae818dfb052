"""Which cases train and which validate: by name, by fold or by a share, never within a patient."""

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
# How names say whose scan it is; the first pattern that groups the cases of a set is taken.
NAMED = (
    # patient001_frame12, sub-03_ses-02_T1w, p7_b: an identifier that calls itself one.
    r"(?:^|[_\-. /])((?:patient|pat|subject|subj|sub|volunteer|proband|p)[_\-]?\d+)(?=$|[_\-. /])",
    # 012_visit2, GLI-0003_week04, a12_left: what follows is a time, a repetition or a side.
    r"^(.+?)[_\-. ](?:frame|phase|time|tp|t|visit|v|session|ses|scan|series|run|week|month|day|"
    r"exam|study|followup|fu|baseline|left|right|lt|rt|l|r|ed|es|pre|post)[_\-]?\d*$",
    # BraTS-GLI-00003-000, 12_1: a number of a number.
    r"^(.*\d{2,})[_\-]\d{1,3}$",
)
MOST_SCANS = 8.0  # usual scans of a patient; what groups more of them is a site or an organ
SHOWN = 3


def known_patients(names: Sequence[str], patient_of: Mapping[str, str]) -> Groups:
    """Cases of each patient where the data name them; a case without a patient stands alone.

    Args:
        patient_of: Case to patient, of as many cases as are known.
    """
    groups: Groups = {}
    for name in names:
        groups.setdefault(patient_of.get(name) or name, []).append(name)
    return groups


def matched_patients(names: Sequence[str], pattern: str) -> Groups:
    """Cases of each patient by a regular expression: its first group, or all that it matches.

    Raises:
        PumitError: If it is none, finds nothing in a name, or the same in all.
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
    """Get a pattern after which some patients have several scans; None where no name shows one."""
    for pattern in NAMED:
        compiled = re.compile(pattern, re.IGNORECASE)
        found = [compiled.search(name) for name in names]
        if not all(found):
            continue
        patients = {match.group(1) for match in found if match}
        if 1 < len(patients) < len(names) <= MOST_SCANS * len(patients):
            return f"(?i){pattern}"
    # A/ct, A/pet, B/ct: the same few files in folders that are patients.
    folders, files = ({name.rpartition("/")[at] for name in names} for at in (0, 2))
    is_grouped = max(2, len(files)) <= len(folders) < len(names) <= MOST_SCANS * len(folders)
    return "^(.+)/" if is_grouped and "" not in folders else None


def about_guess(groups: Groups) -> str:
    """Return what to tell of patients that were read off the names."""
    several = {patient: cases for patient, cases in groups.items() if len(cases) > 1}
    shown = listed((f"{p} ({', '.join(c[:SHOWN])})" for p, c in several.items()), SHOWN)
    return (
        f"{len(groups)} patients are guessed from the names of {sum(map(len, groups.values()))} "
        f"cases, such as {shown}; correct data.patient if they are others"
    )


@dataclass(frozen=True)
class Split:
    """Names of cases."""

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
    """Divide a data set.

    Of a recipe's `data` it reads `validation` (names, or a share of the patients; none or 0 trains
    on all), `training` (names, where not all others), `fold` ("2 of 5"), `share` (part of the
    training patients that are used; a smaller share is contained in a larger one) and `patient` (a
    regular expression whose first group, or all that it matches in a name, is the patient).
    Without `patient` the patients are those that the data tell, else they are guessed from the
    names, and that is said.

    Args:
        patients: Case to patient, where the data tell.

    Raises:
        PumitError: If a name is unknown, a value cannot be used, or nothing is left to train on.
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
    # Cases are named, not patients: what the data tell may be an identifier, and notes are logged.
    crossing = [g for g in groups.values() if {*g} & taken and {*g} & {*training}]
    if not validation:
        notes.append("nobody is validated on: how good the model is stays unknown")
    notes += [f"{', '.join(g)} are of one patient, trained and validated on" for g in crossing]
    return Split(tuple(sorted(training)), tuple(sorted(validation)), tuple(notes))


def patients_of(
    names: Sequence[str], pattern: str | None, patient_of: Mapping[str, str]
) -> tuple[Groups, list[str]]:
    """Cases of each patient in order of the names, and what to say of it.

    Args:
        pattern: A recipe's `data.patient`, which comes first.
        patient_of: Case to patient, where the data tell.

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
    """Names of the cases that are validated on."""
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
