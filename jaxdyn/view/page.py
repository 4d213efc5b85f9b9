"""HTML pages that draw a mechanism in three dimensions, without a server, network or optional package.

The script of a page places the parts of the mechanism on nodes, which are the bodies or the primitives of their joints. It computes
the poses of nodes from sliders, or takes them from tables.
"""

import base64
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxdyn.dynamics.paths import Path as ForcePath
from jaxdyn.io.files import write_content
from jaxdyn.io.shapes.solids import Mesh, cylinder, sphere
from jaxdyn.io.shapes.visual_files import MOST_TRIANGLES
from jaxdyn.io.shapes.visuals import Visual, with_fewer_triangles
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.plain import rotation_quaternion
from jaxdyn.view import contacts, skeleton, staging
from jaxdyn.view.contacts import Ground
from jaxdyn.view.skeleton import Mechanism, Placed
from jaxdyn.view.style import BLUE, CYAN, GRAY, MOTION_COLORS, RED, rgb

_TEMPLATE = Path(__file__).with_name("page.html")
_OF_FRAMES = ((0.8, 0.15, 0.15), (0.1, 0.6, 0.2), (0.15, 0.3, 0.85))


def write_page(path: Path | str, content: dict[str, Any]) -> None:
    """Write a page whose script shows the content.

    Names in the content come from untrusted files. As JSON without "<" they cannot end the script, which shows them as text only.

    Raises:
        ConfigError: The file cannot be written.
    """
    text = json.dumps(content, default=np.ndarray.tolist).replace("<", "\\u003c")
    write_content(path, _TEMPLATE.read_text(encoding="utf-8").replace("@@content@@", text))


def scene_of(
    mechanism: Mechanism,
    low: Float[np.ndarray, "3"],
    high: Float[np.ndarray, "3"],
    visuals: Sequence[Visual],
    carriers: Sequence[int],
) -> dict[str, Any]:
    """The content that all pages of a mechanism share: its parts on their nodes, the ground, colors, and the first point of view.

    Args:
        mechanism: A model, or a system, whose loops, ground, contacts and lines of forces are drawn too.
        low, high: Corners of the box around the mechanism, m.
        visuals: Shapes of the bodies; those of more triangles than `load_visuals` returns are simplified.
        carriers: Index of the node that carries each body.
    """
    model = skeleton.model_of(mechanism)
    grounds, low, high = contacts.with_ground(mechanism, low, high)
    up = staging.upward(model)
    side, front = staging.horizontal_axes(up)
    looking = staging.direction_of_view(up)
    bare = not skeleton.is_covered(model, visuals)
    sticks, solids = skeleton.sticks(mechanism), skeleton.inertia_ellipsoids(model)
    paths, spheres = skeleton.force_paths(mechanism), contacts.spheres_of(mechanism)
    nodes = [*carriers, GROUND]  # the last one is the ground, -1
    visuals = with_fewer_triangles(visuals, MOST_TRIANGLES)
    shapes = {id(visual.mesh): visual.mesh for visual in visuals}
    meshes = (cylinder(), sphere(), contacts.arrow(), *shapes.values())
    places = {key: len(meshes) - len(shapes) + k for k, key in enumerate(shapes)}
    turns = map(rotation_quaternion, solids.axes)
    ellipsoids = zip(solids.bodies, solids.centers, turns, skeleton.visible_radii(solids), strict=True)
    return {
        "middle": 0.5 * (low + high),
        "size": float((high - low).max()),
        "view": {"up": up, "side": side, "front": front},
        "yaw": float(np.arctan2(looking @ front, looking @ side)),
        "lines": _lines(grounds, up, low, high),
        "colors": dict(zip(("blue", "cyan", "gray", "red"), map(color_of, (BLUE, CYAN, GRAY, RED)), strict=True)),
        "axesOfFrames": _OF_FRAMES,
        "switches": [
            *([["visuals", True]] if visuals else []),
            ["sticks", bare],
            ["joint axes", bare],
            ["ellipsoids", bare],
            ["frames", False],
            *([["lines of forces", True]] if paths else []),
            *([["contacts", True]] if len(spheres.radii) else []),
        ],
        "sticks": [[nodes[a], p, nodes[b], r] for (a, b), (p, r) in zip(*sticks, strict=True)],
        "forceLines": [line for path in paths for line in _force_lines(path, nodes)],
        "joints": [
            [node, color_of(MOTION_COLORS[skeleton.joint_motion(model, body)])] for body, node in enumerate(carriers)
        ],
        "solids": [
            {"node": nodes[body], "at": at, "turn": turn, "radii": radii} for body, at, turn, radii in ellipsoids
        ],
        "contacts": [
            {"node": nodes[body], "at": center, "radius": float(radius), "contact": int(contact)}
            for body, center, radius, contact in zip(*spheres, strict=True)
        ],
        "visuals": [
            {
                "node": nodes[visual.body],
                "at": visual.position,
                "turn": visual.quaternion,
                "scale": visual.scale,
                "mesh": places[id(visual.mesh)],
                "color": visual.color,
            }
            for visual in sorted(visuals, key=lambda visual: visual.color[3] < 1.0)  # transparent ones last
        ],
        "meshes": [_encoded_mesh(mesh) for mesh in meshes],
    }


