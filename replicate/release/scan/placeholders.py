"""Text that somebody meant to replace."""

import re
from collections.abc import Iterator

_WORDS = (
    (re.compile(r"\[?more information needed\]?", re.IGNORECASE), "more information needed"),
    (re.compile(r"\[optional\]", re.IGNORECASE), "an optional field that was left"),
    (re.compile(r"(?<![A-Za-z0-9])(?:TO" r"DO|FIX" r"ME|TBD|TBA|XX" r"X+)(?![A-Za-z0-9])"), "a note to do it later"),
    (re.compile(r"lorem ipsum", re.IGNORECASE), "filler text"),
    (
        re.compile(r"(?<![A-Za-z0-9])your[-_][a-z][\w-]{0,40}(?![A-Za-z0-9])", re.IGNORECASE),
        "a name to be replaced",
    ),
    (re.compile(r"\{\{[^{}\n]{0,80}\}\}"), "a field of a template"),
    (re.compile(r"\(?insert [\w ]{1,40} here\)?", re.IGNORECASE), "something to be inserted"),
)
_ANGLED = re.compile(r"(?<![\w<])<([A-Za-z][A-Za-z0-9 _./-]{0,60})>")
_HTML = frozenset(
    {
        "a", "abbr", "b", "blockquote", "br", "br/", "center", "code", "dd", "details", "div", "dl", "dt", "em",
        "font", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "hr/", "i", "img", "kbd", "li", "ol", "p", "picture",
        "pre", "q", "s", "samp", "small", "source", "span", "strong", "sub", "summary", "sup", "table", "tbody",
        "td", "tfoot", "th", "thead", "tr", "tt", "u", "ul", "video", "audio",
    }
)  # fmt: skip
_TOKENS = frozenset(
    {
        "pad", "unk", "mask", "cls", "sep", "bos", "eos", "think", "answer", "image", "tool_call", "tool_response",
        "start_of_turn", "end_of_turn",
    }
)  # fmt: skip
"""Special tokens of tokenizers, which cards quote."""


def placeholders(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, what stands there) for each placeholder."""
    for number, line in enumerate(text.split("\n"), 1):
        for expression, what in _WORDS:
            if found := expression.search(line):
                yield number, f"{what} is left: {found[0]!r}"
        for angled in _ANGLED.finditer(line):
            name = angled[1].strip().lower()
            if name.partition(" ")[0] not in _HTML and name not in _TOKENS:
                yield number, "a name in angle brackets is left to be replaced"
