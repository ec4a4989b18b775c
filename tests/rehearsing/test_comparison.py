"""What two generations differ in: by their documents, and tensor by tensor."""

import io
import pickle
import zipfile
from pathlib import Path

import pytest
from cli.driver import Project, volume

from replicate.causal import Stage, stage_of
from replicate.errors import ExitCode
from replicate.layout import GenerationId


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "vol").mkdir()
    return Project(folder=tmp_path, tiers={"vol": volume(tmp_path / "vol")}).write()


def publish(project: Project, update: int, files: dict[str, bytes], **said: object) -> GenerationId:
    publication = project.store.publish(next_update=update, **said)  # type: ignore[arg-type]
    with publication as directory:
        for name, data in files.items():
            (directory / name).write_bytes(data)
    assert publication.generation is not None
    return publication.generation.id


def difference(project: Project, *arguments: str) -> tuple[str, str]:
    done = project("compare", *arguments, "--json")
    assert done.code == 1, done
    first = done.result()["differences"][0]
    return first["stage"], first["name"]


def test_the_first_difference_is_the_one_that_explains_the_others(project: Project) -> None:
    files = {"model.bin": b"m", "optimizer.bin": b"o", "rng.json": b"{}", "notes.txt": b"n"}
    changed = {"model.bin": b"M", "optimizer.bin": b"O", "rng.json": b"{ }", "notes.txt": b"N"}
    made = [publish(project, 100, files, contract={"config": "x"})]
    made.append(publish(project, 101, changed, contract={"config": "y"}))
    made.append(publish(project, 101, changed, contract={"config": "x"}))
    made.append(publish(project, 101, files | {"rng.json": b"{ }"}, contract={"config": "x"}))
    made.append(publish(project, 101, files, contract={"config": "x"}))
    made.append(publish(project, 100, files, contract={"config": "x"}))
    a, *others = map(str, made)
    assert [difference(project, a, b) for b in others[:-1]] == [
        ("contract", "config"),
        ("weights and buffers", "model.bin"),
        ("random draws", "rng.json"),
        ("clocks", "next_update"),
    ]
    done = project("compare", a, others[-1])
    assert done.code == 0
    done.says("equal: ", "by their records and digests")
    told = project("compare", a, others[0])
    told.says("first difference: contract: config", "  'x' in A, 'y' in B", "5 more:", "the same size, and other bytes")


def test_sides_are_in_the_store_on_a_tier_or_a_folder(project: Project) -> None:
    made = publish(project, 100, {"model.bin": b"m", "empty": b""})
    assert project("replicate", "--once").code == 0
    plain = project.folder / "plain"
    assert project("restore", "--to", str(plain)).code == 0
    stored = project.local.generation(made)
    for other in (f"{made}@vol", f"{made}@local", str(plain), str(stored)):
        done = project("compare", str(made), other)
        assert done.code == 0, done
    (plain / "model.bin").write_bytes(b"x")
    (plain / "more.txt").write_bytes(b"x")
    assert difference(project, f"{made}@vol", str(plain)) == ("weights and buffers", "model.bin")
    assert difference(project, str(plain), str(stored)) == ("weights and buffers", "model.bin")
    (plain / "model.bin").write_bytes(b"m")
    assert difference(project, str(plain), f"{made}@vol") == ("other", "more.txt")
    assert sorted(path.name for path in project.local.root.parent.iterdir()) == [project.run]


def test_no_byte_is_read_where_digests_tell(project: Project) -> None:
    a, b = (publish(project, update, {"model.bin": str(update).encode()}) for update in (100, 101))
    for one in (a, b):
        (project.local.generation(one) / "files" / "model.bin").unlink()
    assert difference(project, str(a), str(b)) == ("weights and buffers", "model.bin")


def test_what_is_no_side_is_refused(project: Project) -> None:
    made = publish(project, 100, {"model.bin": b"m"})
    project.refused(ExitCode.USAGE, "compare", str(made), "nowhere").says("neither a generation nor a folder")
    project.refused(ExitCode.NOTHING, "compare", str(made), f"{made}@vol").says("in none of the places")
    project.refused(ExitCode.CONFIG, "compare", str(made), f"{made}@nowhere")
    absent = str(made).replace("u000000000100", "u000000000300")
    project.refused(ExitCode.NOTHING, "compare", str(made), f"{absent}@local").says("is not in the store")


def payload(**state: object) -> bytes:
    """Return what torch.save writes for a state without tensors: this process does without torch."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("payload/data.pkl", pickle.dumps(state, protocol=2))
        archive.writestr("payload/version", "3\n")
    return out.getvalue()


def test_torch_payloads_are_loaded_and_compared_in_causal_order(project: Project) -> None:
    """One side is fetched from the tier; the loss is not the first, since the moments before it differ."""
    made = []
    for moment, loss in ((2.0, 0.5), (2.5, 0.25)):
        state = payload(
            extra={"loss": loss},
            model={"head": [0.0, float("nan")]},
            optimizer={"state": {0: {"exp_avg": [1.0, moment]}}},
            next_update=100,
        )
        files = {"payload.pt": state, "broken.pt": b"no archive " + str(moment).encode(), "same.pt": b"neither"}
        made.append(publish(project, 100, files))
    assert project("replicate", "--once").code == 0
    done = project("compare", str(made[0]), f"{made[1]}@vol", "--tensors", "--json")
    assert done.code == 1, done
    found = done.result()
    assert [(one["stage"], one["name"], one["detail"]) for one in found["differences"]] == [
        ("optimizer state", "payload.pt: optimizer.state.0.exp_avg.1", "2.0 against 2.5"),
        ("loss", "payload.pt: extra.loss", "0.5 against 0.25"),
        ("other", "broken.pt", "the same size, and other bytes"),
        ("other", "payload.pt", "the same size, and other bytes"),
    ]
    (note,) = found["notes"]
    assert note.startswith("broken.pt cannot be compared: ")
    assert [path.name for path in project.local.root.parent.iterdir()] == [project.run]


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("contract.data", Stage.CONTRACT),
        ("weights", Stage.WEIGHTS),
        ("Buffers/positions", Stage.WEIGHTS),
        ("optimizer.state.0.step", Stage.OPTIMIZER),
        ("rng_digest", Stage.RNG),
        ("batch_id", Stage.BATCH),
        ("next_update", Stage.CLOCKS),
        ("lr", Stage.RATE),
        ("learning-rate", Stage.RATE),
        ("extra.loss", Stage.LOSS),
        ("gradients.norm", Stage.GRADIENTS),
        ("updated_weights", Stage.UPDATED),
        ("7", Stage.OTHER),
        ("", Stage.OTHER),
    ],
)
def test_a_name_says_where_it_belongs(name: str, stage: Stage) -> None:
    assert stage_of(name) is stage
