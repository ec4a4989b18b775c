"""Places where bytes can live, behind one protocol.

This package knows nothing of checkpoints, generations or runs.  Start with
:mod:`tiers.protocol`; :func:`tiers.opening.open_tier` turns a URL into a tier.
"""
