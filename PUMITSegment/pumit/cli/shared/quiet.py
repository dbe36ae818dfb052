"""The variable by which `--quiet` reaches everything that would show progress."""

QUIET_VARIABLE = "PUMIT_QUIET"
