"""Tokens and keys: found wherever a text can hold one, never repeated, and not seen where there are none."""

import base64
import hashlib
import json
import string
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from release.scan_stage import Stage, tokenizer_json

from replicate.release.documents import encode
from replicate.release.findings import Rule, ScanReport

BASE62 = string.ascii_letters + string.digits
HF = "hf" + "_" + "QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi"
"""Written in two parts: no scanner of this repository should take it for a token of somebody."""

Planter = Callable[[Stage, str], str]
"""Plants a text in a stage and returns the path of the file that then holds it."""


def edited(path: str, change: Callable[[dict[str, object], str], None]) -> Planter:
    def plant(stage: Stage, text: str) -> str:
        document = json.loads(stage.files[path])
        change(document, text)
        stage.files[path] = json.dumps(document).encode()
        return path

    return plant


def appended(path: str, form: str) -> Planter:
    def plant(stage: Stage, text: str) -> str:
        stage.files[path] = stage.files.get(path, b"") + form.format(text).encode()
        return path

    return plant


def in_card(form: str) -> Planter:
    def plant(stage: Stage, text: str) -> str:
        stage.write()
        stage.files["README.md"] = stage.card().replace(
            b"## Limitations", form.format(text).encode() + b"\n\n## Limitations"
        )
        return "README.md"

    return plant


def in_front_matter(stage: Stage, text: str) -> str:
    stage.write()
    stage.files["README.md"] = stage.card().replace(b"---\n", f"---\nnote: {text}\n".encode(), 1)
    return "README.md"


def escaped_in_front_matter(stage: Stage, text: str) -> str:
    escaped = "".join(f"\\x{ord(letter):02x}" for letter in text)
    return in_front_matter(stage, f'"{escaped}"')


def escaped_in_json(stage: Stage, text: str) -> str:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in text)
    stage.files["config.json"] = stage.files["config.json"].replace(b"{", f'{{"note": "{escaped}",'.encode(), 1)
    return "config.json"


def twice_in_json(stage: Stage, text: str) -> str:
    both = f'{{"note": "{text}", "note": "",'.encode()
    stage.files["config.json"] = stage.files["config.json"].replace(b"{", both, 1)
    return "config.json"


def in_broken_json(stage: Stage, text: str) -> str:
    stage.files["added_tokens.json"] = f'{{"note": "{text}"'.encode()
    return "added_tokens.json"


def escaped_in_template(stage: Stage, text: str) -> str:
    escaped = "".join(f"\\x{ord(letter):02x}" for letter in text)
    return appended("chat_template.jinja", "{{{{ '{}' }}}}")(stage, escaped)


def in_metadata(stage: Stage, text: str) -> str:
    stage.metadata = {"format": "pt", "args": f"--token={text} --fast"}
    return "model-00001-of-00002.safetensors"


def in_metadata_key(stage: Stage, text: str) -> str:
    stage.metadata = {"format": "pt", text: "1"}
    return "model-00001-of-00002.safetensors"


def in_tensor_name(stage: Stage, text: str) -> str:
    stage.shards["model-00002-of-00002.safetensors"][f"model.{text}"] = np.arange(3, dtype=np.float32)
    return "model-00002-of-00002.safetensors"


def in_tensor_bytes(stage: Stage, text: str) -> str:
    data = bytes(range(200, 256)) + text.encode() + bytes(64)
    stage.shards["model-00002-of-00002.safetensors"]["state.blob"] = np.frombuffer(data, np.uint8)
    return "model-00002-of-00002.safetensors"


def in_compiled_tokenizer(stage: Stage, text: str) -> str:
    stage.files["tokenizer.model"] = b"\x0a\x10\x00" + text.encode() + b"\x15\x00\x00\x80\xbf"
    return "tokenizer.model"


def in_contract(stage: Stage, text: str) -> str:
    stage.contract = {"data": text}
    return "export-manifest.json"


def in_added_token(document: dict[str, object], text: str) -> None:
    token = {"id": 900, "content": f"<|{text}|>", "special": True}
    assert isinstance(document["added_tokens"], list)
    document["added_tokens"].append(token)


def in_vocabulary(document: dict[str, object], text: str) -> None:
    assert isinstance(document["model"], dict)
    document["model"]["vocab"][f"Ġ{text}"] = 901


def in_merges(document: dict[str, object], text: str) -> None:
    assert isinstance(document["model"], dict)
    document["model"]["merges"].append(["a", text])


