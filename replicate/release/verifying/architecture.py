"""What the architecture of a release says its tensors are, asked of a process of its own."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from replicate.errors import CapabilityMissing, ConfigInvalid
from replicate.release.bundle import Kind
from replicate.release.description import ReleaseDescription
from replicate.release.expected import Expected
from replicate.release.verifying.checks import Verdict
from replicate.release.verifying.sandbox import Job, Limits, Task, run_jobs

LIMITS = Limits(seconds=300.0)


def expected_tensors(
    description: ReleaseDescription,
    base: Path,
    config: Path,
    *,
    names: Iterable[str] = (),
    limits: Limits = LIMITS,
) -> Expected | None:
    """Return the tensors of the architecture, or None where it cannot be known.

    ``base`` is the folder of the description, ``config`` the file config.json (for an adapter:
    adapter_config.json).  A class of transformers may be published under its modules' names or
    under those of its hub format: ``names``, what the release has, choose between the two.  An
    adapter without ``base_path`` is unknown.  Raises ConfigInvalid where the architecture cannot
    be built, with what it raised, and CapabilityMissing where a library is missing.
    """
    arguments = architecture_arguments(description, base, config)
    if arguments is None:
        return None
    job = Job(
        task=Task.DESCRIBE,
        names=("architecture",),
        arguments={**arguments, "names": sorted(names)},
        foreign_code=description.kind is Kind.CUSTOM,
    )
    answer = run_jobs([job], limits=limits, loaded_bytes=0)[0]
    for check in answer.checks:
        if check.verdict is Verdict.NOT_DONE:
            raise CapabilityMissing(f"the architecture cannot be built: {check.detail}", hint="install what is named")
        raise ConfigInvalid(
            f"the architecture cannot be built: {check.detail}",
            hint=f"correct [architecture] in the description, or {config.name}",
        )
    return Expected(
        shapes={name: tuple(shape) for name, shape in answer.data["shapes"].items()},
        tied=tuple((keep, tuple(drop)) for keep, drop in answer.data["tied"]),
    )


def architecture_arguments(description: ReleaseDescription, base: Path, config: Path) -> dict[str, Any] | None:
    """Return what the child needs to build it; None where the description does not say enough."""
    architecture, adapter = description.architecture, description.adapter
    if description.kind is Kind.FULL:
        return {
            "libraries": ["torch", "transformers"],
            "config": str(config.absolute()),
            "model_class": architecture.model_class,
        }
    if description.kind is Kind.CUSTOM:
        return {
            "libraries": ["torch"],
            "config": str(config.absolute()),
            "factory": architecture.factory,
            "code": str((base / (architecture.code or "")).absolute()),
        }
    if adapter is None or adapter.base_path is None:
        return None
    return {
        "libraries": ["torch", "transformers", "peft"],
        "adapter_config": str(config.absolute()),
        "base_path": str((base / adapter.base_path).absolute()),
    }
