"""The files that are the project: what git tracks, else what lies there."""

import subprocess
from pathlib import Path

_MADE = {"build", "dist", "runs", "demo-output", "node_modules"}


def tracked_files(repository: Path) -> list[Path]:
    """Existing files of the project, sorted; a copy without git counts as well.

    What a command left there, such as a mask or a recipe, is no file of the project.
    """
    command = ["git", "ls-files", "-z", "--cached"]
    try:
        listed = subprocess.run(command, cwd=repository, capture_output=True, check=True).stdout
        names = [name.decode() for name in listed.split(b"\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = []
    if not names:
        names = [
            path.relative_to(repository).as_posix()
            for path in repository.rglob("*")
            if not any(
                (part.startswith(".") and part != ".ci") or part in _MADE or "egg-info" in part
                for part in path.relative_to(repository).parts
            )
            and "__pycache__" not in path.parts
        ]
    return [repository / name for name in sorted(names) if (repository / name).is_file()]
