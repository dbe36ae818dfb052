"""How many requests, files or sequences a test draws."""

import os

# Twenty times as many each night.
IS_FUZZING = "PUMIT_FUZZING" in os.environ


def draws(few: int) -> int:
    """Return `few`, or twenty times as many where PUMIT_FUZZING is set."""
    return 20 * few if IS_FUZZING else few
