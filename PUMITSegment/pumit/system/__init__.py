"""The machine: its memory and processors, locks, and files that are written whole or not at all."""
