"""Checks of the values that define a mechanism.

The checks run once, during construction, in NumPy double precision. Every error message names the body (the argument `where`) and
the remedy.
"""

import warnings
from collections.abc import Collection
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from jaxdyn.errors import check_name, one_line
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.messages import ImplausibleInertia, MechanismError, UnphysicalInertia
from jaxdyn.spatial.inertia import inertia_from_planar, planar_from_inertia, symmetric_matrix
from jaxdyn.spatial.plain import rotation_matrix

# Any value that NumPy converts to a numeric array; the checks below are stricter than a type.
Values: TypeAlias = Any
Unphysical = Literal["refuse", "repair"]

# Violation of the triangle inequality, relative to the trace, that rounding in single precision can cause.
_TRIANGLE_TOLERANCE = 1e-6
# The inertia of a body smaller than this (m) is rounding error, for example of point masses with an offset.
_SMALLEST_BODY = 1e-9
_UNIT_TOLERANCE = 1e-6
# A body with a larger radius of gyration (m) and a smaller mass in the cube of this radius (kg/m^3) is lighter than structures are.
_LARGE, _THINNEST = 10.0, 1e-3


def shape_of(value: Values) -> tuple[int, ...] | None:
    """Shape of a rectangular value; None for ragged lists."""
    try:
        return np.shape(value)
    except ValueError:
        return None


def values(value: Values, shape: tuple[int, ...], where: str, quantity: str, *, finite: bool = True) -> np.ndarray:
    """`value` as a float64 array of the given shape.

    Args:
        value: Value to check.
        shape: Required shape.
        where: Name of the body or mechanism that has the value, for the error message.
        quantity: Name of the value, for the error message.
        finite: Require finite values.

    Raises:
        MechanismError: The value is not numeric, or has another shape or infinite entries.
    """
    array = np.asarray(value) if shape_of(value) is not None else np.array(None)
    if array.dtype.kind not in "iuf":  # excludes text and booleans, which NumPy would convert
        raise MechanismError(f"{where}: {quantity} is {value!r}; give numeric values")
    array = array.astype(np.float64)
    if array.shape != shape:
        expected = "one value" if shape == () else f"{' x '.join(map(str, shape))} values"
        raise MechanismError(f"{where}: {quantity} has shape {array.shape}; give {expected}")
    if finite and not np.all(np.isfinite(array)):
        raise MechanismError(f"{where}: {quantity} is {array.tolist()}; give finite values")
    return array


def check_new_name(name: str, *taken: Collection[str]) -> None:
    """Check that a body or frame may have a name, which no other one has.

    Raises:
        MechanismError: The name is that of the ground, or is taken.
    """
    if name == "ground":
        raise MechanismError('a body or frame cannot be called "ground", which is the fixed world; choose another name')
    if any(name in names for names in taken):
        raise MechanismError(f"there are two bodies or frames called {name!r}; rename one")


def check_joint(where: str, called: str, joint: Any) -> None:
    """Check the type and the values of a joint.

    Args:
        where: Name of the part to which it is given, for messages.
        called: Name of the joint, for messages that begin with its kind, such as "joint of body 'arm'".
        joint: The joint.

    Raises:
        MechanismError: It is not a joint, or has an invalid value.
    """
    if not isinstance(joint, Joint):
        raise MechanismError(f"{where}: joint is {joint!r}; give a Joint such as Revolute((0, 0, 1))")
    problem = joint.validate()
    if problem is not None:
        raise MechanismError(f"the {type(joint).__name__.lower()} {called}: {problem}")


