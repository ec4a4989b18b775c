"""Weights for others: prepared from a generation, scanned, authorized, published, verified.

A release is a separate product from restart state.  What lies here reads sealed or
committed generations and nothing else of the replicating side, and only the command
line imports it.  docs/release.md tells the ways of a release; docs/design.md its formats.
"""
