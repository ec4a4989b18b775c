"""What a pickle says, without doing any of it.

A pickle is a program for a small machine.  This is that machine with everything taken
out that acts: a name is kept as a name and never looked up, a call is written down and
never made, a dictionary stays a list of pairs, since hashing nested keys can take for
ever.  What is left costs memory in proportion to the bytes read.
"""

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from replicate.errors import IntegrityFailure

MAX_BYTES = 64 * 1024 * 1024
MAX_STEPS = 8_000_000
"""Each takes a microsecond and some hundred bytes."""


MAX_FIELDS = 100


class BadPickle(IntegrityFailure):
    """A pickle that is damaged, or that does what the format it should have never does."""


class TooLarge(IntegrityFailure):
    """More than is read; it says nothing about what is in it."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name that loading would look up: a class or a function."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Made:
    """What loading would make by calling ``what``; ``state`` is what it would be given afterwards."""

    what: Name
    arguments: Any
    state: Any = None

    def fields(self) -> dict[str, Any]:
        """Return the state as fields by name, without those that are no text; raises ValueError for too many."""
        pairs = self.state.pairs if isinstance(self.state, Pairs) else []
        if len(pairs) > MAX_FIELDS:
            raise ValueError(f"an object has {len(pairs)} fields")
        return {key: value for key, value in pairs if isinstance(key, str)}


@dataclass(slots=True, eq=False)
class Pairs:
    """A dictionary, as the pairs that were put into it."""

    pairs: list[tuple[Any, Any]]


class _Mark:
    """Where a run of values on the stack begins."""


def read_pickle(data: bytes, *, allowed: frozenset[str], what: str) -> Any:
    """Return what a pickle would make, inertly.

    ``allowed`` are the names that may stand in it, as ``module.name``.  Raises BadPickle
    that names another one, or says what is damaged; TooLarge where it is not read.
    """
    if len(data) > MAX_BYTES:
        raise TooLarge(f"{what} has {len(data)} bytes, of which at most {MAX_BYTES} are read")
    machine = _Machine(allowed)
    try:
        for step, (code, argument, _) in enumerate(pickletools.genops(data)):
            if step >= MAX_STEPS:
                raise TooLarge(f"{what} takes more than {MAX_STEPS} steps to read")
            machine.step(code.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, Warning) as error:
        raise BadPickle(f"{what} is damaged: {error!s:.200}") from error
    except _Refused as refused:
        raise BadPickle(f"{what} {refused}") from refused
    return machine.result


class _Refused(Exception):
    """What a pickle may not do; the words complete a sentence about it."""


class _Machine:
    def __init__(self, allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self.result: Any = None

    def step(self, name: str, argument: Any) -> None:
        """Take one step."""
        if name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            self._stack.append(argument)
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in ("PROTO", "FRAME"):
            raise _Refused(f"takes the step {name}, which nothing of its kind does")

    def _pop(self) -> Any:
        value = self._stack.pop()
        if isinstance(value, _Mark):
            raise ValueError("a mark stands where a value is due")  # noqa: TRY004 - of the pickle, not of a caller
        return value

    def _since_mark(self) -> list[Any]:
        values: list[Any] = []
        while not isinstance(value := self._stack.pop(), _Mark):
            values.append(value)
        return values[::-1]

    def mark(self, _: Any) -> None:
        self._stack.append(_Mark())

    def empty_list(self, _: Any) -> None:
        self._stack.append([])

    def empty_pairs(self, _: Any) -> None:
        self._stack.append(Pairs([]))

    def tuple_of_marked(self, _: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def tuple_of(self, count: int) -> None:
        values = [self._pop() for _ in range(count)]
        self._stack.append(tuple(values[::-1]))

    def append(self, _: Any) -> None:
        self._extend([self._pop()])

    def extend(self, _: Any) -> None:
        self._extend(self._since_mark())

    def _extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise ValueError("something is added to what is no list")  # noqa: TRY004 - as above
        target.extend(values)

    def set_item(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._set([(key, value)])

    def set_items(self, _: Any) -> None:
        values = self._since_mark()
        self._set(list(zip(values[::2], values[1::2], strict=True)))

    def _set(self, pairs: list[tuple[Any, Any]]) -> None:
        target = self._stack[-1]
        if isinstance(target, Made):
            if target.state is None:
                target.state = Pairs([])
            target = target.state
        if not isinstance(target, Pairs):
            raise ValueError("an item is set in what is no dictionary")  # noqa: TRY004 - as above
        target.pairs.extend(pairs)

    def remember(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def remember_as(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def recall(self, index: int) -> None:
        self._stack.append(self._memo[index])

    def pop(self, _: Any) -> None:
        self._stack.pop()

    def name(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(self._allow(module, name))

    def stacked_name(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        self._stack.append(self._allow(module, name))

    def _allow(self, module: Any, name: Any) -> Name:
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("a name is no text")  # noqa: TRY004 - as above
        found = Name(module, name)
        if str(found) not in self._allowed:
            raise _Refused(f"would use {str(found)[:200]!r} when it is loaded, which nothing of its kind does")
        return found

    def call(self, _: Any) -> None:
        arguments, what = self._pop(), self._pop()
        if not isinstance(what, Name):
            raise ValueError("something is called that is no name")  # noqa: TRY004 - as above
        self._stack.append(Made(what, arguments))

    def build(self, _: Any) -> None:
        state, made = self._pop(), self._stack[-1]
        if not isinstance(made, Made):
            raise ValueError("a state is given to what was not made")  # noqa: TRY004 - as above
        made.state = state

    def stop(self, _: Any) -> None:
        self.result = self._pop()


_CONSTANTS: Mapping[str, Any] = MappingProxyType({"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()})
_VALUES = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
    | {"SHORT_BINBYTES", "BINBYTES"}
)
_STEPS: Mapping[str, Callable[[_Machine, Any], None]] = MappingProxyType(
    {
        "MARK": _Machine.mark,
        "EMPTY_LIST": _Machine.empty_list,
        "EMPTY_DICT": _Machine.empty_pairs,
        "TUPLE": _Machine.tuple_of_marked,
        "TUPLE1": lambda machine, _: machine.tuple_of(1),
        "TUPLE2": lambda machine, _: machine.tuple_of(2),
        "TUPLE3": lambda machine, _: machine.tuple_of(3),
        "APPEND": _Machine.append,
        "APPENDS": _Machine.extend,
        "SETITEM": _Machine.set_item,
        "SETITEMS": _Machine.set_items,
        "MEMOIZE": _Machine.remember,
        "BINPUT": _Machine.remember_as,
        "LONG_BINPUT": _Machine.remember_as,
        "BINGET": _Machine.recall,
        "LONG_BINGET": _Machine.recall,
        "POP": _Machine.pop,
        "GLOBAL": _Machine.name,
        "STACK_GLOBAL": _Machine.stacked_name,
        "REDUCE": _Machine.call,
        "NEWOBJ": _Machine.call,
        "BUILD": _Machine.build,
        "STOP": _Machine.stop,
    }
)
