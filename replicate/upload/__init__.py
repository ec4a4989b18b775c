"""Sending one generation's files to one tier, and proving that they arrived.

Every object ends up verified by the strongest means that the tier offers, or the
upload fails.  What was accepted is journalled as it happens, so that a killed process
sends again at most what was in flight.

One pool of threads works off one pipeline: ``lanes`` decides what goes next, ``pipeline``
runs it, ``sending`` is what becomes of one object from its first look to its proof.
"""

from replicate.upload.sending import RESENDS
from replicate.upload.shared import Draining, Progress
from replicate.upload.uploader import Uploader

__all__ = ["RESENDS", "Draining", "Progress", "Uploader"]
