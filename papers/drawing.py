"""What the papers' figures share: a canvas, intervals as whiskers and bands, and files that are the same every time.

Only reports and ``Experiment.write`` call it; matplotlib is imported where a figure is drawn and nowhere else.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clew.core.records import Report


def canvas(
    size: tuple[float, float], rows: int = 1, columns: int = 1, font: int = 9, backend: str = "Agg", **how: Any
) -> tuple[Any, Any]:
    """A figure and its axes, as ``plt.subplots`` gives them; the layout is constrained unless ``how`` says otherwise.

    Args:
        backend: the one that measures texts for the layout.
    """
    import matplotlib

    matplotlib.use(backend)
    import matplotlib.pyplot as plt

    plt.rcParams["font.size"] = font
    return plt.subplots(rows, columns, figsize=size, **{"layout": "constrained", **how})


def keep(figure: Any, path: Path, salt: str) -> None:
    """Write a figure, the same bytes for the same lines, and close it."""
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = salt
    if figure.get_layout_engine() is None:
        figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def whiskers(axis: Any, at: Any, found: Report | Sequence[Report], along: str = "y", **how: Any) -> None:
    """Estimates with their intervals at these places of the other axis."""
    each = [found] if isinstance(found, Report) else found
    middle = [x.estimate for x in each]
    reach = [[x.estimate - x.low for x in each], [x.high - x.estimate for x in each]]
    at = [at] if isinstance(found, Report) else at
    if along == "y":
        axis.errorbar(at, middle, yerr=reach, **how)
    else:
        axis.errorbar(middle, at, xerr=reach, **how)


def band(axis: Any, at: Any, found: Sequence[Report], style: str = "-", alpha: float = 0.2, **how: Any) -> None:
    """A line through the estimates, and their intervals as a band of the same colour."""
    axis.plot(at, [x.estimate for x in found], style, **how)
    low, high = [x.low for x in found], [x.high for x in found]
    axis.fill_between(at, low, high, color=how["color"], alpha=alpha, linewidth=0)


def finish(*axes: Any, font: float | None = 8, grid: bool = True, **how: Any) -> None:
    """A faint grid and a legend without a frame, on each of these axes; ``font`` None: no legend."""
    for axis in axes:
        if grid:
            axis.grid(alpha=0.25)
        if font is not None:
            axis.legend(frameon=False, fontsize=font, **how)
