"""Random structures of mechanisms, and random numbers for each: systems of one structure can be stacked and run as one batch.

Unlike in `random_trees`, numbers are not of order one: masses and lengths run over decades, and axes, placements and mass centers
are special ones now and then, along the axes of the coordinates and at the origin.
"""

import dataclasses
from typing import Any

import numpy as np
from random_trees import ALL_KINDS, random_inertia, random_joint, random_parents, random_unit

from jaxdyn import (
    Cylindrical,
    Damper,
    Fixed,
    JointFriction,
    JointSpring,
    MechanismBuilder,
    Planar,
    Prismatic,
    Revolute,
    Screw,
    Spring,
    System,
    Universal,
)
from jaxdyn.mechanism import Joint

_STRAIGHT = "RPHCUL"  # kinds with axes


@dataclasses.dataclass(frozen=True)
class Structure:
    """What the mechanisms of one batch have in common.

    Attributes:
        parents: of every body, -1 for the ground.
        kinds: a letter of `random_joint` for every body, "X" for a fixed one.
        order: in which the bodies are added; a body may come before its parent.
        rotor: the body whose joint a geared rotor on the ground drives, or None.
        forces: whether joints have friction and springs, and a spring and a damper hold the frame "tip".
    """

    parents: tuple[int, ...]
    kinds: str
    order: tuple[int, ...]
    rotor: int | None
    forces: bool


def random_structure(rng: np.random.Generator, bodies: int) -> Structure:
    """A random tree of joints of any kind, every ninth fixed and every tenth prescribed; at least one body moves freely."""
    kinds = ""
    while not any(kind in ALL_KINDS for kind in kinds):
        drawn = rng.choice([*ALL_KINDS, "X"], bodies)
        kinds = "".join(kind.lower() if kind != "X" and rng.random() < 0.1 else kind for kind in drawn)
    driven = [i for i, kind in enumerate(kinds) if kind in "RPH"]
    rotor = int(rng.choice(driven)) if driven and rng.random() < 0.5 else None
    order = tuple(int(i) for i in rng.permutation(bodies))
    return Structure(tuple(random_parents(rng, bodies)), kinds, order, rotor, bool(rng.random() < 0.5))


def _body(rng: np.random.Generator, structure: Structure, i: int, scale: float, length: float) -> dict[str, Any]:
    parent, kind = structure.parents[i], structure.kinds[i]
    mass = scale * 10.0 ** rng.uniform(-1.0, 1.0)
    com, inertia = random_inertia(rng, mass, 0.3 * length)
    rotor = 0.1 * scale * (1.0 if kind in "Pp" else length**2)
    limits = {}
    if kind in _STRAIGHT and rng.random() < 0.5:
        lower, upper = -rng.uniform(0.1, 2.0), rng.uniform(0.1, 2.0)
        limits = {"position_limits": (lower, upper), "velocity_limit": 10.0, "effort_limit": 100.0 * scale}
    return {
        "name": f"body {i}",
        "parent": "ground" if parent < 0 else f"body {parent}",
        "joint": _joint(rng, kind),
        "position": 0.5 * length * rng.normal(size=3) * (rng.random() < 0.8),
        "orientation": random_unit(rng, 4) if rng.random() < 0.5 else (1.0, 0.0, 0.0, 0.0),
        "mass": mass,
        "com": com * (rng.random() < 0.8),
        "inertia": inertia,
        "armature": rotor * rng.uniform(0.0, 1.0) * (rng.random() < 0.3),
        **limits,
    }


def _joint(rng: np.random.Generator, kind: str) -> Joint:
    """As `random_joint`, half of them on axes of the coordinates."""
    if kind == "X":
        return Fixed()
    if kind not in _STRAIGHT or rng.random() < 0.5:
        return random_joint(rng, kind)
    first, second, _ = rng.permutation(np.eye(3)) * rng.choice([-1.0, 1.0])
    if kind == "H":
        return Screw(first, 0.1 * rng.normal())
    if kind in "UL":
        return {"U": Universal, "L": Planar}[kind](first, second)
    return {"R": Revolute, "P": Prismatic, "C": Cylindrical}[kind](first)


def random_system(rng: np.random.Generator, structure: Structure) -> System:
    """A mechanism of this structure with its forces, whose sizes suit its mass and its length; double precision.

    A mass (1 g to 1 t) and a length (1 cm to 10 m) set its scale: its bodies have a tenth of that mass to ten times it. Every fifth
    stands at the origin of its parent, every fifth has its mass center at its own, and every fifth mechanism knows no gravity.
    """
    scale, length = 10.0 ** rng.uniform(-3.0, 3.0), 10.0 ** rng.uniform(-2.0, 1.0)
    bodies = [_body(rng, structure, i, scale, length) for i in structure.order]
    tip, rotors = length * rng.normal(size=3), []
    if structure.rotor is not None:
        lever = length if structure.kinds[structure.rotor] == "P" else 1.0
        ratio = rng.choice([-1.0, 1.0]) * rng.uniform(1.0, 20.0) / lever
        driven = {"carrier": "ground", "joint": f"body {structure.rotor}", "ratio": ratio, "axis": random_unit(rng)}
        rotors = [{"name": "rotor", "inertia": 0.01 * scale * length**2, **driven}]
    builder = MechanismBuilder("random", 9.81 * random_unit(rng) * (rng.random() < 0.8))
    for body in bodies:
        builder.add_body(**body)
    last = max(i for i, kind in enumerate(structure.kinds) if kind in ALL_KINDS)
    builder.add_frame("tip", body=f"body {last}", position=tip)
    for rotor in rotors:
        builder.add_rotor(**rotor)
    model = builder.build(dtype=float)
    if not structure.forces:
        return System(model)
    nv, origin = model.nv, np.zeros(3)
    unit = 0.1 * scale * length**2
    ends = *model.locate("tip", origin), *model.locate("ground", origin)
    forces = (
        JointFriction(unit * rng.uniform(size=nv), unit * rng.uniform(size=nv), np.full(nv, 0.1)),
        JointSpring(10.0 * unit * rng.uniform(size=nv), rng.normal(size=model.nq)),
        Spring(*ends, 10.0 * scale * rng.uniform(), length),
        Damper(*ends, scale * rng.uniform()),
    )
    return System(model, forces)