def checked_placement(where: str, position: Values, orientation: Values) -> np.ndarray:
    """4x4 homogeneous matrix of a position and an orientation (quaternion or rotation matrix).

    Args:
        where: Name of the body or frame that has the values, for error messages.
        position: Position, m.
        orientation: Unit quaternion (w, x, y, z) or 3x3 rotation matrix.

    Raises:
        MechanismError: A value has the wrong shape, or the orientation is not a rotation.
    """
    placement = np.eye(4)
    placement[:3, 3] = values(position, (3,), where, "position")
    if shape_of(orientation) == (3, 3):
        matrix = values(orientation, (3, 3), where, "orientation")
        if not np.allclose(matrix @ matrix.T, np.eye(3), atol=_UNIT_TOLERANCE) or np.linalg.det(matrix) < 0:
            raise MechanismError(
                f"{where}: orientation is not a rotation matrix (R R^T = 1, det R = +1); check its signs and its transpose"
            )
        placement[:3, :3] = matrix
        return placement
    quaternion = values(orientation, (4,), where, "orientation")
    norm = float(np.linalg.norm(quaternion))
    if abs(norm - 1.0) > _UNIT_TOLERANCE:
        raise MechanismError(f"{where}: orientation quaternion has norm {norm:.6g}; divide it by its norm")
    placement[:3, :3] = rotation_matrix(quaternion)
    return placement


def checked_inertia(
    where: str, mass, com, inertia, unphysical: Unphysical = "refuse"
) -> tuple[float, np.ndarray, np.ndarray]:
    """Checked mass, center of mass and 3x3 inertia tensor.

    Args:
        where: Name of the body or frame that has the values, for error messages.
        mass: Mass, kg.
        com: Center of mass, m.
        inertia: Inertia tensor, kg m^2: 3 or 6 entries, or a symmetric 3x3 matrix.
        unphysical: "repair" replaces an inertia that no body can have by the nearest one that is physical.

    Raises:
        UnknownName: There is no such choice of `unphysical`.
        MechanismError: A value has the wrong shape or is not physically valid.
    """
    mass = float(values(mass, (), where, "mass"))
    com = values(com, (3,), where, "com")
    if mass < 0:
        raise MechanismError(f"{where}: mass is {mass:g} kg; a mass must be positive or zero")
    if shape_of(inertia) == (3,):
        tensor = np.diag(values(inertia, (3,), where, "inertia"))
    elif shape_of(inertia) == (6,):
        tensor = symmetric_matrix(values(inertia, (6,), where, "inertia"))
    else:
        tensor = values(inertia, (3, 3), where, "inertia")
        if not np.allclose(tensor, tensor.T, atol=1e-9 * max(1e-300, np.abs(tensor).max())):
            raise MechanismError(f"{where}: inertia matrix is not symmetric; give 6 entries (xx, yy, zz, xy, xz, yz)")
    check_name("choice of unphysical", unphysical, get_args(Unphysical), where=where)
    if unphysical == "repair":
        physical = mass > 0 and has_physical_moments(mass, tensor)
        tensor = tensor if physical else nearest_physical(mass, tensor)
    if not has_physical_moments(mass, tensor):
        principal = np.sort(np.linalg.eigvalsh(tensor))
        raise UnphysicalInertia(
            f"{where}: principal moments of inertia {', '.join(f'{x:.6g}' for x in principal)} kg m^2 violate the triangle "
            "inequality (each at most the sum of the others, none negative), so they are not physically valid; check units, signs "
            "of the off-diagonal entries, and that the tensor is about the center of mass"
        )
    if mass == 0 and np.any(tensor):
        raise UnphysicalInertia(f"{where}: it has inertia but mass 0 kg; give its mass, or use armature for a rotor")
    with np.errstate(over="ignore"):  # the radius of gyration of an absurd body may be infinite
        gyration = np.sqrt(0.5 * max(np.trace(tensor), 0.0)) / np.sqrt(mass) if mass else 0.0
    if gyration > _LARGE and np.cbrt(mass / _THINNEST) < gyration:
        warnings.warn(
            one_line(
                f"{where}: an inertia of {0.5 * np.trace(tensor):.4g} kg m^2 and a mass of {mass:.4g} kg mean a radius of gyration "
                f"of {gyration:.3g} m; check the units, which are kg m^2 and not kg mm^2, for instance"
            ),
            ImplausibleInertia,
            stacklevel=3,
        )
    return mass, com, tensor


