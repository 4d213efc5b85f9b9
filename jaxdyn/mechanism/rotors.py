"""Parameters of the rotors of geared drives, which spin faster than the joints that they drive.

The mechanics of rotors is in `jaxdyn.dynamics.rotors`; the equations are in theory.md section (r).
"""

import dataclasses
from collections.abc import Mapping, Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import floating, on_device
from jaxdyn.errors import check_name
from jaxdyn.mechanism import checks
from jaxdyn.mechanism.checks import Values
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Revolute, axis_problem
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.quantity import GEAR_RATIO, plain, quantity
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial.inertia import symmetric_matrix

# Relative amount by which rounding in single precision can make the inertia of a carrier smaller than that of its rotor.
_TOLERANCE = 1e-6


class Rotors(eqx.Module):
    """Rotors that rotate in the bodies that carry them, each at the rate ratio * v of one velocity component v.

    Mass, center of mass and inertia of the carrier include each of its rotors as if it were welded to the carrier. This class adds
    only the effect of the spin of the rotors. A rotor is symmetric about its axis. `MechanismBuilder.add_rotor` adds a rotor.

    Attributes:
        names: Name of each rotor.
        carriers: Index of the body that carries each rotor, -1 for the ground.
        columns: Index of the velocity component that drives each rotor; its joint has no other velocity component.
        axis: Unit vector e on axes of the carrier (or of the ground).
        inertia: Moment of inertia J about the axis of the rotor.
        ratio: Gear ratio: rate of the rotor relative to its carrier divided by the rate of the joint; negative for the opposite
            direction.

    Source: theory.md (R1).
    """

    names: tuple[str, ...] = eqx.field(static=True)
    carriers: tuple[int, ...] = eqx.field(static=True, converter=plain)
    columns: tuple[int, ...] = eqx.field(static=True, converter=plain)
    axis: Float[Array, "nr 3"] = eqx.field(converter=floating, metadata=quantity("1"))
    inertia: Float[Array, "nr"] = eqx.field(converter=floating, metadata=quantity("kg m^2", positive=True))
    ratio: Float[Array, "nr"] = eqx.field(converter=floating, metadata=quantity(GEAR_RATIO, along="rotor"))

    @property
    def count(self) -> int:
        """Number of rotors."""
        return len(self.carriers)

    def carried(self, nb: int) -> np.ndarray:
        """(nr, nb) array that is True where the body carries the rotor; always False for rotors on the ground."""
        return np.equal.outer(np.array(self.carriers, int), np.arange(nb))

    def driving(self, nv: int) -> np.ndarray:
        """(nr, nv) array that is True where the velocity component drives the rotor."""
        return np.equal.outer(np.array(self.columns, int), np.arange(nv))


@dataclasses.dataclass(frozen=True)
class GivenRotor:
    """A rotor with checked values in a builder; the axis is on axes of the carrier, or None for the axis of the joint."""

    name: str
    carrier: str
    joint: str
    inertia: float
    ratio: float
    axis: np.ndarray | None


def checked_rotor(
    name: str, carrier: str, joint: str, inertia: Values, ratio: Values, axis: Values | None
) -> GivenRotor:
    """Rotor with checked values.

    Args:
        name, carrier, joint, inertia, ratio, axis: Same as in `MechanismBuilder.add_rotor`.

    Raises:
        MechanismError: A value is not physically valid.
    """
    where = f"rotor {name!r}"
    inertia_ = float(checks.values(inertia, (), where, "inertia"))
    ratio_ = float(checks.values(ratio, (), where, "ratio"))
    if inertia_ <= 0:
        raise MechanismError(f"{where}: inertia is {inertia_:g} kg m^2; give a positive value")
    if axis is None:
        return GivenRotor(name, carrier, joint, inertia_, ratio_, None)
    axis_ = checks.values(axis, (3,), where, "axis")
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
    """Rotors with indices instead of names, and with unit vectors on the axes of the moving bodies that carry the rotors.

    Args:
        rotors: Checked rotors.
        topology: Topology of the mechanism.
        joints: Joints of the moving bodies.
        placements: Placements of the joint frames in the parent bodies, 4x4 homogeneous matrices.
        carriers: Index of the moving body (-1: the ground) into which each named body is merged, and the placement of the named
            body in it.
        inertia: Entries of the inertia tensors of the moving bodies, kg m^2.

    Raises:
        UnknownName: There is no body or joint of a given name.
        MechanismError: A joint has several velocity components, or a carrier does not include the rotor inertia.
    """
    by_name = {name: i for names in (topology.body_names, topology.joint_names) for i, name in enumerate(names)}
    indices, columns, axes = [], [], []
    for rotor in rotors:
        where = f"rotor {rotor.name!r}"
        check_name("body", rotor.carrier, carriers, where=f"{where}: its carrier")
        check_name("joint", rotor.joint, by_name, where=f"{where}: its joint")
        carrier, placement = carriers[rotor.carrier]
        driven = by_name[rotor.joint]
        joint = joints[driven]
        if joint.nv != 1:
            raise MechanismError(
                f"{where}: its joint {topology.joint_names[driven]!r} has {joint.nv} velocity components; use a joint that has one"
            )
        if rotor.axis is not None:
            axis = placement[:3, :3] @ rotor.axis
        elif isinstance(joint, Revolute) and carrier in (topology.parents[driven], driven):
            turn = np.eye(3) if carrier == driven else placements[driven][:3, :3]
            axis = turn @ np.asarray(joint.axis, np.float64)
        else:
            raise MechanismError(f"{where}: it does not drive a revolute joint adjacent to its carrier; give its axis")
        if carrier != GROUND:
            without = symmetric_matrix(inertia[carrier]) - rotor.inertia * np.outer(axis, axis)
            if np.linalg.eigvalsh(without)[0] < -_TOLERANCE * rotor.inertia:
                raise MechanismError(
                    f"{where}: the inertia of its carrier {rotor.carrier!r} is too small to include that of the rotor, "
                    f"{rotor.inertia:.6g} kg m^2 about its axis; add the mass and the inertia of the rotor to those of the carrier"
                )
        indices.append(carrier)
        columns.append(int(topology.v_starts[driven]))
        axes.append(axis)
    return Rotors(
        tuple(rotor.name for rotor in rotors),
        tuple(indices),
        tuple(columns),
        on_device(np.array(axes, float).reshape(-1, 3)),
        on_device(np.array([rotor.inertia for rotor in rotors], float)),
        on_device(np.array([rotor.ratio for rotor in rotors], float)),
    )
