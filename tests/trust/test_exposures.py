"""What ``explain`` says of somebody with the bucket's keys follows from what is configured and remembered."""

import sys
from dataclasses import replace

import pytest
from support.commits import REMOTE
from trust.stage import ONE, READER, TIER, grown, made, read, remembering, remote, trusted

from replicate.errors import CapabilityMissing
from replicate.exposure import exposed
from replicate.layout import RemoteRun
from replicate.log import Pin
from replicate.requests import Writer, entry_bytes
from replicate.signing.anchor import Anchor
from replicate.signing.lines import SIGNATURE_LINE_BYTES
from replicate.signing.trust import LogTrust
from tiers.memory import MemoryStore

SEEN = Anchor(12, "a" * 64)


def said(run: RemoteRun) -> str:
    return "\n".join(exposed(run, [TIER]))


def test_an_unsigned_log() -> None:
    assert "forge everything" in said(REMOTE)
    assert "this machine has seen no log yet" in said(REMOTE)
    remembered = said(remembering(REMOTE, SEEN))
    assert "would notice a history that leaves out slot 12 of a" in remembered
    assert "put no state back that is older than this machine remembers" in remembered


def test_a_signed_log() -> None:
    told = said(READER)
    assert "forge everything" not in told
    assert "forge or change no generation" in told
    assert "with a writer's signing key" in told
    assert "with this machine's signing key" in said(ONE)
    assert "an older run of this name" in told
    assert "an older run of this name" not in said(remote(trusted(1), run_uid="u" * 32))
    assert "change nothing up to slot 12 of a" in said(remote(trusted(1), unsigned_until={TIER: SEEN}))


def test_hiding_the_newest() -> None:
    assert "restore with --max-age" in said(READER)
    assert "for 2.0 h at most" in said(remote(trusted(1), max_age=7200.0))


@pytest.mark.parametrize("run", [REMOTE, ONE])
def test_what_no_signature_helps_against_is_always_said(run: RemoteRun) -> None:
    assert "delete or damage all" in said(run)
    assert "read every checkpoint" in said(run)


def test_a_tier_that_was_never_seen_is_told_from_one_that_was() -> None:
    run = replace(READER, memory=lambda tier: SEEN if tier == TIER else None)
    assert "it remembers slot 12 of a" in "\n".join(exposed(run, [TIER, "b"]))
    assert exposed(run, []) == ()


def test_a_signature_is_a_line_more_in_what_a_pass_asks_for() -> None:
    """The plan that money is made of knows it; unsigned entries are as long as they ever were."""
    record = made(1).record
    pin = Pin(generation=str(made(1).id), reason="")
    plain, signed = (entry_bytes(record, pin, slot=1, writer=Writer(signed=signs)) for signs in (False, True))
    assert signed - plain == SIGNATURE_LINE_BYTES == 114


def test_without_cryptography_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a signed log without being able to check it is no reading."""
    store = MemoryStore()
    grown(store, ONE, 1)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(CapabilityMissing) as missing:
        read(store, READER)
    assert missing.value.hint == "pip install 'ckptier[sign]'"
    assert read(store, REMOTE).state is not None, "who has no trust root needs none"


def test_no_trust_root_is_the_default() -> None:
    assert LogTrust() == REMOTE.trust
