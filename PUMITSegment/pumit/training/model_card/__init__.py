"""Model card of a run, written from the files in its folder."""
