"""Rotors of geared drives, which spin faster than the joints that they drive: their numbers. `jaxdyn.dynamics.rotors` has what
they do, theory.md section (r) the equations.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.mechanism import checks
from jaxdyn.mechanism.checks import Numbers
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Revolute, axis_problem
from jaxdyn.mechanism.messages import MechanismError, unknown
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial.arrays import floating
from jaxdyn.spatial.inertia import symmetric_matrix

# What a carrier's inertia may be short of its rotor's, as part of it, if only rounding in single precision is to blame.
_TOLERANCE = 1e-6


class Rotors(eqx.Module):
    """Rotors that turn in the bodies that carry them, each at the rate ratio * v of one velocity component v.

    The carrier's mass, center of mass and inertia include each of its rotors as if it were welded to it; only what its spin adds is
    here. A rotor is symmetric about its axis. Add one with `MechanismBuilder.add_rotor`.

    Attributes:
        names: One per rotor.
        carriers: The body that carries each rotor, -1 for the ground.
        columns: The velocity component that each rotor turns with, of a joint that has one.
        axis: Unit vector e, axes of the carrier (or of the ground).
        inertia: Moment of inertia J about the axis.
        ratio: Rate of the rotor relative to its carrier per rate of the joint, in rad/m if the joint is prismatic; negative if it
            turns against the axis.

    Source: theory.md (R1).
    """

    names: tuple[str, ...] = eqx.field(static=True)
    carriers: tuple[int, ...] = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)
    axis: Float[Array, "nr 3"] = eqx.field(converter=floating, metadata=quantity("1"))
    inertia: Float[Array, "nr"] = eqx.field(converter=floating, metadata=quantity("kg m^2", positive=True))
    ratio: Float[Array, "nr"] = eqx.field(converter=floating, metadata=quantity("1"))

    @property
    def count(self) -> int:
        """Number of rotors."""
        return len(self.carriers)

    def carried(self, nb: int) -> np.ndarray:
        """(nr, nb) True where the body carries the rotor; nowhere for rotors on the ground."""
        return np.equal.outer(np.array(self.carriers, int), np.arange(nb))

    def driving(self, nv: int) -> np.ndarray:
        """(nr, nv) True where the rotor turns with the velocity component."""
        return np.equal.outer(np.array(self.columns, int), np.arange(nv))


@dataclasses.dataclass(frozen=True)
class GivenRotor:
    """A rotor with checked numbers, as a builder holds it; the axis on that of the named carrier, None for that of the joint."""

    name: str
    carrier: str
    joint: str
    inertia: float
    ratio: float
    axis: np.ndarray | None


def checked_rotor(
    name: str, carrier: str, joint: str, inertia: Numbers, ratio: Numbers, axis: Numbers | None
) -> GivenRotor:
    """A rotor as `MechanismBuilder.add_rotor` is given it.

    Raises:
        MechanismError: A value is not physical.
    """
    where = f"rotor {name!r}"
    inertia_ = float(checks.numbers(inertia, (), where, "inertia"))
    ratio_ = float(checks.numbers(ratio, (), where, "ratio"))
    if inertia_ <= 0:
        raise MechanismError(f"{where}: inertia is {inertia_:g} kg m^2; give a positive number")
    if axis is None:
        return GivenRotor(name, carrier, joint, inertia_, ratio_, None)
    axis_ = checks.numbers(axis, (3,), where, "axis")
    problem = axis_problem(axis_)
    if problem is not None:
        raise MechanismError(f"{where}: {problem}")
    return GivenRotor(name, carrier, joint, inertia_, ratio_, axis_)


def place_rotors(
    rotors: Sequence[GivenRotor],
    topology: Topology,
    joints: Sequence[Joint],
    placements: Sequence[np.ndarray],
    carriers: Mapping[str, tuple[int, np.ndarray]],
    inertia: np.ndarray,
) -> Rotors:
    """The rotors with numbers for names, their axes on those of the moving bodies that carry them.

    Args:
        joints, placements, inertia: Of the moving bodies; placements in their parents as 4x4 matrices, entries of tensors.
        carriers: The moving body (-1: the ground) that each named body belongs to, and its placement there.

    Raises:
        MechanismError: An unknown name, a joint of several velocity components, or a carrier without the rotor's inertia.
    """
    by_name = {name: i for names in (topology.body_names, topology.joint_names) for i, name in enumerate(names)}
    numbers, columns, axes = [], [], []
    for rotor in rotors:
        where = f"rotor {rotor.name!r}"
        if rotor.carrier not in carriers:
            raise MechanismError(f"{where}: its carrier {unknown(rotor.carrier, carriers)}")
        if rotor.joint not in by_name:
            raise MechanismError(f"{where}: its joint {unknown(rotor.joint, topology.joint_names)}")
        carrier, placement = carriers[rotor.carrier]
        driven = by_name[rotor.joint]
        joint = joints[driven]
        if joint.nv != 1:
            raise MechanismError(
                f"{where}: its joint {topology.joint_names[driven]!r} has {joint.nv} velocity components; drive one that has one"
            )
        if rotor.axis is not None:
            axis = placement[:3, :3] @ rotor.axis
        elif isinstance(joint, Revolute) and carrier in (topology.parents[driven], driven):
            turn = np.eye(3) if carrier == driven else placements[driven][:3, :3]
            axis = turn @ np.asarray(joint.axis, np.float64)
        else:
            raise MechanismError(f"{where}: it does not turn about a revolute joint beside its carrier; give its axis")
        if carrier != GROUND:
            without = symmetric_matrix(inertia[carrier]) - rotor.inertia * np.outer(axis, axis)
            if np.linalg.eigvalsh(without)[0] < -_TOLERANCE * rotor.inertia:
                raise MechanismError(
                    f"{where}: the inertia of its carrier {rotor.carrier!r} is too small to include the rotor's own, "
                    f"{rotor.inertia:.6g} kg m^2 about its axis; add the mass and the inertia of the rotor to those of the carrier"
                )
        numbers.append(carrier)
        columns.append(int(topology.v_starts[driven]))
        axes.append(axis)
    return Rotors(
        tuple(rotor.name for rotor in rotors),
        tuple(numbers),
        tuple(columns),
        jnp.asarray(np.array(axes, float).reshape(-1, 3)),
        jnp.asarray(np.array([rotor.inertia for rotor in rotors], float)),
        jnp.asarray(np.array([rotor.ratio for rotor in rotors], float)),
    )
