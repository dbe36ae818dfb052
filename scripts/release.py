"""Build the files of a release: the wheel, its SBOM (CycloneDX) and checksums.

    python scripts/release.py dist

The wheel is built only from the tracked files of the last commit, with the commit's time: the same
commit and setuptools version give the same bytes. The SBOM lists the packages of this environment
that users install, with versions and licences, and the libraries bundled in SimpleITK. It also
lists each model with its licence and checksum.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import uuid
import zipfile
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
# Extras that users install.
EXTRAS = ("", "train", "server", "dask", "sam")
_BUILD = "import sys; from setuptools import build_meta as b; print(b.build_wheel(sys.argv[1]))"
# Libraries bundled in a package but missing from its metadata, with their licences.
INSIDE = {"simpleitk": (("ITK", "Apache-2.0"), ("GDCM", "BSD-3-Clause"))}
MODELS = "pumit/models"


def commit_time(repository: Path) -> int:
    """Return SOURCE_DATE_EPOCH, or by default the last commit's time, seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or _git(repository, "log", "-1", "--format=%ct"))


def build_wheel(repository: Path, folder: Path) -> Path:
    """Build the wheel of the last commit, reproducibly.

    Raises:
        SystemExit: If it cannot be built.
    """
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(fileobj=io.BytesIO(_git(repository, "archive", "HEAD"))) as tar:
            tar.extractall(place, filter="data")
        for path in Path(place).rglob("*"):
            # The wheel stores file modes: make them independent of the umask.
            path.chmod(0o755 if path.is_dir() else 0o644)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit_time(repository))}
        run = subprocess.run(
            [sys.executable, "-c", _BUILD, str(folder.resolve())],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            umask=0o022 if os.name == "posix" else -1,
        )
    if run.returncode != 0:
        raise SystemExit(f"The wheel cannot be built:\n{run.stderr[-2000:]}")
    return folder / run.stdout.splitlines()[-1]


def bill_of_materials(wheel: Path, seconds: int) -> dict[str, Any]:
    """Make the SBOM of a wheel and its installed dependencies, as CycloneDX 1.6.

    Args:
        seconds: Timestamp, seconds since 1970.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(name))
        index = yaml.safe_load(archive.read(f"{MODELS}/index.yaml"))["models"]
        models = [_model(row, archive.read(f"{MODELS}/{row['file']}")) for row in index]
    own = _package(metadata)
    own["hashes"] = [{"alg": "SHA-256", "content": _sha256(wheel.read_bytes())}]
    packages, links = _installed(metadata)
    links[own["bom-ref"]] = [
        *links.pop(""),
        *(model["bom-ref"] for model in models),
    ]
    mark = uuid.uuid5(uuid.NAMESPACE_URL, own["purl"] + own["hashes"][0]["content"])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{mark}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).isoformat(),
            "component": own,
        },
        "components": [*packages, *models],
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(set(needed))} for ref, needed in sorted(links.items())
        ],
    }


def _installed(metadata: Message) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Return the installed packages that the wheel requires, and the requirements of each."""
    packages: dict[str, dict[str, Any]] = {}
    links: dict[str, list[str]] = {}
    pending: list[tuple[str, Message, tuple[str, ...]]] = [("", metadata, EXTRAS)]
    while pending:
        asking, message, extras = pending.pop()
        links.setdefault(asking, [])
        for line in message.get_all("Requires-Dist") or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in extras):
                continue
            name = canonicalize_name(requirement.name)
            try:
                found = distribution(name).metadata
            except PackageNotFoundError:
                continue  # for another platform, or not installed here
            if name not in packages:
                packages[name] = _package(found)
                wanted = ("", *requirement.extras)
                pending.append((packages[name]["bom-ref"], found, wanted))
            links[asking].append(packages[name]["bom-ref"])
    return [packages[name] for name in sorted(packages)], links


def _package(metadata: Message) -> dict[str, Any]:
    name = canonicalize_name(metadata["Name"])
    purl = f"pkg:pypi/{name}@{metadata['Version']}"
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": metadata["Name"],
        "version": metadata["Version"],
        "purl": purl,
        "licenses": _licences(metadata),
    }
    if name in INSIDE:
        found["components"] = [
            {
                "type": "library",
                "bom-ref": f"{purl}#{inner}",
                "name": inner,
                "licenses": [{"license": {"id": licence}}],
            }
            for inner, licence in INSIDE[name]
        ]
    return found


def _licences(metadata: Message) -> list[dict[str, Any]]:
    expression = metadata.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    classifiers = metadata.get_all("Classifier") or ()
    names = [
        c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License :: OSI Approved")
    ]
    text = (metadata.get("License") or "").strip().splitlines()
    names = names or [line for line in text[:1] if len(line) < 80]
    return [{"license": {"name": name}} for name in names]


def _model(row: dict[str, str], content: bytes) -> dict[str, Any]:
    digest = _sha256(content)
    if digest != row["sha256"]:
        raise SystemExit(f"The model {row['name']} is not the one of the index; build again.")
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model:{row['name']}",
        "name": row["name"],
        "description": row["description"],
        "licenses": [{"license": {"id": spdx_of(row["licence"])}}],
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def spdx_of(licence: str) -> str:
    """Return the SPDX identifier of a licence in the model index."""
    return re.sub(r"^CC (\S+) ", r"CC-\1-", licence)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _git(repository: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout


def main() -> int:
    """Write wheel, SBOM and checksums into a folder; return the exit status."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    folder.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel(ROOT, folder)
    parts = bill_of_materials(wheel, commit_time(ROOT))
    sbom = folder / f"{wheel.name.removesuffix('.whl')}.cdx.json"
    sbom.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
    lines = [f"{_sha256(path.read_bytes())}  {path.name}\n" for path in (wheel, sbom)]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    print("".join(lines), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
