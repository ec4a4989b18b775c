"""Putting a run right on a tier: a damaged log, copies that are hurt, commits that are lost; and taking a run over.

Deciding is apart from doing.  ``deciding`` says from values what is due and why, ``looking``
brings the values, and ``logmending``, ``adopting`` and ``healing`` carry it out, each entry
decided again for the slot that it gets.
"""
