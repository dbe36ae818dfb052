"""Requests: authentication, limits, and the routes."""
