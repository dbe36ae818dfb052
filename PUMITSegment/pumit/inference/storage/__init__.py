"""Caches of scans and embeddings with bounded memory."""
