"""The plot: uploads to the raw sink, wall and CPU, a group of bars for each workload."""

import statistics
from pathlib import Path

from benchmarks.sidebyside.peers import UP
from benchmarks.sidebyside.running import OURS, Results

GIB = 1 << 30
WIDTH, TITLE, BAR = 10.0, 0.55, 0.17


def plot(results: Results, path: Path) -> None:
    """Write an SVG; the same results give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ckptier", "font.size": 8})
    from matplotlib import pyplot as plt

    found = [(key, one) for key, one in results.workloads.items() if key.startswith("sink/")]
    clients = max(len(results.of("sink", one.name, UP)) for _, one in found)
    height = len(found) * (TITLE + clients * BAR)
    figure, axes = plt.subplots(len(found), 2, figsize=(WIDTH, height), squeeze=False)
    for (_, workload), (left, right) in zip(found, axes, strict=True):
        figures = results.of("sink", workload.name, UP)
        gib = workload.total / GIB
        walls = {name: statistics.median(one.compared_wall for one in rounds) for name, rounds in figures.items()}
        spent = {name: statistics.median(one.compared_cpu for one in rounds) / gib for name, rounds in figures.items()}
        names = sorted(walls, key=lambda name: walls[name], reverse=True)
        colours = ["#1b6ca8" if name == OURS else "#b9c4cc" for name in names]
        for axis, values, title in ((left, walls, "wall s"), (right, spent, "client CPU s per GiB")):
            axis.barh(names, [values[name] for name in names], color=colours)
            axis.set_title(f"{workload.label}: {title}", loc="left")
            axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")