def nearest_physical(mass: float, tensor: np.ndarray) -> np.ndarray:
    """The nearest inertia with non-negative principal second moments, as bodies have; zero without mass. Source: theory.md (B10).

    Args:
        mass: Mass, kg.
        tensor: Inertia tensor (3, 3), kg m^2.
    """
    if mass <= 0.0:
        return np.zeros((3, 3))
    sizes, axes = np.linalg.eigh(planar_from_inertia(tensor))
    return inertia_from_planar((axes * np.maximum(sizes, 0.0)) @ axes.T)


def has_physical_moments(mass: float, tensor: np.ndarray) -> bool:
    """Whether a body of this mass (kg) can have this 3x3 inertia (kg m^2), apart from rounding.

    The principal second moments of a body are the eigenvalues of Pi = 1/2 tr(J) 1 - J, and no body has a negative one.
    Source: theory.md (B10).
    """
    trace = float(np.trace(tensor))
    second_moments = 0.5 * trace - np.linalg.eigvalsh(tensor)
    rounding = max(_TRIANGLE_TOLERANCE * abs(trace), _SMALLEST_BODY**2 * mass, 1e-300)
    return float(np.min(second_moments)) >= -rounding


def per_component(value: Values, count: int, where: str, quantity: str, *, finite: bool = True) -> np.ndarray:
    """Array of `count` values, from `count` values or from one value that applies to all components.

    Args:
        value: Value to check.
        count: Number of components.
        where: Name of the body or mechanism that has the value, for the error message.
        quantity: Name of the value, for the error message.
        finite: Require finite values.
    """
    shape = () if shape_of(value) == () else (count,)
    return np.broadcast_to(values(value, shape, where, quantity, finite=finite), (count,))


def checked_drive(
    where: str,
    joint: Joint,
    armature: Values,
    position_limits: Values,
    velocity_limit: Values,
    effort_limit: Values,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Armature (nv,), position limits (nq, 2), velocity limits (nv,) and effort limits (nv,) of a joint.

    A limit that is not given is infinite.

    Args:
        where: Name of the body, for messages.
        joint: Joint of the body.
        armature: Reflected rotor inertia, kg m^2 or kg.
        position_limits: Limits (lower, upper), or one pair per coordinate, rad or m; None for no limits.
        velocity_limit: Largest speed, rad/s or m/s.
        effort_limit: Largest drive force, N m or N.

    Raises:
        MechanismError: A value has the wrong shape or is not physically valid.
    """
    rotor = per_component(armature, joint.nv, where, "armature")
    if np.any(rotor < 0):
        raise MechanismError(f"{where}: armature is {armature!r}; a rotor inertia must be positive or zero")
    if position_limits is not None and joint.nq > joint.nv:
        raise MechanismError(
            f"{where}: position_limits do not apply to the quaternion of a {type(joint).__name__.lower()} joint; remove them"
        )
    position = np.array([-np.inf, np.inf])
    if position_limits is not None:
        shape = (joint.nq, 2) if shape_of(position_limits) == (joint.nq, 2) else (2,)
        position = values(position_limits, shape, where, "position_limits", finite=False)
    position = np.broadcast_to(position, (joint.nq, 2))
    for lower, upper in position:
        if not lower < upper:
            raise MechanismError(
                f"{where}: position_limits are ({lower:g}, {upper:g}); give (lower, upper) with lower < upper"
            )
    speed = per_component(velocity_limit, joint.nv, where, "velocity_limit", finite=False)
    effort = per_component(effort_limit, joint.nv, where, "effort_limit", finite=False)
    for quantity, value, given in (("velocity_limit", speed, velocity_limit), ("effort_limit", effort, effort_limit)):
        if not np.all(value > 0):
            raise MechanismError(f"{where}: {quantity} is {given!r}; give a positive value, or omit it for no limit")
    return rotor, position, speed, effort
