"""Labelled data sets: case discovery, class matching, checks, split and cache."""
