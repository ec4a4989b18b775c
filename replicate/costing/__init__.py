"""Where ``cost`` and the rest meet: what the protocol asks for, and what was counted, as something to price.

Nothing outside this package and the command line knows both sides.
"""
