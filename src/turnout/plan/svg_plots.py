"""Plots as inline SVG: lines, stacked areas, points. Each is one element that needs no script and no other file."""

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 460, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 24, 12, 34  # the last label stands half to the right of the axis
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")


def ticks(most: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to at least `most`."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / count
    unit = 10 ** floor(log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw)
    return [step * n for n in range(ceil(most / step - 1e-9) + 1)]


def decades(least: float, most: float) -> list[float]:
    """Powers of ten around the values."""
    low, high = floor(log10(max(least, 1e-3))), ceil(log10(max(most, 2e-3)))
    return [10.0**n for n in range(low, max(high, low + 1) + 1)]


class Frame:
    """Axes and the way from values to pixels."""

    def __init__(
        self,
        x_ticks: Sequence[float],
        y_ticks: Sequence[float],
        x_label: str,
        y_label: str,
        *,
        log_x: bool = False,
    ) -> None:
        self._x, self._y, self._log = x_ticks, y_ticks, log_x
        self._labels = x_label, y_label

    def x(self, value: float) -> float:
        low, high = self._x[0], self._x[-1]
        if self._log:
            value, low, high = log10(max(value, low)), log10(low), log10(high)
        return _LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y[0], self._y[-1]
        return HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM)

    def around(self, content: str, summary: str) -> str:
        parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(summary)}">',
            f"<title>{escape(summary)}</title>",
        ]
        for value in self._y:
            at = self.y(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            )
            parts.append(
                f'<text class="tick" x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_short(value)}</text>'
            )
        for value in self._x:
            parts.append(
                f'<text class="tick" x="{self.x(value):.1f}" y="{HEIGHT - _BOTTOM + 15}" text-anchor="middle">{_short(value)}</text>'
            )
        x_label, y_label = map(escape, self._labels)
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        parts.append(
            f'<text class="label" x="{middle}" y="{HEIGHT - 3}" text-anchor="middle">{x_label}</text>'
        )
        parts.append(
            f'<text class="label" x="12" y="{HEIGHT / 2 - 8}" text-anchor="middle" transform="rotate(-90 12 {HEIGHT / 2 - 8})">{y_label}</text>'
        )
        return "".join((*parts, content, "</svg>"))


def lines(series: Mapping[str, Sequence[float]], until: float, x_label: str, y_label: str) -> str:
    """Each series is spread evenly from 0 to `until`."""
    most = max((max(values, default=0.0) for values in series.values()), default=0.0)
    frame = Frame(ticks(until), ticks(most), x_label, y_label)
    content = "".join(
        f'<polyline fill="none" stroke="{colour(n)}" stroke-width="1.5" points="{_points(frame, values, until)}"/>'
        for n, values in enumerate(series.values())
    )
    return frame.around(content, f"{y_label} over {x_label}, at most {most:.3g}")


def areas(series: Mapping[str, Sequence[float]], until: float, x_label: str, y_label: str) -> str:
    """The series on top of each other."""
    length = max((len(values) for values in series.values()), default=0)
    below, content = [0.0] * length, ""
    layers: list[tuple[list[float], list[float]]] = []
    for values in series.values():
        above = [low + value for low, value in zip(below, values, strict=True)]
        layers.append((below, above))
        below = above
    most = max(below, default=0.0)
    frame = Frame(ticks(until), ticks(most), x_label, y_label)
    for n, (low, high) in enumerate(layers):
        outline = f"{_points(frame, high, until)} {' '.join(reversed(_points(frame, low, until).split()))}"
        content += f'<polygon fill="{colour(n)}" fill-opacity="0.75" points="{outline}"/>'
    return frame.around(content, f"{y_label} over {x_label}, at most {most:.3g}")


def curves(
    series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str, least: float
) -> str:
    """Share (0 to 100) against a value on a logarithmic axis that begins at `least`."""
    values = [x for points in series.values() for x, _ in points]
    frame = Frame(
        decades(least, max(values, default=1.0)), [0, 25, 50, 75, 100], x_label, y_label, log_x=True
    )
    content = ""
    for n, points in enumerate(series.values()):
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
        content += f'<polyline fill="none" stroke="{colour(n)}" stroke-width="2" points="{path}"/>'
    return frame.around(content, f"{y_label} by {x_label}")


def scatter(
    points: Sequence[tuple[str, float, float, int]], x_label: str, y_label: str, limit: float | None
) -> str:
    """Named points with a colour each, and a line at `limit` on the x axis, which is logarithmic."""
    xs, ys = [max(p[1], 0.1) for p in points], [p[2] for p in points]
    frame = Frame(
        decades(min(xs, default=1), max((*xs, limit or 0.0))),
        ticks(max(ys, default=1)),
        x_label,
        y_label,
        log_x=True,
    )
    content = ""
    if limit is not None:
        at = frame.x(limit)
        content += f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
    best: list[tuple[float, float]] = []
    for x, y in sorted(zip(xs, ys, strict=True)):
        if not best or y < best[-1][1]:
            best.append((x, y))
    path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in best)
    content += f'<polyline class="frontier" points="{path}"/>'
    for (name, _, y, number), x in zip(points, xs, strict=True):
        content += (
            f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="5" fill="{colour(number)}">'
            f"<title>{escape(name)}</title></circle>"
        )
    return frame.around(content, f"{y_label} against {x_label}")


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def legend(names: Sequence[str]) -> str:
    return (
        '<p class="legend">'
        + "".join(
            f'<span><i style="background:{colour(n)}"></i>{escape(name)}</span>'
            for n, name in enumerate(names)
        )
        + "</p>"
    )


def _points(frame: Frame, values: Sequence[float], until: float) -> str:
    count = max(1, len(values))
    return " ".join(
        f"{frame.x((n + 0.5) / count * until):.1f},{frame.y(value):.1f}" for n, value in enumerate(values)
    )


def _short(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:g}"
