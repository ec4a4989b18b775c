"""Bridges to what trainers use; each module is imported only by who uses it."""
