"""`python -m pumit` is `pumit`."""

import sys

from pumit.cli.main import main

sys.exit(main())
