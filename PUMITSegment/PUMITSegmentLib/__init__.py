"""PUMIT Segment without its widgets: prompts become masks, and every step can be undone."""
