"""Figures, pictures and pages of reports."""
