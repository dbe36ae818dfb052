"""Campaigns: their state on the screen, and the loop of opening, checking and accepting scans."""
