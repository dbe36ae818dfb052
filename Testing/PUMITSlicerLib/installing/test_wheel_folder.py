"""A folder of wheels is checked before anything is installed from it."""

from __future__ import annotations

import pytest
from made_wheels import make_wheel
from packaging.tags import sys_tags
from PUMITSlicerLib.installing.installation import wheel_problems


def nothing(name):
    return None


def test_a_folder_with_everything_has_no_problems(tmp_path):
    make_wheel(tmp_path, "alpha", "1.5", needs=("beta_x>=2", "gamma; extra == 'all'"))
    make_wheel(tmp_path, "beta-x", "2.1", needs=("win-only; sys_platform == 'nowhere'", "alpha"))
    make_wheel(tmp_path, "alpha", "0.9", tag="cp27-none-any")
    assert wheel_problems(tmp_path, ["alpha>=1"], nothing) == []


def test_what_is_installed_need_not_be_in_the_folder(tmp_path):
    make_wheel(tmp_path, "alpha", "1.5", needs=("numpy>=1",))
    assert wheel_problems(tmp_path, ["alpha"], {"numpy": "2.0"}.get) == []


@pytest.mark.parametrize(
    ("wheels", "sentences"),
    [
        ([("other", "1", {})], ["alpha>=1 is needed, but it is not in the folder."]),
        ([("alpha", "0.5", {})], ["alpha>=1 is needed, but the folder has 0.5."]),
        (
            [("alpha", "1.5", {"needs": ("beta==2",)}), ("beta", "1", {})],
            ["beta==2 is needed, but the folder has 1."],
        ),
        (
            [("alpha", "1.5", {"needs": ("beta", "gamma"), "tag": "cp27-cp27m-win32"})],
            [
                "alpha-1.5-cp27-cp27m-win32.whl is for another Python or system; "
                f"{next(sys_tags())} is needed."
            ],
        ),
        (
            [("alpha", "1.5", {"needs": ("beta", "gamma")})],
            [
                "beta is needed, but it is not in the folder.",
                "gamma is needed, but it is not in the folder.",
            ],
        ),
    ],
)
def test_what_is_missing_or_wrong_is_a_sentence_each(tmp_path, wheels, sentences):
    for name, version, options in wheels:
        make_wheel(tmp_path, name, version, **options)
    assert wheel_problems(tmp_path, ["alpha>=1"], nothing) == sentences


def test_an_absent_or_empty_folder_is_said(tmp_path):
    assert "does not exist" in wheel_problems(tmp_path / "none", ["alpha"], nothing)[0]
    assert "has no .whl files" in wheel_problems(tmp_path, ["alpha"], nothing)[0]


def test_files_that_are_no_wheels_are_named(tmp_path):
    make_wheel(tmp_path, "alpha", "1.5")
    (tmp_path / "strange.whl").write_bytes(b"x")
    (problem,) = wheel_problems(tmp_path, ["alpha"], nothing)
    assert problem.startswith("strange.whl ")
