"""Proving a release: its structure, its tensors against the source, loading it, running it."""
