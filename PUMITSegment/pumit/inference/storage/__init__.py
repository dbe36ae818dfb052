"""Scans and embeddings of sessions, within bounds of memory."""
