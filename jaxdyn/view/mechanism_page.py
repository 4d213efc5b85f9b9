"""A mechanism with one slider per joint coordinate, as one HTML page that needs no server, network or optional package.

The page computes the poses of bodies on a tree of revolute, prismatic and screw joints. For a mechanism with loops, with prescribed
motions or with other kinds of joints, the page contains precomputed tables of poses instead, one for each slider.
"""

import base64
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn.dynamics.paths import Path as ForcePath
from jaxdyn.io.files import write_content
from jaxdyn.io.shapes.solids import Mesh, cylinder, sphere
from jaxdyn.io.shapes.visuals import Visual
from jaxdyn.mechanism.joints import Prismatic, Revolute, Screw
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.view import contacts, skeleton, staging
from jaxdyn.view.contacts import Ground
from jaxdyn.view.page import filled
from jaxdyn.view.postures import Posture, Postures
from jaxdyn.view.skeleton import Mechanism
from jaxdyn.view.style import BLUE, CYAN, MOTION_COLORS, RED, rgb

_TEMPLATE = Path(__file__).with_name("mechanism_page.html")
_ROWS = 20  # of a table, from the middle to either end of a slider
_OF_FRAMES = ((0.8, 0.15, 0.15), (0.1, 0.6, 0.2), (0.15, 0.3, 0.85))


def write_mechanism_page(mechanism: Mechanism, path: Path | str, *, visuals: Sequence[Visual] = ()) -> None:
    """Write a page that shows a mechanism in three dimensions, with a slider for each joint coordinate.

    For a mechanism with loops, each slider sets one independent coordinate, while the other independent coordinates have the values
    of the middle posture.

    Args:
        mechanism: A model, or a system; the loops of a system are closed and drawn.
        path: The HTML file.
        visuals: Shapes of the bodies, see `jaxdyn.io.load_visuals`. A page with the largest number of triangles that `load_visuals`
            returns has at most 5 MB.

    Raises:
        ConfigError: the loops cannot be closed, or the file cannot be written.
    """
    write_content(path, filled(_TEMPLATE, _content(Postures(mechanism), visuals)))


def _content(postures: Postures, visuals: Sequence[Visual]) -> dict[str, Any]:
    system, model, primitives = postures.system, postures.system.model, postures.primitives
    low, high = postures.box(visuals)
    grounds, low, high = contacts.with_ground(system, low, high)
    size, middle = float((high - low).max()), 0.5 * (low + high)
    is_computed = not system.constraints and all(
        kind in (Revolute, Prismatic, Screw) for kind in primitives.topology.joint_classes
    )
    neutral = postures.neutral() if is_computed else None
    tables = None if is_computed else _tables(postures)
    sliders = [slider._asdict() for slider in postures.sliders]
    for k, table in (tables or {}).items():
        if k != "rest":
            sliders[int(k)] |= {"low": table["values"][0], "high": table["values"][-1]}
    up = staging.upward(model)
    side, front = staging.horizontal_axes(up)
    looking = staging.direction_of_view(up)
    bare = not skeleton.is_covered(model, visuals)
    known = {} if neutral is None else {"neutral": neutral.values}
    return {
        "title": f"{model.name}: {model.nb} bodies, nv = {model.nv}",
        "note": _note(postures) if tables else "",
        "sliders": sliders,
        "independent": postures.independent,
        "random": postures.chosen_at_random,
        "postures": {**known, "middle": postures.middle.values},
        "nodes": _nodes(primitives) if is_computed else [],
        "tables": tables,
        "middle": middle,
        "size": size,
        "view": {"up": up, "side": side, "front": front},
        "yaw": float(np.arctan2(looking @ front, looking @ side)),
        "lines": _lines(grounds, up, low, high),
        "colors": {
            "stick": _color(BLUE),
            "solid": _color(BLUE),
            "contact": _color(RED),
            "force": _color(CYAN),
            "axes": _OF_FRAMES,
        },
        "switches": [
            *([["visuals", True]] if visuals else []),
            ["sticks", bare],
            ["joint axes", bare],
            ["ellipsoids", bare],
            ["frames", False],
            *([["lines of forces", True]] if skeleton.force_paths(system) else []),
            *([["contacts", True]] if contacts.contacts_of(system) else []),
        ],
        **_drawn(postures, visuals),
    }


def _note(postures: Postures) -> str:
    if len(postures.independent) > 1:
        return "The loops stay closed. One slider moves at a time, from the posture in the middle."
    return "The loops stay closed." if postures.system.constraints else ""


def _nodes(primitives: Model) -> list[dict[str, Any]]:
    """The tree of joints of one degree of freedom, parents first."""
    turn, at = (np.asarray(x, float) for x in (primitives.placement.quaternion, primitives.placement.translation))
    turn = turn / np.linalg.norm(turn, axis=1, keepdims=True)
    nodes = []
    for body, parent in enumerate(primitives.topology.parents):
        joint: Any = primitives.joint(body)
        turns, shifts = (0.0, 1.0) if isinstance(joint, Prismatic) else (1.0, float(getattr(joint, "pitch", 0.0)))
        moves = {"axis": _direction(joint), "turns": turns, "shifts": shifts, "slider": body}
        nodes.append({"parent": parent, "turn": turn[body], "at": at[body], **moves})
    return nodes


