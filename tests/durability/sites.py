"""Where fsync is called, by scenario and the end of the path that it is called for."""

import re
from collections.abc import Sequence

from support.strace_log import Mark, Operation, Sync

# Without one of these some state after a promise breaks it: the simulator notices, and so does the auditor.
NEEDED = (
    ("sealing", r"/\.incoming-[^/]+/tree/files/.+\.bin"),
    ("sealing", r"/\.incoming-[^/]+/tree/files(/optim)?"),
    ("sealing", r"/\.incoming-[^/]+/tree/generation\.json"),
    ("sealing", r"/\.(incoming|staged)-[^/]+/tree"),
    ("sealing", r"/\.tmp-[^/]+-lineage\.json"),
    ("sealing", r"/generations"),
    ("sealing", r"/runs"),
    ("replicate-rename", r"/\.ckptier/tmp/[^/]+"),
    ("replicate-rename", r"/volume/.*/files(/optim)?"),
    ("replicate-rename", r"/volume/llm-7b/log"),
    ("replicate-direct", r"/volume/llm-7b/.*\.bin"),
    ("replicate-direct", r"/\.ckptier/done/llm-7b/log"),
    ("verbs-rename", r"/uploads/[^/]+/data"),
    ("verbs-rename", r"/uploads/[^/]+"),
    ("verbs-direct", r"/uploads/[^/]+/[^/]*\.data"),
    ("restoring", r"/\.restoring-[^/]+/(files/)?.+\.bin"),
    ("restoring", r"/\.restoring-[^/]+(/files|/optim)*"),
    ("restoring", r"/restoring"),
    ("copying", r"/other/\.ckptier/tmp/[^/]+"),
    ("pruning", r"/volume/llm-7b/log"),
)

# These keep an order that no single state after a promise shows, or lie behind another one: the auditor notices.
ORDERED = (
    ("sealing", r"/\.incoming-[^/]+/staged\.json"),
    ("sealing", r"/\.incoming-[^/]+"),
    ("sealing", r"/\.tmp-[^/]+"),
    ("sealing", r"/evidence"),
    ("sealing", r"/runs/llm-7b"),
    ("replicate-rename", r"/volume/llm-7b/generations"),
    ("replicate-rename", r"/volume/llm-7b"),
    ("replicate-rename", r"/volume"),
    ("replicate-rename", r"/volume/\.ckptier"),
    ("replicate-rename", r"/tracker\.sqlite-wal"),
    ("replicate-rename", r"/runs/llm-7b"),
    ("replicate-direct", r"/volume/llm-7b/log/.*\.json"),
    ("replicate-direct", r"/\.ckptier/done/llm-7b/log/.*\.json"),
    ("replicate-direct", r"/\.ckptier/done"),
    ("verbs-rename", r"/uploads"),
    ("verbs-rename", r"/volume/a"),
    ("verbs-direct", r"/volume/log/1"),
    ("restoring", r"/\.restoring-[^/]+/generation\.json"),
    ("restoring", r"/generations"),
    ("restoring", r"/\.tmp-[^/]+-lineage\.json"),
    ("mending", r"/\.restoring-[^/]+/files/.+\.bin"),
    ("copying", r"/other/llm-7b/log"),
    ("pruning", r"/volume/\.ckptier/tmp/[^/]+"),
    ("pruning", r"/volume/llm-7b/generations/[^/]+"),
)


def without(operations: Sequence[Operation], pattern: str) -> list[Operation]:
    """Return a record in which one site never called fsync, after the scenario was prepared."""
    settled = [number for number, one in enumerate(operations) if isinstance(one, Mark) and "settled" in one.text]
    start = settled[-1] if settled else 0
    site = re.compile(f".*{pattern}")
    kept = [one for one in operations[start:] if not (isinstance(one, Sync) and site.fullmatch(one.path))]
    assert len(kept) < len(operations) - start, f"nothing is fsynced at {pattern}"
    return [*operations[:start], *kept]