def poses_of(placed: Placed) -> Float[np.ndarray, "times nb 7"]:
    """Poses [quaternion, origin] of the bodies in the first sample; the signs of the quaternions are those of the nearest ones."""
    turns = placed.quaternions[0]
    signs = np.where(np.sum(turns[1:] * turns[:-1], axis=-1, keepdims=True) < 0.0, -1.0, 1.0)
    turns = np.concatenate([turns[:1], np.cumprod(signs, axis=0) * turns[1:]])
    return np.concatenate([turns, placed.origins[0]], axis=-1)


def encoded(values: np.ndarray, kind: str = "<f4") -> str:
    """Numbers of a kind as text, of which each byte takes 4/3."""
    return base64.b64encode(values.astype(kind).tobytes()).decode()


def color_of(color: str) -> list[float]:
    """Red, green and blue, 0 to 1, of a color such as "#1f5fa8"."""
    return [round(part / 255, 4) for part in rgb(color)]


def _force_lines(path: ForcePath, nodes: Sequence[int]) -> list[list[Any]]:
    """Radius of the obstacle, and points of each part of a path as in `Path.parts`, with the node that carries each of them."""
    at = [
        *zip((nodes[body] for body in path.bodies), np.asarray(path.points), strict=True),
        None,
    ]  # the last one is for -1
    return [
        [radius, *(at[k] for k in part)] for radius, (_, *part) in zip(path.radii.tolist(), path.parts, strict=True)
    ]


def _lines(grounds: list[Ground], up: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Coordinates of the ends of all lines of the ground, or without contacts with the ground of a floor below the mechanism."""
    fields = [contacts.lines_of(ground) for ground in grounds if ground.normal is None]
    planes = [(ground.points.mean(axis=(0, 1)), ground.normal) for ground in grounds if ground.normal is not None]
    size = float((high - low).max())
    cell = staging.round_length(size / 5)
    count = int(np.ceil(1.2 * size / cell))
    offsets = cell * np.arange(-count, count + 1)
    for middle, normal in planes if grounds else [(staging.floor_under(up, low, high), up)]:
        for along, across in itertools.permutations(staging.horizontal_axes(normal)):
            starts = middle + np.multiply.outer(offsets, across)
            half = count * cell * along
            fields.append(np.stack([starts - half, starts + half], axis=1))
    return np.concatenate(fields).round(6).ravel()


def _encoded_mesh(mesh: Mesh) -> dict[str, Any]:
    """A mesh as text: each coordinate in 65535 steps across the box around the mesh, and indices with as few bytes as they need."""
    points, faces = mesh
    low, wide = points.min(axis=0, initial=np.inf), len(points) > 65536
    steps = np.maximum(points.max(axis=0, initial=-np.inf) - low, 1e-12) / 65535
    places = encoded(np.round((points - low) / steps), "<u2")
    return {
        "points": places,
        "low": low,
        "steps": steps,
        "faces": encoded(faces, "<u4" if wide else "<u2"),
        "wide": wide,
    }
