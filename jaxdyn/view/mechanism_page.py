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

from jaxdyn.io.files import write_content
from jaxdyn.io.shapes import Mesh, cylinder, sphere
from jaxdyn.io.visuals import Visual
from jaxdyn.mechanism.joints import Prismatic, Revolute, Screw
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.view import contacts, skeleton
from jaxdyn.view.contacts import Ground
from jaxdyn.view.page import filled
from jaxdyn.view.postures import Posture, Postures
from jaxdyn.view.skeleton import Mechanism
from jaxdyn.view.staging import (
    direction_of_view,
    floor_under,
    horizontal_axes,
    quaternions_of,
    round_length,
    upward,
)
from jaxdyn.view.style import BLUE, MOTION_COLORS, RED, rgb

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
    up = upward(model)
    side, front = horizontal_axes(up)
    looking = direction_of_view(up)
    bare = not skeleton.is_covered(model, visuals)
    shapes = {id(visual.mesh): visual.mesh for visual in visuals}
    known = {} if neutral is None else {"neutral": neutral.values.tolist()}
    return {
        "title": f"{model.name}: {model.nb} bodies, nv = {model.nv}",
        "note": _note(postures) if tables else "",
        "sliders": sliders,
        "independent": postures.independent,
        "random": postures.chosen_at_random,
        "postures": {**known, "middle": postures.middle.values.tolist()},
        "nodes": _nodes(primitives) if is_computed else [],
        "tables": tables,
        "middle": middle.tolist(),
        "size": size,
        "view": {"up": up.tolist(), "side": side.tolist(), "front": front.tolist()},
        "yaw": float(np.arctan2(looking @ front, looking @ side)),
        "lines": _lines(grounds, up, low, high),
        "contacts": _contacts(postures),
        "colors": {"stick": _color(BLUE), "solid": _color(BLUE), "contact": _color(RED), "axes": _OF_FRAMES},
        "switches": [
            *([["visuals", True]] if visuals else []),
            ["sticks", bare],
            ["joint axes", bare],
            ["ellipsoids", bare],
            ["frames", False],
            *([["contacts", True]] if contacts.contacts_of(system) else []),
        ],
        "meshes": [_encoded(mesh) for mesh in (cylinder(), sphere(), *shapes.values())],
        "visuals": _shapes(postures, visuals, [0, 0, *shapes]),
        **_drawn(postures),
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
        axis = np.asarray(joint.axis, float)
        shifts = 1.0 if isinstance(joint, Prismatic) else float(getattr(joint, "pitch", 0.0))
        nodes.append(
            {
                "parent": parent,
                "turn": turn[body].tolist(),
                "at": at[body].tolist(),
                "axis": (axis / np.linalg.norm(axis)).tolist(),
                "turns": 0.0 if isinstance(joint, Prismatic) else 1.0,
                "shifts": shifts,
                "slider": body,
            }
        )
    return nodes


def _tables(postures: Postures) -> dict[str, dict[str, Any]]:
    """For each independent slider, the values at which the loops can be closed, and the poses of all nodes there."""
    tables = {"rest": {"values": [0.0, 1.0], "poses": _poses(postures, [postures.middle] * 2)}}
    for k in postures.independent:
        slider, middle = postures.sliders[k], float(postures.middle.values[k])
        below = _swing(postures, k, np.linspace(middle, min(slider.low, middle), _ROWS + 1)[1:])
        above = _swing(postures, k, np.linspace(middle, max(slider.high, middle), _ROWS + 1)[1:])
        row = [*reversed(below), postures.middle, *above]
        if len(row) > 1:
            tables[str(k)] = {"values": [round(float(p.values[k]), 6) for p in row], "poses": _poses(postures, row)}
    return tables


def _swing(postures: Postures, index: int, values: np.ndarray) -> list[Posture]:
    """Postures for increasing distances of a slider from its middle, until the loops cannot be closed any more."""
    found, posture = [], postures.middle
    for value in values:
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


def _nodes_of_bodies(postures: Postures) -> dict[int, int]:
    names = postures.primitives.topology.body_names
    carried = {body: names.index(name) for body, name in enumerate(postures.system.model.topology.body_names)}
    return {**carried, GROUND: GROUND}


def _shapes(postures: Postures, visuals: Sequence[Visual], meshes: list[int]) -> list[dict[str, Any]]:
    """Visuals on the nodes that carry them, transparent ones last; `meshes` has the identity of each mesh of the page."""
    nodes = _nodes_of_bodies(postures)
    return [
        {
            "node": nodes[visual.body],
            "at": visual.position.tolist(),
            "turn": visual.quaternion.tolist(),
            "scale": visual.scale.tolist(),
            "mesh": meshes.index(id(visual.mesh)),
            "color": visual.color,
        }
        for visual in sorted(visuals, key=lambda visual: visual.color[3] < 1.0)
    ]


def _drawn(postures: Postures) -> dict[str, Any]:
    """Sticks, joints with their axes and ellipsoids, on the nodes that carry them."""
    model, primitives = postures.system.model, postures.primitives
    nodes = _nodes_of_bodies(postures)
    sticks, solids = skeleton.sticks(postures.system), skeleton.inertia_ellipsoids(model)
    owners = np.repeat(np.arange(model.nb), np.diff([*nodes.values()][:-1], prepend=-1))  # the body of each node
    colors = [_color(MOTION_COLORS[skeleton.joint_motion(model, body)]) for body in range(model.nb)]
    counts = np.bincount(owners, minlength=model.nb)
    released = [primitives.joint(node).released() for node in range(primitives.nb)]
    return {
        "sticks": [
            [nodes[int(a)], p.tolist(), nodes[int(b)], r.tolist()]
            for (a, b), (p, r) in zip(sticks.bodies, sticks.points, strict=True)
        ],
        "joints": [[nodes[body], colors[body]] for body in range(model.nb)],
        "axes": [
            [node, (axis / np.linalg.norm(axis)).tolist(), colors[body]]
            for node, body in enumerate(owners.tolist())
            if counts[body] <= 2
            for axis in [np.asarray(getattr(released[node], "axis", np.zeros(0)), float)]
            if axis.size
        ],
        "solids": [
            {"node": nodes[int(body)], "at": at.tolist(), "turn": turn.tolist(), "radii": radii.tolist()}
            for body, at, turn, radii in zip(
                solids.bodies,
                solids.centers,
                quaternions_of(solids.axes),
                skeleton.visible_radii(solids),
                strict=True,
            )
        ],
    }


def _lines(grounds: list[Ground], up: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[float]:
    """Coordinates of the ends of all lines of the ground, or without contacts with the ground of a floor below the mechanism."""
    fields = [contacts.lines_of(ground) for ground in grounds if ground.normal is None]
    planes = [(ground.points.mean(axis=(0, 1)), ground.normal) for ground in grounds if ground.normal is not None]
    size = float((high - low).max())
    cell = round_length(size / 5)
    count = int(np.ceil(1.2 * size / cell))
    offsets = cell * np.arange(-count, count + 1)
    for middle, normal in planes if grounds else [(floor_under(up, low, high), up)]:
        for along, across in itertools.permutations(horizontal_axes(normal)):
            starts = middle + np.multiply.outer(offsets, across)
            half = count * cell * along
            fields.append(np.stack([starts - half, starts + half], axis=1))
    return np.concatenate(fields).round(6).ravel().tolist()


def _contacts(postures: Postures) -> list[dict[str, Any]]:
    """Spheres of the contacts on the nodes that carry them."""
    nodes, spheres = _nodes_of_bodies(postures), contacts.spheres_of(postures.system)
    return [
        {"node": nodes[int(body)], "at": center.tolist(), "radius": float(radius)}
        for body, center, radius in zip(spheres.bodies, spheres.centers, spheres.radii, strict=True)
    ]


def _encoded(mesh: Mesh) -> dict[str, Any]:
    """A mesh as text: each coordinate in 65535 steps across the box around the mesh, and indices with as few bytes as they need."""
    points, faces = mesh
    low = points.min(axis=0, initial=np.inf)
    steps = np.maximum(points.max(axis=0, initial=-np.inf) - low, 1e-12) / 65535
    return {
        "points": base64.b64encode(np.round((points - low) / steps).astype("<u2").tobytes()).decode(),
        "low": low.tolist(),
        "steps": steps.tolist(),
        "faces": base64.b64encode(faces.astype("<u2" if len(points) <= 65536 else "<u4").tobytes()).decode(),
        "wide": len(points) > 65536,
    }


def _color(color: str) -> list[float]:
    return [round(part / 255, 4) for part in rgb(color)]
