"""A mechanism with one slider per joint coordinate, as one HTML page that needs no server, network or optional package.

The page computes the poses of bodies on a tree of revolute, prismatic and screw joints. For a mechanism with loops, with prescribed
motions or with other kinds of joints, the page contains precomputed tables of poses instead, one for each slider.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn.io.shapes.visuals import Visual
from jaxdyn.mechanism.joints import Prismatic, Revolute, Screw
from jaxdyn.mechanism.model import Model
from jaxdyn.view import skeleton
from jaxdyn.view.page import color_of, encoded, poses_of, scene_of, write_page
from jaxdyn.view.postures import Posture, Postures
from jaxdyn.view.skeleton import Mechanism
from jaxdyn.view.style import MOTION_COLORS

_ROWS = 20  # of a table, from the middle to either end of a slider


def write_mechanism_page(mechanism: Mechanism, path: Path | str, *, visuals: Sequence[Visual] = ()) -> None:
    """Write a page that shows a mechanism in three dimensions, with a slider for each joint coordinate.

    For a mechanism with loops, each slider sets one independent coordinate, while the other independent coordinates have the values
    of the middle posture.

    Args:
        mechanism: A model, or a system; the loops of a system are closed and drawn.
        path: The HTML file.
        visuals: Shapes of the bodies, see `jaxdyn.io.load_visuals`; a page has at most 5 MB.

    Raises:
        ConfigError: the loops cannot be closed, or the file cannot be written.
    """
    write_page(path, _content(Postures(mechanism), visuals))


def _content(postures: Postures, visuals: Sequence[Visual]) -> dict[str, Any]:
    system, model, primitives = postures.system, postures.system.model, postures.primitives
    is_computed = not system.constraints and all(
        kind in (Revolute, Prismatic, Screw) for kind in primitives.topology.joint_classes
    )
    neutral = postures.neutral() if is_computed else None
    tables = None if is_computed else _tables(postures)
    sliders = [slider._asdict() for slider in postures.sliders]
    for k, table in (tables or {}).items():
        if k != "rest":
            sliders[int(k)] |= {"low": table["values"][0], "high": table["values"][-1]}
    known = {} if neutral is None else {"neutral": neutral.values}
    names = primitives.topology.body_names
    carriers = [names.index(name) for name in model.topology.body_names]
    return {
        "title": f"{model.name}: {model.nb} bodies, nv = {model.nv}",
        "note": _note(postures) if tables else "",
        "sliders": sliders,
        "independent": postures.independent,
        "random": () if tables else postures.chosen_at_random,
        "start": postures.middle.values,
        "postures": {**known, "middle": postures.middle.values},
        "nodes": _nodes(primitives) if is_computed else [],
        "tables": tables,
        "axes": _axes(model, primitives, carriers),
        **scene_of(system, *postures.box(visuals), visuals, carriers),
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
    tables = {"rest": _table(postures, [0.0, 1.0], [postures.middle] * 2)}
    for k in postures.independent:
        slider, middle = postures.sliders[k], float(postures.middle.values[k])
        below, above = (_swing(postures, k, end) for end in (min(slider.low, middle), max(slider.high, middle)))
        row = [*reversed(below), postures.middle, *above]
        if len(row) > 1:
            tables[str(k)] = _table(postures, [round(float(p.values[k]), 6) for p in row], row)
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


def _table(postures: Postures, values: list[float], row: list[Posture]) -> dict[str, Any]:
    return {"values": values, "rows": {"poses": encoded(poses_of(postures.placed(row, primitives=True)))}}


def _axes(model: Model, primitives: Model, carriers: list[int]) -> list[list[Any]]:
    """Node, direction and color of the axes of all joints with one or two degrees of freedom."""
    owners = np.searchsorted(carriers, np.arange(primitives.nb)).tolist()  # the body of each node
    directions = [_direction(primitives.joint(node).released()) for node in range(primitives.nb)]
    return [
        [node, direction, color_of(MOTION_COLORS[skeleton.joint_motion(model, body)])]
        for node, (body, direction) in enumerate(zip(owners, directions, strict=True))
        if direction is not None and owners.count(body) <= 2
    ]


def _direction(joint: Any) -> np.ndarray | None:
    """Unit vector along the axis of a joint, if it has one."""
    if not hasattr(joint, "axis"):
        return None
    axis = np.asarray(joint.axis, float)
    return axis / np.linalg.norm(axis)
