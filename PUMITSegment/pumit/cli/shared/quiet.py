"""Environment variable that passes `--quiet` to all code that shows progress."""

QUIET_VARIABLE = "PUMIT_QUIET"