def in_normalizer(document: dict[str, object], text: str) -> None:
    document["normalizer"] = {"type": "Prepend", "prepend": text}


def in_key(document: dict[str, object], text: str) -> None:
    document[text] = 1


def nested(document: dict[str, object], text: str) -> None:
    document["a"] = [{"b": [{"c": f"see {text}, please"}]}]


PLACES: dict[str, Planter] = {
    "config value": edited("config.json", nested),
    "config key": edited("config.json", in_key),
    "escaped in JSON": escaped_in_json,
    "key that stands there twice": twice_in_json,
    "broken JSON": in_broken_json,
    "tokenizer config": edited("tokenizer_config.json", nested),
    "added token": edited("tokenizer.json", in_added_token),
    "vocabulary": edited("tokenizer.json", in_vocabulary),
    "merges": edited("tokenizer.json", in_merges),
    "normalizer": edited("tokenizer.json", in_normalizer),
    "template": appended("chat_template.jinja", "\n{{# {} #}}"),
    "escaped in a template": escaped_in_template,
    "template in JSON": edited(
        "tokenizer_config.json", lambda document, text: document.update(chat_template=f"a\n{text}")
    ),
    "card": in_card("It uses `{}` to load."),
    "front matter": in_front_matter,
    "escaped in front matter": escaped_in_front_matter,
    "license": appended("LICENSE", "\ncopyright {}\n"),
    "evaluation": appended(".eval_results/a.yaml", "- note: {}\n"),
    "vocab.txt": appended("vocab.txt", "[PAD]\n{}\n"),
    "metadata": in_metadata,
    "metadata key": in_metadata_key,
    "tensor name": in_tensor_name,
    "tensor bytes": in_tensor_bytes,
    "compiled tokenizer": in_compiled_tokenizer,
    "contract": in_contract,
}


def secrets_in(report: ScanReport) -> set[str]:
    """Return the files in which a secret was found."""
    return {finding.path for finding in report.blocking if finding.rule is Rule.SECRET}


@pytest.mark.parametrize("place", sorted(PLACES))
def test_a_token_is_found_everywhere_and_never_repeated(tmp_path: Path, place: str) -> None:
    stage = Stage(tmp_path)
    path = PLACES[place](stage, HF)
    report = stage.scan()
    assert path in secrets_in(report)
    assert HF.encode() not in encode(report)
    assert hashlib.sha256(HF.encode()).hexdigest()[:8].encode() in encode(report)


def test_a_file_name_that_is_a_token(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.files[f"{HF}.json"] = b"{}"
    report = stage.scan()
    assert any(finding.rule is Rule.SECRET for finding in report.blocking)
    assert HF.encode() not in encode(report)


def _jwt() -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=")
        for one in ({"alg": "HS256"}, {"sub": "q"})
    ]
    return ".".join([*parts, "c2lnbmF0dXJlLW9mLW5vYm9keQ"])


SOME40 = "Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1HgFeDcBa0ZyXw"
KINDS = {
    "hugging face": HF,
    "aws id": "AKIA" + "QWERTYUIOPASDFGH",
    "github": "ghp" + "_" + SOME40[:36],
    "github fine": "github" + "_pat_" + SOME40 + SOME40,
    "gitlab": "glpat" + "-" + SOME40[:20],
    "openai": "sk" + "-proj-" + SOME40,
    "anthropic": "sk" + "-ant-api03-" + SOME40,
    "plain sk": "sk" + "-" + SOME40,
    "wandb": "wandb" + "_v1_" + SOME40,
    "wandb old": 'WANDB_API_KEY = "' + hashlib.sha1(b"wandb").hexdigest() + '"',
    "slack": "xoxb" + "-1234567890-" + SOME40[:24],
    "google": "AIza" + SOME40[:35],
    "stripe": "sk" + "_live_" + SOME40[:24],
    "npm": "npm" + "_" + SOME40[:36],
    "jwt": _jwt(),
    "private key": "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
    "basic auth": "https://someone:" + "hunter2hunter@host.example.com/x",
    "bearer": "Authorization: Bearer " + SOME40,
    "telegram": "12345678:" + SOME40[:35],
    "sendgrid": "SG." + SOME40[:22] + "." + SOME40 + "abc",
    "random base62": SOME40,
    "random hex": hashlib.sha256(b"nothing that belongs here").hexdigest(),
}
GUESSED = {"random base62", "random hex"}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("place", ["card", "config value", "added token", "vocabulary", "front matter", "metadata"])
def test_kinds_of_secrets(tmp_path: Path, kind: str, place: str) -> None:
    stage = Stage(tmp_path)
    text = json.dumps(KINDS[kind]) if place == "front matter" else KINDS[kind]
    path = PLACES[place](stage, text)
    report = stage.scan()
    assert path in secrets_in(report)
    assert KINDS[kind].encode() not in encode(report)


