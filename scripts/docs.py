"""Build the documentation site into `site/`, from a fresh clone; only pip uses the network.

The build is strict: it fails on a broken link, a page in no menu or an unresolved reference.
Arguments are passed to `mkdocs build`, such as `-d FOLDER`.
"""

from __future__ import annotations

import subprocess
import sys

from environment import ROOT, prepare, python, variables


def main() -> int:
    """Build the site and return the exit status, 0 for success."""
    prepare("docs")
    # Silences the theme's notice about MkDocs 2.
    environment = {**variables(), "NO_MKDOCS_2_WARNING": "1"}
    command = [str(python()), "-m", "mkdocs", "build", "--strict", *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
