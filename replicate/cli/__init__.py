"""The command line: parse, one call, render.  No logic lives here."""
