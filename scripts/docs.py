"""Build the documentation site into `site/`, from a fresh clone, without a network but pip's.

Strict: a link that leads nowhere, a page that no menu names or a reference that does not resolve
ends the build. Arguments are passed on to `mkdocs build`, such as `-d FOLDER`.
"""

from __future__ import annotations

import subprocess
import sys

from environment import ROOT, prepare, python, variables


def main() -> int:
    """Build; returns 0 where every link led somewhere."""
    prepare("docs")
    # The theme's note on its own successor.
    environment = {**variables(), "NO_MKDOCS_2_WARNING": "1"}
    command = [str(python()), "-m", "mkdocs", "build", "--strict", *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
