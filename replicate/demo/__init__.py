"""The demonstration: a real, small training run that is killed, lost and brought back bit for bit.

``training`` is the run itself, ``comparison`` says whether two states are the same,
``trainer`` is the process that is killed.  Needs torch, which this package's
name alone does not load.
"""
