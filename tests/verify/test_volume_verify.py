"""Verification of a volume goes the way that it goes for S3, and reads what the medium holds."""

from pathlib import Path

import pytest
from support.commits import REMOTE, Made, Writer, generation

from replicate.verify import Finding, Share, verify
from tiers.medium import current_reading
from tiers.protocol import Verification
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode
from tiers.volume_reading import MediumStream

ALL = Share()


@pytest.fixture(params=[VolumeMode.RENAME, VolumeMode.DIRECT])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> VolumeTier:
    return VolumeTier("volume", tmp_path, mode=request.param)


@pytest.fixture
def made(volume: VolumeTier) -> Made:
    made = generation(1)
    Writer(volume).commit(made)
    return made


def test_what_is_read_for_a_proof_comes_from_the_medium(
    volume: VolumeTier, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs: list[Verification] = []
    close = MediumStream.close

    def noted(stream: MediumStream) -> None:
        if not stream.closed and (reading := current_reading()) is not None:
            proofs.append(reading.proof)
        close(stream)

    monkeypatch.setattr(MediumStream, "close", noted)
    report = verify(volume, REMOTE, read_data=ALL)
    assert report.sound
    assert report.generations[0].bytes_read == made.record.total_bytes
    assert len(proofs) == sum(len(file.leaves) for file in made.record.files)
    assert Verification.READ_BACK not in proofs


def test_a_flipped_bit_is_found(volume: VolumeTier, made: Made, tmp_path: Path) -> None:
    path = next(path for path in (tmp_path / REMOTE.run).rglob("model.bin"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert verify(volume, REMOTE).generations[0].verdict is Finding.INTACT, "size and log do not tell"
    (found,) = verify(volume, REMOTE, read_data=ALL).generations
    assert found.verdict is Finding.HURT
    assert "model.bin: leaf" in found.reasons[0]
    assert found.generation == made.id
