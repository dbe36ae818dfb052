"""Set up the environment in a fresh clone, then run `pumit demo`.

Arguments are passed to `pumit demo`: `python3 scripts/demo.py --help`.
"""

from __future__ import annotations

import subprocess
import sys

from environment import prepare, python, variables


def main() -> int:
    """Run the demonstration and return its exit status."""
    prepare("demo")
    command = [str(python()), "-m", "pumit", "demo", *sys.argv[1:]]
    return subprocess.run(command, env=variables(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
