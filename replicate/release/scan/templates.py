"""Chat templates: there where the description promises a chat model, and ones that compile.

They are parsed and compiled in a sandboxed environment and never rendered: a template can run
for ever.  What it renders is looked at by the verifier, in a process of its own.
"""

import re
from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from replicate.release.description import ReleaseDescription
from replicate.release.findings import Rule
from replicate.release.scan.fragments import Node, Origin, Piece
from replicate.release.scan.hits import Hit
from replicate.release.scan.jsontext import Pairs

_CHAT_NAME = re.compile(r"(?:^|[-_. ])(?:instruct|chat|it|conversational)(?:$|[-_. ])", re.IGNORECASE)
_CHAT_WORDS = frozenset({"conversational", "chat", "instruct", "instruction-tuned"})
MAX_TEMPLATE = 1024 * 1024
"""Characters; the greatest templates of public models have about 20,000."""
_OUTSIDE = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


class _Generation(Extension):
    """The block ``generation`` that transformers adds: it marks what the assistant said."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Take the block for its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> Environment:
    return ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], autoescape=False
    )


def wants_template(description: ReleaseDescription) -> bool:
    """Whether the description names a model that is talked to."""
    card = description.card
    words = {card.pipeline_tag.lower(), *(tag.lower() for tag in card.tags)}
    return bool(words & _CHAT_WORDS) or bool(_CHAT_NAME.search(description.name) or _CHAT_NAME.search(card.title))


def templates_in(document: Any) -> list[tuple[str, str]]:
    """Return (place, template) of a tokenizer's or a processor's configuration; named ones are a list."""
    value = document.get("chat_template") if isinstance(document, Pairs) else None
    if isinstance(value, str):
        return [("chat_template", value)]
    named = value if isinstance(value, list) and not isinstance(value, Pairs) else []
    texts = [(number, one.get("template")) for number, one in enumerate(named) if isinstance(one, Pairs)]
    return [(f"chat_template/{number}/template", text) for number, text in texts if isinstance(text, str)]


def find_in_template(path: str, place: str, text: str) -> Iterator[Hit]:
    """Compile a template; say why it cannot be, and what it would load."""
    if not text.strip():
        yield Hit(rule=Rule.CHAT_TEMPLATE, path=path, place=place, detail="is empty")
        return
    if len(text) > MAX_TEMPLATE:
        detail = f"has {len(text)} characters, more than {MAX_TEMPLATE}"
        yield Hit(rule=Rule.CHAT_TEMPLATE, path=path, place=place, detail=detail)
        return
    try:
        environment = _environment()
        tree = environment.parse(text)
        environment.compile(text)
    except TemplateSyntaxError as error:
        detail = f"does not compile: line {error.lineno}: {type(error).__name__}"
        yield Hit(rule=Rule.CHAT_TEMPLATE, path=path, place=place, detail=detail)
        return
    except (RecursionError, SyntaxError, ValueError, MemoryError) as error:
        detail = f"does not compile: {type(error).__name__}"
        yield Hit(rule=Rule.CHAT_TEMPLATE, path=path, place=place, detail=detail)
        return
    for node in tree.find_all(_OUTSIDE):
        detail = f"line {node.lineno}: loads another template ({type(node).__name__.lower()})"
        yield Hit(rule=Rule.POINTS_OUTSIDE, path=path, place=place, detail=detail)


def constants(node: Node | None, label: str, text: str) -> Iterator[Piece]:
    """Yield the strings that a template spells with escapes, as they are after reading."""
    if "\\" not in text or len(text) > MAX_TEMPLATE:
        return
    try:
        tree = _environment().parse(text)
    except (TemplateSyntaxError, RecursionError, SyntaxError, ValueError):
        return  # find_in_template says so
    for constant in tree.find_all(nodes.Const):
        if isinstance(constant.value, str):
            yield Piece(Origin.TEMPLATE, node, f"{label} line {constant.lineno}".lstrip(), constant.value)
