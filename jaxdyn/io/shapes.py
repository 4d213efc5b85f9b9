"""Triangle meshes of simple solids."""

import numpy as np
from jaxtyping import Float, Int

Mesh = tuple[Float[np.ndarray, "vertices 3"], Int[np.ndarray, "faces 3"]]


def cylinder(sides: int = 16) -> Mesh:
    """Cylinder of radius 1 and length 1 about the z axis, with flat ends."""
    angle = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([np.cos(angle), np.sin(angle), np.zeros(sides)], axis=1)
    half = np.array([0.0, 0.0, 0.5])
    low, high = ring - half, ring + half
    vertices = np.concatenate([low, high, low, high])  # the ends have separate vertices, for sharp edges
    i = np.arange(sides)
    j = (i + 1) % sides
    walls = [np.stack([i, j, j + sides], 1), np.stack([i, j + sides, i + sides], 1)]
    fan = np.arange(1, sides - 1)
    ends = [np.stack([0 * fan, fan + 1, fan], 1) + 2 * sides, np.stack([0 * fan, fan, fan + 1], 1) + 3 * sides]
    return vertices, np.concatenate(walls + ends)


def sphere(rings: int = 16, sides: int = 24) -> Mesh:
    """Sphere of radius 1."""
    latitude, longitude = np.meshgrid(
        np.linspace(0, np.pi, rings + 1), 2 * np.pi * np.arange(sides) / sides, indexing="ij"
    )
    x, y = np.sin(latitude) * np.cos(longitude), np.sin(latitude) * np.sin(longitude)
    vertices = np.stack([x, y, np.cos(latitude)], axis=-1).reshape(-1, 3)
    row, column = (index.ravel() for index in np.meshgrid(np.arange(rings), np.arange(sides), indexing="ij"))
    a, b = row * sides + column, row * sides + (column + 1) % sides
    return vertices, np.concatenate([np.stack([a, a + sides, b + sides], 1), np.stack([a, b + sides, b], 1)])
