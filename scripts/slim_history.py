"""Copy the repository without replaced weights and pictures in its history.

    pip install git-filter-repo
    python3 scripts/slim_history.py ../slim

Slicer's Extensions Index clones whole histories and accepts at most 100 MB. The copy keeps every
commit; the hash of a commit changes if a file was removed from it or from an ancestor, and pages
that name commits are updated. The repository itself is not changed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Binary files, which git's delta compression does not shrink.
REPLACED = (".safetensors", ".png", ".gif")
PAGES = (".md", ".yaml", ".cff")
MESSAGE = "DOC: Name commits as they are called in the slim history"


def slim(source: Path, target: Path) -> int:
    """Make the copy.

    Args:
        source: The repository, with its history.
        target: A folder that does not exist yet.

    Returns:
        Size of the copy with its `.git`, bytes.
    """
    # 1. Clone without shared objects.
    _git("clone", "--quiet", "--no-local", "--single-branch", str(source), str(target))
    # 2. List the blobs that the newest commit no longer has.
    kept = set(_git("ls-tree", "-r", "--format=%(objectname)", "HEAD", folder=target).split())
    lines = _git("rev-list", "--objects", "HEAD", folder=target).splitlines()
    names = dict(line.split(" ", 1) for line in lines if " " in line)
    gone = [blob for blob, name in names.items() if name.endswith(REPLACED) and blob not in kept]
    listed = target / ".git" / "replaced.txt"
    listed.write_text("".join(f"{blob}\n" for blob in gone))
    # 3. Remove them from the history.
    command = [sys.executable, "-m", "git_filter_repo", "--quiet", "--force"]
    command += ["--prune-empty", "never"]
    command += ["--strip-blobs-with-ids", str(listed)]
    subprocess.run(command, cwd=target, check=True)
    # 4. Update the pages that name commits.
    folder = target / ".git" / "filter-repo"
    pairs = [line.split() for line in (folder / "commit-map").read_text().splitlines()[1:]]
    if _rename(target, dict(pairs)):
        _git("commit", "--quiet", "--all", "-m", MESSAGE, folder=target)
    return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())


def _rename(target: Path, commits: dict[str, str]) -> bool:
    """Replace commit hashes in all pages; return whether anything changed."""
    short = {old[:7]: new for old, new in commits.items()}
    is_changed = False
    for file in _git("ls-files", folder=target).splitlines():
        if not file.endswith(PAGES):
            continue
        page = target / file
        text = page.read_bytes().decode()
        new = re.sub(
            r"\b[0-9a-f]{7,40}\b",
            lambda m: short.get(m[0][:7], m[0])[: len(m[0])],
            text,
        )
        if new != text:
            page.write_bytes(new.encode())
            is_changed = True
    return is_changed


def _git(*arguments: str, folder: Path = ROOT) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main() -> int:
    """Make the copy, print its size and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the copy is made")
    args = parser.parse_args()
    print(f"{args.folder}: {slim(ROOT, args.folder.resolve()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
