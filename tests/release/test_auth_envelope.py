"""DSSE envelopes: exact bytes, one type, and nothing hostile that parses to something else."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from release.authorized_by_hand import APPROVERS, OUTSIDER, Scene, key_of

from replicate.errors import CkptierError, IntegrityFailure
from replicate.release.authorizing import Authorization, parse_authorization
from replicate.release.envelope import MAX_SIGNATURES, PayloadType, pae, parse, sign, verify

PAYLOAD = b'{"a":1}'


def document(**changes: Any) -> bytes:
    """Return an envelope's JSON with top-level fields changed; None takes one away."""
    made = sign(PayloadType.APPROVAL, PAYLOAD, key_of(OUTSIDER)).document() | changes
    return json.dumps({name: value for name, value in made.items() if value is not None}).encode()


def test_the_encoding_is_that_of_the_specification() -> None:
    """Lengths are in bytes, in decimal; type and payload follow unchanged."""
    kind = PayloadType.APPROVAL.value
    assert pae(PayloadType.APPROVAL, b"hello \xff") == b"DSSEv1 %d %s 7 hello \xff" % (len(kind), kind.encode())


@pytest.mark.parametrize("made", PayloadType)
@pytest.mark.parametrize("expected", PayloadType)
def test_a_signature_holds_for_its_own_type_only(made: PayloadType, expected: PayloadType) -> None:
    key = key_of(OUTSIDER)
    envelope = sign(made, PAYLOAD, key)
    assert verify(envelope, expected, [key.public]) == ((key.public,) if made is expected else ())
    relabelled = parse(json.dumps(envelope.document() | {"payloadType": expected.value}).encode(), what="it")
    assert bool(verify(relabelled, expected, [key.public])) is (made is expected)


def test_each_signature_counts_for_its_key() -> None:
    envelope = sign(PayloadType.APPROVAL, PAYLOAD, key_of(OUTSIDER)).with_signature(key_of(APPROVERS[0]))
    keys = [key_of(name).public for name in (APPROVERS[1], APPROVERS[0], OUTSIDER)]
    assert verify(parse(envelope.encode(), what="it"), PayloadType.APPROVAL, keys) == (keys[1], keys[2])


def test_a_signature_under_the_name_of_another_key_does_not_count() -> None:
    made = sign(PayloadType.APPROVAL, PAYLOAD, key_of(OUTSIDER)).document()
    made["signatures"][0]["keyid"] = key_of(APPROVERS[0]).public.fingerprint
    envelope = parse(json.dumps(made).encode(), what="it")
    keys = [key_of(OUTSIDER).public, key_of(APPROVERS[0]).public]
    assert verify(envelope, PayloadType.APPROVAL, keys) == ()


SIGNATURE = sign(PayloadType.APPROVAL, PAYLOAD, key_of(OUTSIDER)).document()["signatures"][0]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (document(extra=1), "extra: unknown key"),
        (document(payload=None), "payload: missing"),
        (document(payloadType="application/json"), "application/json"),
        (document(payload="e30"), "payload: not base64"),
        (document(payload="e31="), "payload: base64 that is not in its one form"),
        (document(payload="e30=\n"), "payload"),
        (document(payload="_-8="), "payload: not base64"),
        (document(payload=1), "payload"),
        (document(signatures=[]), "signatures"),
        (document(signatures=[SIGNATURE] * (MAX_SIGNATURES + 1)), "signatures"),
        (document(signatures=[SIGNATURE | {"cert": "x"}]), "signatures.0.cert: unknown key"),
        (document(signatures=[SIGNATURE | {"keyid": "sha256:00"}]), "signatures.0.keyid"),
        (document(signatures=[SIGNATURE | {"sig": "AAAA"}]), "signatures.0.sig: 3 bytes where 64 are due"),
        (document(signatures={"0": SIGNATURE}), "signatures"),
        (document()[:-1], "not valid JSON"),
        (document().replace(b'"payload":', b'"payload":"",  "payload":', 1), "a key stands there twice"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"a":' * 64 + b"1" + b"}" * 64, "nested"),
        (b'"' + b" " * (9 << 20) + b'"', "more than"),
    ],
)
def test_what_is_no_envelope_is_refused_by_its_field(data: bytes, named: str) -> None:
    with pytest.raises(IntegrityFailure, match=named.replace(".", r"\.")):
        parse(data, what="the envelope")


@pytest.fixture(scope="module")
def authorization(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, Authorization]:
    scene = Scene.set(tmp_path_factory.mktemp("hostile"))
    return scene, scene.authorized()


@given(data=st.data())
def test_any_changed_byte_is_refused_or_means_the_same(
    authorization: tuple[Scene, Authorization], data: st.DataObject
) -> None:
    scene, whole = authorization
    original = whole.encode()
    at = data.draw(st.integers(0, len(original) - 1), label="position")
    byte = data.draw(st.integers(0, 255), label="byte")
    hurt = original[:at] + bytes([byte]) + original[at + 1 :]
    try:
        read = parse_authorization(hurt, what="the file")
    except CkptierError:
        return
    assert read == whole or scene.decide(read)


@given(data=st.data())
def test_a_cut_or_stretched_file_is_refused(authorization: tuple[Scene, Authorization], data: st.DataObject) -> None:
    scene, whole = authorization
    original = whole.encode()
    start = data.draw(st.integers(0, len(original)), label="start")
    end = data.draw(st.integers(start, len(original)), label="end")
    filling = data.draw(st.binary(max_size=8), label="filling")
    hurt = original[:start] + filling + original[end:]
    try:
        read = parse_authorization(hurt, what="the file")
    except CkptierError:
        return
    assert read == whole or scene.decide(read)


def test_a_payload_has_one_form(authorization: tuple[Scene, Authorization], tmp_path: Path) -> None:
    """A record that is spelled differently and signed as such is refused: one content has one digest."""
    _, whole = authorization
    loose = json.dumps(json.loads(whole.record_envelope.payload), indent=1).encode()
    file = json.loads(whole.encode())
    file["record"] = sign(PayloadType.AUTHORIZATION, loose, key_of("requester")).document()
    with pytest.raises(IntegrityFailure, match="record: payload: it is not in its canonical form"):
        parse_authorization(json.dumps(file).encode(), what="the file")


@pytest.mark.parametrize("part", ["record", "approvals"])
def test_one_signature_is_due_and_of_the_right_type(authorization: tuple[Scene, Authorization], part: str) -> None:
    _, whole = authorization
    for change, named in (
        ({"signatures": [SIGNATURE, SIGNATURE]}, "signatures: one is due"),
        ({"payloadType": PayloadType.LOG_ENTRY.value}, "payloadType"),
    ):
        file = json.loads(whole.encode())
        changed = (file["record"] if part == "record" else file["approvals"][0]) | change
        file[part] = changed if part == "record" else [changed]
        with pytest.raises(IntegrityFailure, match=named):
            parse_authorization(json.dumps(file).encode(), what="the file")


def test_base64_is_read_in_one_form_only(authorization: tuple[Scene, Authorization]) -> None:
    _, whole = authorization
    file = json.loads(whole.encode())
    encoded = file["record"]["payload"]
    assert base64.b64decode(encoded) == whole.record_envelope.payload
    file["record"]["payload"] = encoded[:10] + "\n" + encoded[10:]
    with pytest.raises(IntegrityFailure, match="payload: not base64"):
        parse_authorization(json.dumps(file).encode(), what="the file")
