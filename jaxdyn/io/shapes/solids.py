"""Triangle meshes of simple solids, and meshes with fewer triangles or with sharp edges."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

Mesh = tuple[
    Float[np.ndarray, "_ 3"], Int[np.ndarray, "_ 3"]
]  # vertices, and the indices of three of them per triangle


def solid(kind: str, sizes: Sequence[float] | np.ndarray) -> tuple[Mesh, np.ndarray] | None:
    """Triangles of a solid, and the scale factors of their three coordinates; None for another kind.

    Args:
        kind: "box", "sphere", "ellipsoid", "cylinder" or "capsule".
        sizes: The three edges of a box, the radius of a sphere, the three semi-axes of an ellipsoid, or the radius and the length
            of a cylinder or a capsule, m.
    """
    match kind:
        case "box":
            return box(), np.array(sizes)
        case "sphere":
            return sphere(), np.repeat(sizes, 3)
        case "ellipsoid":
            return sphere(), np.array(sizes)
        case "cylinder":
            return cylinder(32), np.array(sizes)[[0, 0, 1]]
        case "capsule":
            return capsule(*sizes), np.ones(3)
    return None


def box() -> Mesh:
    """Cube with sides of length 1, with separate vertices for each face."""
    square = np.array([[-0.5, -0.5, 0.5], [0.5, -0.5, 0.5], [0.5, 0.5, 0.5], [-0.5, 0.5, 0.5]])
    sides = [sign * np.roll(square, shift, axis=1) for shift in range(3) for sign in (1, -1)]
    pair = np.array([[0, 1, 2], [0, 2, 3]])
    return np.concatenate(sides), np.concatenate([pair[:, :: (1, -1)[k % 2]] + 4 * k for k in range(6)])


def capsule(radius: float, length: float) -> Mesh:
    """Cylinder about the z axis with half spheres at both ends; `length` is that of the cylinder alone."""
    quarter = np.linspace(0, np.pi / 2, 9)
    # From the bottom to the top. The equator of the sphere is there twice, at both ends of the wall.
    latitude, shift = np.concatenate([quarter - np.pi / 2, quarter]), np.repeat([-0.5, 0.5], len(quarter)) * length
    return revolved(np.stack([radius * np.cos(latitude), radius * np.sin(latitude) + shift], axis=1), 24)


def cylinder(sides: int = 16) -> Mesh:
    """Cylinder of radius 1 and length 1 about the z axis, with flat ends."""
    angle = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([np.cos(angle), np.sin(angle), np.zeros(sides)], axis=1)
    half = np.array([0.0, 0.0, 0.5])
    low, high = ring - half, ring + half
    vertices = np.concatenate([low, high, low, high])  # the ends have separate vertices, for sharp edges
    fan = np.arange(1, sides - 1)
    ends = [np.stack([0 * fan, fan + 1, fan], 1) + 2 * sides, np.stack([0 * fan, fan, fan + 1], 1) + 3 * sides]
    return vertices, np.concatenate([faces_of(2, sides, closed=True), *ends])


def sphere(rings: int = 16, sides: int = 24) -> Mesh:
    """Sphere of radius 1."""
    latitude = np.linspace(0, np.pi, rings + 1)
    points, faces = revolved(np.stack([np.sin(latitude), np.cos(latitude)], axis=1), sides)
    return points, faces[:, ::-1]  # the profile begins at the top


def revolved(profile: Float[np.ndarray, "points 2"], sides: int) -> Mesh:
    """Surface of revolution about the z axis; the profile has distances from the axis and heights, from the bottom to the top."""
    angle = 2 * np.pi * np.arange(sides) / sides
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rings = [np.column_stack([radius * circle, np.full(sides, height)]) for radius, height in profile]
    return np.concatenate(rings), faces_of(len(profile), sides, closed=True)


def faces_of(rows: int, columns: int, *, closed: bool = False) -> Int[np.ndarray, "faces 3"]:
    """Triangles of points in rows and columns; if closed, the last column is connected to the first."""
    row, column = np.meshgrid(np.arange(rows - 1), np.arange(columns if closed else columns - 1), indexing="ij")
    row, column = row.ravel(), column.ravel()
    a, b = row * columns + column, row * columns + (column + 1) % columns
    return np.concatenate([np.stack([a, b, b + columns], 1), np.stack([a, b + columns, a + columns], 1)])


def simplified(mesh: Mesh, most: int) -> Mesh:
    """Simplify a mesh to at most `most` triangles (at least 12): all vertices in one cell of a grid are replaced by their mean.

    The cells are cubes, as small as the number of triangles allows. If no grid results in few enough triangles, the result is the
    box around the mesh.
    """
    points, faces = mesh
    if len(faces) <= most:
        return mesh
    coarse, fine, found = 1, 1024, None  # cells along the longest side
    while coarse <= fine:
        cells = (coarse + fine) // 2
        candidate = _clustered(points, faces, cells)
        if len(candidate[1]) <= most:
            coarse, found = cells + 1, candidate
        else:
            fine = cells - 1
    return found if found is not None and len(found[1]) else _box_around(points)


def _clustered(points: np.ndarray, faces: np.ndarray, cells: int) -> Mesh:
    low = points.min(axis=0)
    size = float((points - low).max()) or 1.0
    index = np.minimum(((points - low) * (cells / size)).astype(np.int64), cells - 1)
    _, cluster, counts = np.unique(index @ [1, cells, cells**2], return_inverse=True, return_counts=True)
    means = np.stack([np.bincount(cluster, points[:, k]) for k in range(3)], axis=1) / counts[:, None]
    corners = cluster[faces]
    corners = corners[np.all(corners != np.roll(corners, 1, axis=1), axis=1)]
    low, middle, high = np.sort(corners, axis=1).T
    _, first = np.unique((low * len(means) + middle) * len(means) + high, return_index=True)
    return means, corners[np.sort(first)]


def _box_around(points: np.ndarray) -> Mesh:
    low, high = points.min(axis=0), points.max(axis=0)
    corners, faces = box()
    return 0.5 * (low + high) + corners * (high - low), faces


def with_sharp_edges(mesh: Mesh, angle: float = 0.6) -> Mesh:
    """The mesh with shared vertices across smooth edges and separate vertices at sharp ones.

    Views compute a normal for each vertex from its faces, so edges are sharp exactly where vertices are separate. Before sharp
    edges are found, vertices at equal positions (to a millionth of the size of the mesh) are merged; triangles without area and
    vertices without triangles are left out.

    Args:
        mesh: Any mesh.
        angle: Smallest angle (rad) between the normals of two adjacent faces at which their common edge is sharp.
    """
    size = float(np.abs(mesh[0]).max(initial=0.0)) or 1.0
    rounded = np.round(mesh[0] * (1e6 / size)).astype(np.int64) + 2**20  # 21 bits for each coordinate
    _, first, merged = np.unique(rounded @ [2**42, 2**21, 1], return_index=True, return_inverse=True)
    points, faces = mesh[0][first], merged[mesh[1]]
    a, b, c = np.moveaxis(points[faces], 1, 0)
    normals = np.cross(b - a, c - a)
    area = np.linalg.norm(normals, axis=1)
    kept = area > 0
    faces, normals = faces[kept], normals[kept] / area[kept, None]
    if not len(faces):
        return np.zeros((0, 3)), np.zeros((0, 3), int)
    # Each edge as its two corners (indices into the flat faces), ordered by vertex; equal edges follow each other after sorting.
    corners = np.arange(faces.size).reshape(-1, 3)
    edges = np.stack([corners, np.roll(corners, -1, axis=1)], axis=-1).reshape(-1, 2)
    ends = faces.reshape(-1)[edges]
    edges = np.take_along_axis(edges, np.argsort(ends, axis=1), axis=1)
    ends = np.sort(ends, axis=1)
    order = np.lexsort(ends.T)
    edges, ends = edges[order], ends[order]
    same = np.all(ends[1:] == ends[:-1], axis=1)
    face = edges[:, 0] // 3
    smooth = same & (np.sum(normals[face[1:]] * normals[face[:-1]], axis=1) > np.cos(angle))
    # The import takes 0.3 s, and most mechanisms have no meshes.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = np.concatenate([np.stack([edges[:-1][smooth, k], edges[1:][smooth, k]]) for k in (0, 1)], axis=1)
    count = faces.size
    _, vertex = connected_components(coo_array((np.ones(links.shape[1], bool), tuple(links)), (count, count)), False)
    _, first = np.unique(vertex, return_index=True)
    return points[faces.reshape(-1)[first]], vertex.reshape(-1, 3)
