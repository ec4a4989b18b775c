"""Proving a copy by going on from it: restored into scratch, and one update made by the user's own function."""
