"""What the fault proxy can do, and what it says it did: the same words as the S3 emulator's."""

from tiers.testing.s3_emulator.faults import LONGEST_PAUSE, Action, Fault, Fired, Request, Schedule, When, hang_up

__all__ = ["LONGEST_PAUSE", "Action", "Fault", "Fired", "Request", "Schedule", "When", "hang_up"]
