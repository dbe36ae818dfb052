"""Which cases train and which validate: by name, by fold or by a share, never within a patient."""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pumit.errors import PumitError
from pumit.training.labelled_cases import all_at_once

VALIDATION_SHARE = 0.2


@dataclass(frozen=True)
class Split:
    """Names of cases.

    Attributes:
        training: Trained on.
        validation: Validated on.
        warnings: What a user should know of it, in words.
    """

    training: tuple[str, ...]
    validation: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def split_cases(names: Sequence[str], data: Mapping[str, Any], *, seed: int) -> Split:
    """Divide a data set.

    Of a recipe's `data` it reads `validation` (names, or a share of the patients), `training`
    (names, where not all others), `fold` ("2 of 5"), `share` (part of the training patients that
    are used; a smaller share is contained in a larger one) and `patient` (a regular expression
    whose first group, or all that it matches in a name, is the patient).

    Args:
        names: Of all cases.
        data: Keys and values; their names and kinds are checked already.
        seed: Of the choice.

    Raises:
        PumitError: If a name is unknown, a value cannot be used, or nothing is left to train on.
    """
    if len(names) == 1:
        only = tuple(names)
        return Split(only, only, (f"{names[0]} is the only case: it is validated on as well",))
    patients = _patients(names, data.get("patient"))
    chosen = data.get("validation", VALIDATION_SHARE)
    if isinstance(chosen, (list, tuple)):
        if "fold" in data:
            raise PumitError("Give either data.fold or a list data.validation, not both.")
        validation = _known(names, chosen, "data.validation")
    else:
        groups = _shuffled(patients, seed)
        if "fold" in data:
            held = groups[_fold(data["fold"], len(groups)) :: _folds(data["fold"])]
        else:
            if not 0 < chosen < 1:
                raise PumitError(f"data.validation must be a share between 0 and 1, got {chosen}.")
            held = groups[: max(1, round(len(groups) * chosen))]
        validation = [name for group in held for name in group]
    taken = set(validation)
    if "training" in data:
        training = _known(names, data["training"], "data.training")
        all_at_once(
            f"{name} is to be trained and validated on" for name in training if name in taken
        )
    else:
        training = [name for name in names if name not in taken]
    training = _share(training, patients, data.get("share", 1.0), seed)
    if not training:
        raise PumitError("No case is left to train on; validate on fewer of them.")
    crossing = [p for p, group in patients.items() if {*group} & taken and {*group} & {*training}]
    notes = tuple(f"patient {p} is trained and validated on" for p in crossing)
    return Split(tuple(sorted(training)), tuple(sorted(validation)), notes)


def _patients(names: Sequence[str], pattern: str | None) -> dict[str, list[str]]:
    """Cases of each patient, in order of the names; without a pattern each is a patient."""
    if pattern is None:
        return {name: [name] for name in names}
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise PumitError(f"data.patient is no regular expression: {error}.") from None
    groups: dict[str, list[str]] = {}
    for name in names:
        match = compiled.search(name)
        if match is None:
            raise PumitError(f"data.patient {pattern!r} matches nothing in {name!r}; correct it.")
        groups.setdefault(match.group(1 if compiled.groups else 0), []).append(name)
    if len(groups) == 1:
        raise PumitError(f"data.patient {pattern!r} finds the same patient in all cases.")
    return groups


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
