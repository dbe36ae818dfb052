"""The patient of each scan: from the data, by a pattern of the recipe, or read off the names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pumit.errors import PumitError
from pumit.system.wording import listed

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
