"""Formats of checkpoint files, read as far as their structure goes: nothing is executed, and all is bounded."""
