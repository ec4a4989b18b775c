"""TOML that people write, read so that whatever is in it is either a document or a TOMLDecodeError."""

import tomllib
from typing import Any

MAX_BYTES = 4 * 1024 * 1024


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a document; raises TOMLDecodeError, also where the standard parser would raise something else.

    That is for numbers of thousands of digits, and for nesting that exhausts the stack.
    """
    if len(text) > MAX_BYTES:
        raise tomllib.TOMLDecodeError(f"it has more than {MAX_BYTES} characters")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:
        raise tomllib.TOMLDecodeError("a number in it has too many digits") from error
    except RecursionError as error:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from error
