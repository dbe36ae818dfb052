"""`python -m pumit` is `pumit`."""

import sys

from pumit.cli.main import program

sys.exit(program())
