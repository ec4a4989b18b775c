"""In the child: the tokenizer of a release as users load it, its ids against the model, its chat template."""

from collections.abc import Iterator
from typing import Any

from replicate.release.verifying.building import library
from replicate.release.verifying.checks import Check, judged, listed, words
from replicate.release.verifying.sandbox import Answer

TOKENIZER, CHAT = "tokenizer", "chat-template"
TEXTS = (
    "Hello, world! 1234567890",
    "  two  spaces\n\tand a tab\r\n",
    "na\u00efve caf\u00e9 \u2014 \u03a9\u03bc\u03ad\u03b3\u03b1 \u4f60\u597d \u0645\u0631\u062d\u0628\u0627 \U0001f642",
    "def f(x):\n    return {'a': [x, None]}  # <b>&amp;</b>",
)
_ASCII = TEXTS[0]
CONVERSATION = (
    {"role": "user", "content": "How many legs has a beetle?"},
    {"role": "assistant", "content": "Six of them."},
    {"role": "user", "content": "And a spider?"},
)
_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


def run(arguments: dict[str, Any]) -> Answer:
    """Do both checks."""
    auto = library("transformers").AutoTokenizer
    try:
        tokenizer = auto.from_pretrained(arguments["tree"], local_files_only=True, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - whatever a broken tokenizer provokes is the finding
        fault = f"AutoTokenizer cannot load it: {words(error)}"
        return Answer(checks=(judged(TOKENIZER, [fault], ""), judged(CHAT, [fault], "")))
    faults = [*_vocabulary(tokenizer, arguments), *_round_trips(tokenizer), *_special(tokenizer, arguments)]
    seen = f"{len(tokenizer)} tokens; {len(TEXTS)} texts come back; special ids agree"
    rows = f", below the {arguments['rows']} rows of the embedding" if arguments["rows"] else ""
    return Answer(checks=(judged(TOKENIZER, faults, seen + rows), _chat(tokenizer, declared=arguments["chat"])))


def _vocabulary(tokenizer: Any, arguments: dict[str, Any]) -> Iterator[str]:
    rows = arguments["rows"]
    if not rows:
        return
    outside = {token: number for token, number in tokenizer.get_vocab().items() if not 0 <= number < rows}
    if outside:
        some = listed(f"{token!r} is {number}" for token, number in outside.items())
        yield f"token ids outside of the {rows} rows of the embedding ({arguments['rows_from']}): {some}"


def _round_trips(tokenizer: Any) -> Iterator[str]:
    """Expect each text back; a tokenizer that changes text on purpose has to be stable at least."""
    for text in TEXTS:
        ids = _ids(tokenizer, text)
        back = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if back != text and _ids(tokenizer, back) != ids:
            yield f"{text!r} comes back as {back!r}, and that is not stable"
    unknown = tokenizer.unk_token_id
    ids = _ids(tokenizer, _ASCII)
    if not ids or (unknown is not None and ids.count(unknown) * 2 > len(ids)):
        yield f"{_ASCII!r} becomes {ids[:8]}, mostly unknown"


def _ids(tokenizer: Any, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return found


def _special(tokenizer: Any, arguments: dict[str, Any]) -> Iterator[str]:
    for token, number in zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True):
        if _ids(tokenizer, token) != [number]:
            yield f"special token {token!r} is encoded as {_ids(tokenizer, token)[:8]}, its id is {number}"
    for key in _SPECIAL:
        own = getattr(tokenizer, key)
        for file in ("config.json", "generation_config.json"):
            said = _numbers(arguments["configs"].get(file, {}).get(key))
            yield from _disagreement(file, key, said, own, arguments["rows"])


def _disagreement(file: str, key: str, said: list[int], own: int | None, rows: int | None) -> Iterator[str]:
    outside = [number for number in said if number < 0 or (rows and number >= rows)]
    if outside:
        yield f"{file}: {key} {outside[0]} is outside of the {rows} rows of the embedding"
    elif said and own is not None and own not in said:
        yield f"{file}: {key} is {said[0] if len(said) == 1 else said}, the tokenizer's is {own}"


def _numbers(value: Any) -> list[int]:
    several = value if isinstance(value, list) else [value]
    return [number for number in several if type(number) is int]


def _chat(tokenizer: Any, *, declared: bool) -> Check:
    if not tokenizer.chat_template:
        faults = ["the release has a chat template, and the tokenizer loads none"] if declared else []
        return judged(CHAT, faults, "the release has no chat template: nothing to render")
    try:
        text = tokenizer.apply_chat_template(list(CONVERSATION), tokenize=False, add_generation_prompt=True)
    except Exception as error:  # noqa: BLE001 - whatever a template provokes is the finding
        return judged(CHAT, [f"it does not render: {words(error)}"], "")
    absent = [turn["content"] for turn in CONVERSATION if turn["content"] not in text]
    at = [text.find(turn["content"]) for turn in CONVERSATION]
    faults = [f"the rendered conversation lacks {content!r}" for content in absent]
    if not faults and at != sorted(at):
        faults = ["the rendered conversation has its turns in another order"]
    return judged(CHAT, faults, f"renders {len(CONVERSATION)} turns in transformers' sandbox, {len(text)} characters")
