"""The one place where huggingface_hub and its HTTP client are imported.

What is used of the library: its chain of tokens, its settings, its names for errors.  Its
calls are not: they share one HTTP client in the process, which has no timeout, repeat
requests for as long as a server asks, drop a commit that would change nothing and report
somebody else's, and send large files by a protocol that this tier cannot watch.
"""

import httpx2
from huggingface_hub import constants, errors, get_token

LIBRARY_ERRORS: tuple[type[Exception], ...] = tuple(
    sorted(
        {
            found
            for module in (errors, httpx2)
            for found in vars(module).values()
            if isinstance(found, type) and issubclass(found, Exception)
        },
        key=lambda found: found.__qualname__,
    )
)
"""Every exception that the library and its client name."""

PUBLIC_HUB = "https://huggingface.co"

__all__ = ["LIBRARY_ERRORS", "PUBLIC_HUB", "constants", "errors", "get_token", "httpx2"]
