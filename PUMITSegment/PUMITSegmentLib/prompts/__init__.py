"""Prompts as markups nodes: placing, ordering, saving and restoring them."""