def _tables(postures: Postures) -> dict[str, dict[str, Any]]:
    """For each independent slider, the values at which the loops can be closed, and the poses of all nodes there."""
    tables = {"rest": {"values": [0.0, 1.0], "poses": _poses(postures, [postures.middle] * 2)}}
    for k in postures.independent:
        slider, middle = postures.sliders[k], float(postures.middle.values[k])
        below, above = (_swing(postures, k, end) for end in (min(slider.low, middle), max(slider.high, middle)))
        row = [*reversed(below), postures.middle, *above]
        if len(row) > 1:
            tables[str(k)] = {"values": [round(float(p.values[k]), 6) for p in row], "poses": _poses(postures, row)}
    return tables


def _swing(postures: Postures, index: int, end: float) -> list[Posture]:
    """Postures for increasing distances of a slider from its middle to one end, until the loops cannot be closed any more."""
    found, posture = [], postures.middle
    for value in np.linspace(posture.values[index], end, _ROWS + 1)[1:]:
        wanted = postures.middle.values.copy()
        wanted[index] = value
        posture = postures.moved(posture, wanted)
        if posture is None:
            break
        found.append(posture)
    return found


def _poses(postures: Postures, row: list[Posture]) -> list[list[list[float]]]:
    placed = postures.placed(row, primitives=True)
    poses = np.concatenate([placed.quaternions[0], placed.origins[0]], axis=-1)
    return [[[float(f"{x:.5g}") for x in pose] for pose in instant] for instant in poses]


def _drawn(postures: Postures, visuals: Sequence[Visual]) -> dict[str, Any]:
    """Sticks, joints with their axes, ellipsoids, contacts and visuals, on the nodes that carry them, and all meshes."""
    system, model, primitives = postures.system, postures.system.model, postures.primitives
    sticks, solids = skeleton.sticks(system), skeleton.inertia_ellipsoids(model)
    names = primitives.topology.body_names
    carriers = [names.index(name) for name in model.topology.body_names]  # the node that carries each body
    nodes = [*carriers, GROUND]  # the last one is the ground, -1
    owners = np.searchsorted(carriers, np.arange(primitives.nb))  # the body of each node
    colors = [_color(MOTION_COLORS[skeleton.joint_motion(model, body)]) for body in range(model.nb)]
    directions = [_direction(primitives.joint(node).released()) for node in range(primitives.nb)]
    shapes = {id(visual.mesh): visual.mesh for visual in visuals}
    places = {key: 2 + k for k, key in enumerate(shapes)}  # of the meshes on the page
    transparent_last = sorted(visuals, key=lambda visual: visual.color[3] < 1.0)
    ellipsoids = zip(
        solids.bodies, solids.centers, staging.quaternions_of(solids.axes), skeleton.visible_radii(solids), strict=True
    )
    return {
        "sticks": [[nodes[a], p, nodes[b], r] for (a, b), (p, r) in zip(*sticks, strict=True)],
        "forceLines": [line for path in skeleton.force_paths(system) for line in _force_lines(path, nodes)],
        "joints": [*map(list, zip(carriers, colors, strict=True))],
        "axes": [
            [node, direction, colors[body]]
            for node, (body, direction) in enumerate(zip(owners, directions, strict=True))
            if direction is not None and np.sum(owners == body) <= 2
        ],
        "solids": [
            {"node": nodes[body], "at": at, "turn": turn, "radii": radii} for body, at, turn, radii in ellipsoids
        ],
        "contacts": [
            {"node": nodes[body], "at": center, "radius": float(radius)}
            for body, center, radius, _ in zip(*contacts.spheres_of(system), strict=True)
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
            for visual in transparent_last
        ],
        "meshes": [_encoded(mesh) for mesh in (cylinder(), sphere(), *shapes.values())],
    }


def _force_lines(path: ForcePath, nodes: Sequence[int]) -> list[dict[str, Any]]:
    """Lines between two points on nodes; if they go around an obstacle, all points on it are on the node that carries it."""
    at = [{"node": nodes[body], "at": point} for body, point in zip(path.bodies, np.asarray(path.points), strict=True)]
    at.append({})  # of the index -1
    names = ("from", "to", "center", "tip", "side")
    lines = [dict(zip(names, (at[k] for k in indices), strict=True)) for _, *indices in path.parts]
    return [line | {"radius": float(radius)} for line, radius in zip(lines, np.asarray(path.radii), strict=True)]


def _direction(joint: Any) -> np.ndarray | None:
    """Unit vector along the axis of a joint, if it has one."""
    if not hasattr(joint, "axis"):
        return None
    axis = np.asarray(joint.axis, float)
    return axis / np.linalg.norm(axis)


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


def _encoded(mesh: Mesh) -> dict[str, Any]:
    """A mesh as text: each coordinate in 65535 steps across the box around the mesh, and indices with as few bytes as they need."""
    points, faces = mesh
    low = points.min(axis=0, initial=np.inf)
    steps = np.maximum(points.max(axis=0, initial=-np.inf) - low, 1e-12) / 65535
    return {
        "points": base64.b64encode(np.round((points - low) / steps).astype("<u2").tobytes()).decode(),
        "low": low,
        "steps": steps,
        "faces": base64.b64encode(faces.astype("<u2" if len(points) <= 65536 else "<u4").tobytes()).decode(),
        "wide": len(points) > 65536,
    }


def _color(color: str) -> list[float]:
    return [round(part / 255, 4) for part in rgb(color)]
