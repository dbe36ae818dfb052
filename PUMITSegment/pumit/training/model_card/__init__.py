"""The model card of a run, written from what lies in its folder."""
