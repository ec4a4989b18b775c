"""Who may be believed: keys, signatures over log entries, and what a machine remembers of a log.

Nothing here knows what an entry says.  ``cryptography`` is imported on first use.
"""
