"""The entry for Slicer's extension catalogue, held to the catalogue's own checks.

Rules: Slicer's Schemas/slicer-extension-catalog-entry-schema-v1.0.2.json, and what
scripts/check_description_files.py of Slicer/ExtensionsIndex asks of entry and CMakeLists.txt.
"""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image
from tracked_files import tracked_files

SCHEMA = (
    "https://raw.githubusercontent.com/Slicer/Slicer/main/"
    "Schemas/slicer-extension-catalog-entry-schema-v1.0.2.json#"
)
# Every property that the schema allows, with its type; it allows no other.
PROPERTIES = {
    "$schema": str,
    "build_dependencies": list,
    "build_subdirectory": str,
    "category": str,
    "dicom_support_rule": str,
    "enabled": bool,
    "scm_revision": str,
    "scm_type": str,
    "scm_url": str,
    "tier": int,
}
REQUIRED = {"$schema", "category", "scm_url"}


@pytest.fixture
def name(repository: Path) -> str:
    """The extension's name is the entry's file name."""
    files = [file for file in tracked_files(repository) if file.parent == repository]
    (entry,) = [file for file in files if file.suffix == ".json"]
    return entry.stem


@pytest.fixture
def entry(repository: Path, name: str) -> dict:
    return json.loads((repository / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture
def cmake(repository: Path) -> str:
    return (repository / "CMakeLists.txt").read_text(encoding="utf-8")


def value(cmake: str, variable: str) -> str:
    # The catalogue's own pattern: quoted, in one line.
    (found,) = re.findall(rf'set\s*\({variable}\s*"([^"]+)"[ ]*\)', cmake)
    return found.strip()


def in_repository(repository: Path, entry: dict, url: str) -> Path:
    """The file that an address in the raw view of the entry's branch leads to."""
    owner_and_name = urlsplit(entry["scm_url"]).path.strip("/")
    base = f"https://raw.githubusercontent.com/{owner_and_name}/{entry['scm_revision']}/"
    assert url.startswith(base)
    return repository / url.removeprefix(base)


def test_entry_fits_the_schema(entry):
    assert entry["$schema"] == SCHEMA
    assert REQUIRED <= set(entry) <= set(PROPERTIES)
    for key, content in entry.items():
        assert type(content) is PROPERTIES[key], key
    assert all(isinstance(item, str) for item in entry["build_dependencies"])
    assert 1 <= entry["tier"] <= 5
    assert entry.get("scm_type", "git") in ("git", "local")


def test_repository_is_named_as_slicers_extensions_are(entry, name):
    url = urlsplit(entry["scm_url"])
    assert url.scheme == "https"
    assert Path(url.path).stem == f"Slicer{name}"
    assert "slicer" not in name.lower()


def test_cmake_says_the_same(entry, name, cmake):
    assert re.findall(r"project\s*\(\s*([^\s)]+)", cmake)[0] == name
    assert value(cmake, "EXTENSION_CATEGORY") == entry["category"]
    assert value(cmake, "EXTENSION_DEPENDS").split() == entry["build_dependencies"]
    assert value(cmake, "EXTENSION_HOMEPAGE") == entry["scm_url"]


def test_pictures_lead_to_files_of_the_repository(repository, entry, cmake):
    icon = in_repository(repository, entry, value(cmake, "EXTENSION_ICONURL"))
    screenshots = value(cmake, "EXTENSION_SCREENSHOTURLS").split()
    assert screenshots
    files = {file.resolve() for file in tracked_files(repository)}
    for path in (icon, *(in_repository(repository, entry, url) for url in screenshots)):
        assert path.resolve() in files
        with Image.open(path) as picture:
            assert picture.format == "PNG"
