"""Whether a figure can be read: what is written lies inside of it, not on top of each other, and is not too small."""

import itertools

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure


class _Listening(RendererAgg):
    """Remembers every text that is really drawn: (text, points, its four corners in pixels, y downwards)."""

    def __init__(self, figure: Figure):
        super().__init__(figure.bbox.width, figure.bbox.height, figure.dpi)
        self.drawn: list[tuple[str, float, np.ndarray]] = []

    def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
        width, height, descent = self.get_text_width_height_descent(s, prop, ismath)
        along, up = np.array([[0, 0, width, width], [-descent, height - descent, height - descent, -descent]])
        c, s_ = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        corners = np.stack([x + c * along - s_ * up, y - s_ * along - c * up], axis=1)
        self.drawn.append((s, prop.get_size_in_points(), corners))


def assert_legible(figure: Figure, *, smallest: float = 7.0, slack: float = 1.0) -> None:
    """All texts lie within the figure, none on another, and none is smaller than `smallest` points.

    Args:
        slack: pixels by which two texts may overlap, since a box is larger than its letters.
    """
    FigureCanvasAgg(figure)
    renderer = _Listening(figure)
    figure.draw(renderer)
    assert renderer.drawn
    size = np.array([figure.bbox.width, figure.bbox.height])
    for text, points, corners in renderer.drawn:
        assert points >= smallest, f"{text!r} has {points} points"
        assert np.all(corners > -slack), f"{text!r} is cut off"
        assert np.all(corners < size + slack), f"{text!r} is cut off"
    for (one, _, a), (other, _, b) in itertools.combinations(renderer.drawn, 2):
        assert _gap(a, b) > -slack, f"{one!r} lies on {other!r}"


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    """Largest distance between the shadows of two rectangles on the directions of their sides; negative if they overlap."""
    sides = np.concatenate([np.diff(a, axis=0)[:2], np.diff(b, axis=0)[:2]])
    normals = sides / np.maximum(np.linalg.norm(sides, axis=1, keepdims=True), 1e-9)
    shadows_a, shadows_b = a @ normals.T, b @ normals.T
    return float(np.maximum(shadows_a.min(0) - shadows_b.max(0), shadows_b.min(0) - shadows_a.max(0)).max())
