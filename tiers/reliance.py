"""What was found rather than written, and is about to be relied upon.

A name that a process can see need not be durable: whoever made it may have been killed
before its fsync, and a power cut would take it.  Whoever is about to promise something
reads it inside :func:`relying`; a tier on a filesystem then makes what was read durable
when the block ends.  Readers that promise nothing stay outside: a disk that cannot flush
any more can still be restored from.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Settle = Callable[[], None]

_due: ContextVar[dict[object, Settle] | None] = ContextVar("relying", default=None)


@contextmanager
def relying() -> Iterator[None]:
    """Make durable, at the end of the block, what this thread opened in it; raises what that raises.

    A block that fails settles nothing.  One inside another joins it.
    """
    if _due.get() is not None:
        yield
        return
    due: dict[object, Settle] = {}
    token = _due.set(due)
    try:
        yield
    finally:
        _due.reset(token)
    for settle in due.values():
        settle()


def rely_on(what: object, settle: Settle) -> None:
    """Have ``settle`` called once for ``what``, where this thread relies on what it opens; for tiers."""
    due = _due.get()
    if due is not None:
        due.setdefault(what, settle)
