"""How long ``status`` takes with ten and with ten thousand generations; benchmarks/growth.py measures it, and more."""

from dataclasses import dataclass

from benchmarks.growth import measure
from benchmarks.sidebyside.figures import TIMES, Finding, verdict
from benchmarks.sidebyside.measuring import ClientFailed
from benchmarks.sidebyside.running import Say

BOUND = 3.0
STATUS = "status, whole command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """CPU seconds of the whole command at both sizes."""

    few: int
    many: int
    at_few: float
    at_many: float


def measure_growth(sizes: tuple[int, int], say: Say) -> Grown:
    """Ask for the status at both sizes."""
    few, many = sizes
    try:
        found = [measure("generations", count)[STATUS] for count in sizes]
    except SystemExit as error:  # it is a script of its own
        raise ClientFailed(str(error)) from error
    say(f"  status: {found[0]:.2f} CPU s with {few}, {found[1]:.2f} with {many:,} generations")
    return Grown(few=few, many=many, at_few=found[0], at_many=found[1])


def growth_findings(found: Grown) -> list[Finding]:
    """Hold it against the target."""
    value = found.at_many / found.at_few
    return [
        Finding(
            target=f"status with {found.many:,} generations",
            bound=f"≤ {BOUND:.0f} {TIMES} its time at {found.few}",
            shown=f"{value:.2f} {TIMES}",
            verdict=verdict(value, BOUND),
            beside=f"{found.at_many:.2f} against {found.at_few:.2f} CPU s, the whole command",
        )
    ]
