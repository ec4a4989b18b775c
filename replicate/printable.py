"""Text for a terminal that may hold words from elsewhere: nothing in it moves the cursor, changes colours or hides.

Names, reasons and messages can come out of a bucket or from a server.  What a terminal would obey
instead of show is written as an escape; so are characters that turn the direction of reading.
"""

import re

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    """Return the text with all but line ends and tabs escaped that is not shown as it is."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape", "backslashreplace").decode(), text)


def one_line(text: str) -> str:
    """Return it in one line."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