@pytest.mark.parametrize(
    ("name", "value"),
    [("hub_token", "abcdef"), ("api_key", "12345678"), ("wandb_api_key", "x" * 12), ("password", "swordfish"),
     ("aws_secret_access_key", "shortened"), ("push_to_hub_token", "hello-1"), ("use_auth_token", "value")],
)  # fmt: skip
def test_fields_named_like_credentials(tmp_path: Path, name: str, value: str) -> None:
    stage = Stage(tmp_path)
    stage.edit("config.json", outer={name: value})
    report = stage.scan()
    assert "config.json" in secrets_in(report)
    assert value.encode() not in encode(report)


@pytest.mark.parametrize(
    "field", [{"bos_token": "<s>"}, {"use_auth_token": True}, {"hub_token": None}, {"api_key": ""}]
)
def test_fields_that_only_sound_so(tmp_path: Path, field: dict[str, object]) -> None:
    stage = Stage(tmp_path)
    stage.edit("tokenizer_config.json", **field)
    assert secrets_in(stage.scan()) == set()


@pytest.mark.parametrize("line", ['password = "swordfish-7"', "api_key: 'abcd-efgh-1234'", 'secret="correct horse"'])
def test_assignments_in_prose(tmp_path: Path, line: str) -> None:
    stage = Stage(tmp_path)
    PLACES["card"](stage, line)
    report = stage.scan()
    assert "README.md" in secrets_in(report)
    assert b"swordfish" not in encode(report)


NO_SECRETS = [
    "https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu/tree/main/sample-10BT",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "=" * 80,
    "model.layers.0.self_attn.q_proj.weight",
    "NSManagedObjectContextObjectsDidChangeNotification",
    "123e4567-e89b-12d3-a456-426614174000",
    "This token has no password; the secret of a good model is data.",
    "a risk-adjusted sk-learn pipeline",
    "Qwen2MoeForCausalLM and Llama-3.1-8B-Instruct-Turbo-2407",
]


@pytest.mark.parametrize("text", NO_SECRETS)
@pytest.mark.parametrize("place", ["card", "config value", "vocabulary"])
def test_what_is_no_secret(tmp_path: Path, text: str, place: str) -> None:
    stage = Stage(tmp_path)
    PLACES[place](stage, text)
    assert secrets_in(stage.scan()) == set()


def test_digests_that_belong_to_the_release_are_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    digest = stage.write().files[0].sha256
    PLACES["card"](stage, f"digest {digest}, code {stage.described.code_version}")
    assert secrets_in(stage.scan()) == set()


def test_a_compiled_table_of_a_tokenizer_is_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    document = json.loads(tokenizer_json())
    table = base64.b64encode(np.random.default_rng(5).bytes(30_000)).decode()
    document["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": table}
    stage.files["tokenizer.json"] = json.dumps(document).encode()
    assert stage.scan().blocking == ()
    document["normalizer"]["precompiled_charsmap"] = f"{table} {HF} {table}"
    stage.files["tokenizer.json"] = json.dumps(document).encode()
    assert secrets_in(stage.scan()) == {"tokenizer.json"}


@st.composite
def tokens(draw: st.DrawFn) -> str:
    """Draw a token of a known form."""
    form = draw(st.sampled_from(["hf_{34}", "ghp_{36}", "sk-{48}", "glpat-{20}", "npm_{36}", "gsk_{52}"]))
    prefix, _, count = form.rstrip("}").partition("{")
    length = int(count)
    return prefix + draw(st.text(BASE62, min_size=length, max_size=length))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(token=tokens(), place=st.sampled_from(sorted(PLACES)), pad=st.sampled_from(["", " ", "\n", '"', "Ġ", "/", "="]))
def test_any_token_in_any_place(tmp_path_factory: pytest.TempPathFactory, token: str, place: str, pad: str) -> None:
    stage = Stage(tmp_path_factory.mktemp("planted"))
    quoted = place in (
        "front matter",
        "evaluation",
        "broken JSON",
        "key that stands there twice",
        "escaped in front matter",
    )
    path = PLACES[place](stage, token if quoted else f"{pad}{token}{pad}")
    report = stage.scan()
    assert path in secrets_in(report)
    assert token.encode() not in encode(report)
