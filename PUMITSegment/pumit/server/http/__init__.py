"""Requests: who may ask, what is let in, and the routes."""
