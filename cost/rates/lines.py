"""Where in a TOML file each key stands.

``tomllib`` gives values without positions, and ``tomlkit`` keeps the layout but no line
numbers either, so that neither can name the line of a fault.  This scanner can: it walks
text that ``tomllib`` has accepted already, and therefore only has to find where keys and
values begin, not to judge them.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping

from cost.rates.parts import Path

DEEPEST = 16
"""No field of a card lies this deep; what does is placed at the table around it."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)+")
_KEY = re.compile(r"""[ \t]*("(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*""")
_STRING = re.compile(
    r'''"""(?:\\.|[^\\])*?""""{0,2}|\'\'\'.*?\'\'\'\'{0,2}|"(?:\\.|[^"\\\n])*"|'[^'\n]*\'''',
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}\n#]+")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_SHORT = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}


class LineIndex:
    """The line, from 1, of every table, key and array item of a valid TOML text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._breaks = [match.end() for match in re.finditer("\n", text)]
        self._lines: dict[Path, int] = {}
        self._arrays: dict[Path, int] = {}
        self._document()

    @property
    def lines(self) -> Mapping[Path, int]:
        """Every path that was found."""
        return self._lines

    def find(self, path: Path) -> int:
        """Return the line of a path, or of the nearest table around it; 1 for the file itself."""
        for length in range(min(len(path), DEEPEST), 0, -1):
            line = self._lines.get(path[:length])
            if line is not None:
                return line
        return 1

    def _document(self) -> None:
        base: Path = ()
        while self._skip():
            if self._text.startswith("[", self._at):
                base = self._header()
            else:
                self._pair(base)

    def _skip(self) -> bool:
        """Skip blanks, line ends and comments; tell whether anything is left."""
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at < len(self._text)

    def _record(self, path: Path) -> None:
        if len(path) <= DEEPEST:
            self._lines.setdefault(path, bisect_right(self._breaks, self._at) + 1)

    def _header(self) -> Path:
        many = self._text.startswith("[[", self._at)
        start = self._at
        self._at += 2 if many else 1
        keys = self._keys()
        end, self._at = self._at, start
        for length in range(1, min(len(keys), DEEPEST)):
            self._record(self._resolved(keys[:length]))
        path = (*self._resolved(keys[:-1]), keys[-1])
        self._record(path)
        if many:
            self._arrays[path] = self._arrays.get(path, -1) + 1
        path = self._resolved(keys)
        self._record(path)
        self._at = end + (2 if many else 1)
        return path

    def _resolved(self, keys: tuple[str, ...]) -> Path:
        """Return the path of a header, inside the newest item of each array of tables it passes."""
        path: Path = ()
        for key in keys:
            path = (*path, key)
            if path in self._arrays:
                path = (*path, self._arrays[path])
        return path

    def _keys(self) -> tuple[str, ...]:
        keys: list[str] = []
        while match := _KEY.match(self._text, self._at):
            keys.append(_name(match[1]))
            self._at = match.end()
            if not self._text.startswith(".", self._at):
                break
            self._at += 1
        return tuple(keys)

    def _pair(self, base: Path) -> None:
        start = self._at
        keys = self._keys()
        end, self._at = self._at, start
        for length in range(1, min(len(keys), DEEPEST) + 1):
            self._record((*base, *keys[:length]))
        self._at = end + 1  # the equals sign
        self._value((*base, *keys))

    def _value(self, path: Path) -> None:
        self._skip()
        self._record(path)
        opening = self._text[self._at : self._at + 1]
        if opening == "[":
            self._items(path)
        elif opening == "{":
            self._inline(path)
        else:
            match = _STRING.match(self._text, self._at) or _BARE.match(self._text, self._at)
            self._at = match.end() if match else self._at + 1

    def _items(self, path: Path) -> None:
        self._at += 1
        index = 0
        while self._skip() and self._text[self._at] != "]":
            self._value((*path, index))
            index += 1
            self._comma()
        self._at += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        while self._skip() and self._text[self._at] != "}":
            self._pair(path)
            self._comma()
        self._at += 1

    def _comma(self) -> None:
        if self._skip() and self._text[self._at] == ",":
            self._at += 1


def _name(token: str) -> str:
    """Return the key that a bare or quoted token spells."""
    if token[0] == "'":
        return token[1:-1]
    return _ESCAPE.sub(_unescaped, token[1:-1]) if token[0] == '"' else token


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else _SHORT.get(match[3], match[3])
