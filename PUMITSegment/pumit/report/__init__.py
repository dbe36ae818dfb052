"""Figures, pictures and pages for people."""
