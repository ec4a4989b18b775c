"""Results as text for people: what matters first, at most 80 columns where ids allow.

Every function turns a report into a string and decides nothing.  A module is imported by the commands that need it.
"""
