"""Where our own time goes on the sink; for whoever explains a miss.  It is no target."""

from benchmarks.sidebyside.running import Place, Say
from benchmarks.sidebyside.servers import Sink


def profile(place: Place, say: Say) -> dict[str, str]:
    """Replicate and restore under a sampler; returns what it saw of each."""
    found = {}
    with Sink() as sink:
        sink.read_from(place.files)
        for role, empty in (("replicate", False), ("restore", True)):
            report = place.folder / f"{role}.samples"
            config = place.project("profile", sink.url, empty=empty)
            target = str(place.folder / "target")
            ran = place.ours(role, config=str(config), target=target, sampled=str(report))
            found[role] = report.read_text(encoding="utf-8")
            took = ran.figure
            say(f"  {role}, {place.workload.label}: {took.compared_wall:.2f} s, {took.compared_cpu:.2f} CPU s")
            say(found[role])
    return found
