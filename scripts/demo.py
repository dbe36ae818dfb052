"""From a fresh clone to a segmented scan: sets everything up, then runs `pumit demo`.

Arguments are passed on: `python3 scripts/demo.py --help`.
"""

from __future__ import annotations

import subprocess
import sys

from environment import prepare, python, variables


def main() -> int:
    """Run the demonstration; returns its exit status."""
    prepare("demo")
    command = [str(python()), "-m", "pumit", "demo", *sys.argv[1:]]
    return subprocess.run(command, env=variables(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
