"""From the names of a training's state dict to those that an architecture gives its tensors.

Training wraps modules, and each wrapper leaves a part in the name: ``_orig_mod`` (compiled),
``module`` (data parallel, averaged), ``_fsdp_wrapped_module``, ``_checkpoint_wrapped_module``.
They come at any depth and in any order, and are all taken away.

``module`` is also a word that an author may use.  So it is taken for a wrapper only

- where the architecture is known, if taking it away gives a name that the architecture has,
- otherwise where it stands beside another wrapper part, or where everything below its parent
  goes through it (a wrapper has no tensors of its own).

Elsewhere the description has to say, by a rename whose prefix has ``module`` in it.  A tensor
that is itself called ``module`` keeps its name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations, pairwise

from replicate.errors import ConfigInvalid
from replicate.release.description import Rename

MARKED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Parts that nothing but a wrapper is called."""
MODULE = "module"
WRAPPERS = MARKED | {MODULE}
NAMED = 5
"""How many names a message lists."""
_MOST_MODULES = 6
"""Parts ``module`` in one name, beyond which only the rule of all or nothing is tried."""


def listed(names: Iterable[str]) -> str:
    """Name a few of many, sorted."""
    every = sorted(names)
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more


def bare(name: str) -> str:
    """Take every wrapper part away, whatever it may be: what ``omit`` patterns are held against."""
    *parents, last = name.split(".")
    return ".".join([part for part in parents if part not in WRAPPERS] + [last])


def renamed(name: str, renames: Sequence[Rename]) -> str:
    """Apply the renames in order, each once."""
    for rename in renames:
        if name.startswith(rename.prefix):
            name = rename.to + name.removeprefix(rename.prefix)
    return name


def unwrapped(
    names: Sequence[str],
    *,
    renames: Sequence[Rename] = (),
    known: AbstractSet[str] | None = None,
    named: Callable[[str], str] = str,
) -> Mapping[str, str]:
    """Return the name without wrapper parts for each of ``names``.

    ``known`` are the architecture's names, which ``named`` (renames and the like) leads to.
    Raises ConfigInvalid where ``module`` could be either.
    """
    if known is not None:
        return {name: _as_known(name, named, known) for name in names}
    plain = {name: _without_marked(name) for name in names}
    forked = _forked_parents(plain.values())
    found = {name: _by_structure(form, forked, renames) for name, form in plain.items()}
    unclear = [name for name, form in found.items() if form is None]
    if unclear:
        raise ConfigInvalid(
            f"source: `module` in {listed(unclear)} may be a wrapper or part of the name: "
            "what is above it has other tensors as well",
            hint='say it in [[weights.rename]]: prefix = "….module.", and to = "….", or to = the same to keep it',
        )
    return {name: form for name, form in found.items() if form is not None}


def _as_known(name: str, named: Callable[[str], str], known: AbstractSet[str]) -> str:
    """Prefer what the architecture has, the most unwrapped form first."""
    forms = _forms(_without(name, MARKED))
    return next((form for form in forms if named(form) in known), bare(name))


def _forms(name: str) -> Iterator[str]:
    """Yield the name with all parts ``module`` taken away, then with one kept, and so on."""
    parts = name.split(".")
    places = [index for index, part in enumerate(parts[:-1]) if part == MODULE]
    counts = range(len(places) + 1) if len(places) <= _MOST_MODULES else (0, len(places))
    for count in counts:
        for kept in combinations(places, count):
            yield ".".join(part for index, part in enumerate(parts) if index not in places or index in kept)


def _without(name: str, wrappers: AbstractSet[str]) -> str:
    *parents, last = name.split(".")
    return ".".join([part for part in parents if part not in wrappers] + [last])


def _without_marked(name: str) -> str:
    """Take away the parts that only wrappers have, and each ``module`` in a row with one."""
    *parents, last = name.split(".")
    gone = {index for index, part in enumerate(parents) if part in MARKED}
    neighbours = list(pairwise(range(len(parents))))
    for this, other in [*neighbours, *((right, left) for left, right in reversed(neighbours))]:
        if this in gone and parents[other] == MODULE:
            gone.add(other)
    return ".".join([part for index, part in enumerate(parents) if index not in gone] + [last])


def _forked_parents(names: Iterable[str]) -> frozenset[str]:
    """Return the prefixes that have something below ``module`` and something beside it."""
    through: set[str] = set()
    past: set[str] = set()
    for name in names:
        parts = name.split(".")
        for index, part in enumerate(parts):
            below = part == MODULE and index < len(parts) - 1
            (through if below else past).add(".".join(parts[:index]))
    return frozenset(through & past)


def _by_structure(name: str, forked: frozenset[str], renames: Sequence[Rename]) -> str | None:
    """Take ``module`` away where it can only be a wrapper; None where it could be either."""
    said = [rename.prefix for rename in renames if MODULE in rename.prefix.split(".")]
    chosen = next((form for form in _forms(name) for prefix in said if form.startswith(prefix)), None)
    if chosen is not None:
        return chosen
    parts = name.split(".")
    places = [index for index, part in enumerate(parts[:-1]) if part == MODULE]
    return None if any(".".join(parts[:index]) in forked for index in places) else next(_forms(name))
