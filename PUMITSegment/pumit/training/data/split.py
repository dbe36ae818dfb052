"""Split cases into training and validation by name, fold or share, grouped by patient."""

import difflib
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pumit.errors import PumitError
from pumit.export.classes import class_colors
from pumit.system.wording import listed
from pumit.training.data.case import CaseFacts
from pumit.training.data.checks import DataFacts
from pumit.training.data.found_cases import LabelledCase, LabelledSet, all_at_once
from pumit.training.recipes.labelled import LabelledData

Groups = dict[str, list[str]]
# Patterns of patient identifiers in case names.
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


def grouped(names: Iterable[str], patient_of: Callable[[str], str]) -> Groups:
    """Group cases by the patient of each, in order of the names."""
    groups: Groups = {}
    for name in names:
        groups.setdefault(patient_of(name), []).append(name)
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

    def patient_of(name: str) -> str:
        match = compiled.search(name)
        if match is None:
            raise PumitError(f"data.patient {pattern!r} matches nothing in {name!r}; correct it.")
        return str(match.group(1 if compiled.groups else 0))

    groups = grouped(names, patient_of)
    if len(groups) == 1:
        raise PumitError(f"data.patient {pattern!r} finds the same patient in all cases.")
    return groups


def guessed_pattern(names: Sequence[str]) -> str | None:
    """Return a pattern by which some patients have several scans, or None.

    Of several, the one that most names match; each other name is a patient by itself.
    """
    best, most = None, 0
    for pattern in NAMED:
        compiled = re.compile(pattern, re.IGNORECASE)
        found = [match[1] for match in map(compiled.search, names) if match]
        count, patients = len(found), len(set(found))
        if most < count and 1 < patients < count <= MOST_SCANS * patients:
            best, most = f"(?i){pattern}", count
    if best is not None:
        return best
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
    patients are taken from the data, those of other cases guessed from the names with a warning.

    Args:
        patients: Case to patient, where the data identify them.

    Raises:
        PumitError: If a name is unknown, a value is invalid, or nothing is left to train on.
    """
    if len(names) == 1 and data.fold is None:
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
    if not 0 < data.share <= 1:
        raise PumitError(f"data.share must be above 0 and at most 1, got {data.share}.")
    learnt = [[n for n in group if n in training] for group in _shuffled(groups, seed + 1)]
    learnt = [group for group in learnt if group]
    kept = learnt[: max(1, round(len(learnt) * data.share))]
    training = [name for group in kept for name in group]
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

    A recipe's `data.patient`, the pattern, takes precedence over the patients that the data name.

    Raises:
        PumitError: If the pattern cannot be used.
    """
    if pattern is not None:
        return matched_patients(names, pattern), []
    bare = [name for name in names if not patient_of.get(name)]
    guess = guessed_pattern(bare)

    def patient(name: str) -> str:
        known = patient_of.get(name) or (guessed_patient(guess, name) if guess else "")
        return known or name

    return grouped(names, patient), [about_guess(grouped(bare, patient))] if guess else []


def guessed_patient(guess: str, name: str) -> str:
    """Return the patient that a pattern of `guessed_pattern` finds in a name, or ""."""
    match = re.search(guess, name)
    return match[1] if match else ""


def _held_out(names: Sequence[str], data: LabelledData, patients: Groups, seed: int) -> list[str]:
    chosen = data.validation
    if isinstance(chosen, list):
        if data.fold is not None:
            raise PumitError("Give either data.fold or a list data.validation, not both.")
        return _known(names, chosen, "data.validation") if chosen else []
    groups = _shuffled(patients, seed)
    if data.fold is not None:
        held = groups[_fold(data.fold, len(groups))]
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


def _fold(text: str, groups: int) -> slice:
    """Return the validation groups of a fold such as "1 of 5"."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:of|/)\s*(\d+)\s*", text)
    number, folds = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= folds or folds < 2:
        raise PumitError(f"data.fold must be like '1 of 5', got {text!r}.")
    if folds > groups:
        raise PumitError(
            f"{folds} folds need {folds} patients, but there are {groups}; choose fewer folds."
        )
    return slice(number - 1, None, folds)


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


@dataclass(frozen=True)
class SplitData:
    """A data set, the facts of its cases, and its split."""

    data: LabelledSet
    facts: DataFacts
    split: Split

    @property
    def training(self) -> list[LabelledCase]:
        """Training cases."""
        return self.data.cases_named(self.split.training)

    @property
    def validation(self) -> list[LabelledCase]:
        """Validation cases."""
        return self.data.cases_named(self.split.validation)

    def facts_of(self, names: Iterable[str]) -> list[CaseFacts]:
        """Return the facts of the named cases."""
        chosen = set(names)
        return [fact for fact in self.facts.cases if fact.name in chosen]

    def record(self) -> dict[str, Any]:
        """Return the log record, with fingerprints that identify the data."""
        labels = [c.label for c in self.data.classes]
        names = [label.name for label in labels]
        return {
            "cases": len(self.data.cases),
            "classes": {
                c.label.name: c.value if len(c.values) == 1 else list(c.values)
                for c in self.data.classes
            },
            "colors": class_colors(labels),
            "training": list(self.split.training),
            "validation": list(self.split.validation),
            "warnings": [*self.split.warnings, *self.facts.warnings],
            "fingerprints": [
                {
                    "case": fact.name,
                    "shape": list(fact.shape),
                    "spacing_mm": [round(s, 4) for s in fact.spacing_mm],
                    "sha256": fact.digest,
                    "class_voxels": dict(zip(names, fact.class_voxels[1:], strict=True)),
                }
                for fact in self.facts.cases
            ],
        }

    def settled(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a recipe's `data` with explicit classes and split."""
        return {
            **{k: v for k, v in given.items() if k not in ("fold", "share")},
            # Given classes may have further segment names.
            "classes": given.get("classes") or [c.as_row() for c in self.data.classes],
            "training": list(self.split.training),
            "validation": list(self.split.validation),
        }

    def counts(self) -> dict[str, int]:
        """Return the numbers of cases for the checkpoint."""
        return {"cases": len(self.split.training), "validation_cases": len(self.split.validation)}


def split_set(cases: Iterable[LabelledCase], rule: LabelledData, *, seed: int) -> Split:
    """Split cases by a recipe's `data` and their patients; see `split_cases`."""
    patients = {case.name: case.patient for case in cases}
    return split_cases(list(patients), rule, seed=seed, patients=patients)
