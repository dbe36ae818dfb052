"""Campaigns in the panel: their state, and the loop of opening, checking and accepting scans."""
