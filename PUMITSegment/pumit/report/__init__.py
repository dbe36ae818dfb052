"""Figures, pictures and pages that people look at."""
