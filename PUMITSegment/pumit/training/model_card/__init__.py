"""The model card of a run, written from what is in its folder."""
