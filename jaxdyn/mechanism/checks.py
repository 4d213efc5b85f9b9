"""Checks of the values that make up a mechanism.

They run once, eagerly, in NumPy double precision. Every message names the body (the argument `where`) and the remedy.
"""

from typing import Any, TypeAlias

import numpy as np

from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.spatial.inertia import symmetric_matrix
from jaxdyn.spatial.plain import rotation_matrix

# Whatever NumPy turns into numbers. The checks below say more than a type could.
Numbers: TypeAlias = Any

# What an inertia misses of the triangle inequality, as part of its trace, if only rounding in single precision is to blame.
_TRIANGLE_TOLERANCE = 1e-6
# Point masses that have been moved about carry inertia of a body smaller than this (m), which is rounding too.
_SMALLEST_BODY = 1e-9
_UNIT_TOLERANCE = 1e-6


def shape_of(value: Numbers) -> tuple[int, ...] | None:
    """Shape of anything rectangular, None for ragged lists."""
    try:
        return np.shape(value)
    except ValueError:
        return None


def numbers(value: Numbers, shape: tuple[int, ...], where: str, what: str, *, finite: bool = True) -> np.ndarray:
    """`value` as a float64 array of the given shape."""
    array = np.asarray(value) if shape_of(value) is not None else np.array(None)
    if array.dtype.kind not in "iuf":  # text and truth values are no numbers, even if NumPy would convert them
        raise MechanismError(f"{where}: {what} is {value!r}; give numbers")
    array = array.astype(np.float64)
    if array.shape != shape:
        expected = "one number" if shape == () else f"{' x '.join(map(str, shape))} numbers"
        raise MechanismError(f"{where}: {what} has shape {array.shape}; give {expected}")
    if finite and not np.all(np.isfinite(array)):
        raise MechanismError(f"{where}: {what} is {array.tolist()}; give finite numbers")
    return array


def checked_placement(where: str, position: Numbers, orientation: Numbers) -> np.ndarray:
    """4x4 homogeneous matrix of a position and a quaternion or rotation matrix."""
    placement = np.eye(4)
    placement[:3, 3] = numbers(position, (3,), where, "position")
    if shape_of(orientation) == (3, 3):
        matrix = numbers(orientation, (3, 3), where, "orientation")
        if not np.allclose(matrix @ matrix.T, np.eye(3), atol=_UNIT_TOLERANCE) or np.linalg.det(matrix) < 0:
            raise MechanismError(
                f"{where}: orientation is no rotation matrix (R R^T = 1, det R = +1); check its signs and its transpose"
            )
        placement[:3, :3] = matrix
        return placement
    quaternion = numbers(orientation, (4,), where, "orientation")
    norm = float(np.linalg.norm(quaternion))
    if abs(norm - 1.0) > _UNIT_TOLERANCE:
        raise MechanismError(f"{where}: orientation quaternion has norm {norm:.6g}; divide it by its norm")
    placement[:3, :3] = rotation_matrix(quaternion)
    return placement


def checked_inertia(where: str, mass, com, inertia) -> tuple[float, np.ndarray, np.ndarray]:
    mass = float(numbers(mass, (), where, "mass"))
    com = numbers(com, (3,), where, "com")
    if mass < 0:
        raise MechanismError(f"{where}: mass is {mass:g} kg; a mass is positive or zero")
    if shape_of(inertia) == (3,):
        tensor = np.diag(numbers(inertia, (3,), where, "inertia"))
    elif shape_of(inertia) == (6,):
        tensor = symmetric_matrix(numbers(inertia, (6,), where, "inertia"))
    else:
        tensor = numbers(inertia, (3, 3), where, "inertia")
        if not np.allclose(tensor, tensor.T, atol=1e-9 * max(1e-300, np.abs(tensor).max())):
            raise MechanismError(f"{where}: inertia matrix is not symmetric; give 6 numbers (xx, yy, zz, xy, xz, yz)")
    # Principal second moments w_k of the body: eigenvalues of Pi = 1/2 tr(J) 1 - J, all >= 0 for real bodies (B10).
    trace = float(np.trace(tensor))
    second_moments = 0.5 * trace - np.linalg.eigvalsh(tensor)
    rounding = max(_TRIANGLE_TOLERANCE * abs(trace), _SMALLEST_BODY**2 * mass, 1e-300)
    if np.min(second_moments) < -rounding:
        principal = np.sort(np.linalg.eigvalsh(tensor))
        raise MechanismError(
            f"{where}: principal moments of inertia {', '.join(f'{x:.6g}' for x in principal)} kg m^2 break the triangle "
            "inequality (each at most the sum of the others, none negative), so no body has them; check units, signs of the "
            "off-diagonal entries, and that the tensor is about the center of mass"
        )
    if mass == 0 and np.any(tensor):
        raise MechanismError(f"{where}: it has inertia but mass 0 kg; give its mass, or use armature for a rotor")
    return mass, com, tensor


def per_component(value: Numbers, count: int, where: str, what: str, *, finite: bool = True) -> np.ndarray:
    """`count` numbers, from as many or from one for all."""
    shape = () if shape_of(value) == () else (count,)
    return np.broadcast_to(numbers(value, shape, where, what, finite=finite), (count,))


def checked_drive(
    where: str,
    joint: Joint,
    armature: Numbers,
    position_limits: Numbers,
    velocity_limit: Numbers,
    effort_limit: Numbers,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(nv,) armature and (nq, 2), (nv,) and (nv,) limits of a joint; infinite where there are none."""
    rotor = per_component(armature, joint.nv, where, "armature")
    if np.any(rotor < 0):
        raise MechanismError(f"{where}: armature is {armature!r}; a rotor inertia is positive or zero")
    if position_limits is not None and joint.nq > joint.nv:
        raise MechanismError(
            f"{where}: position_limits do not apply to the quaternion of a {type(joint).__name__.lower()} joint; remove them"
        )
    position = np.array([-np.inf, np.inf])
    if position_limits is not None:
        shape = (joint.nq, 2) if shape_of(position_limits) == (joint.nq, 2) else (2,)
        position = numbers(position_limits, shape, where, "position_limits", finite=False)
    position = np.broadcast_to(position, (joint.nq, 2))
    for lower, upper in position:
        if not lower < upper:
            raise MechanismError(
                f"{where}: position_limits are ({lower:g}, {upper:g}); give (lower, upper) with lower < upper"
            )
    speed = per_component(velocity_limit, joint.nv, where, "velocity_limit", finite=False)
    effort = per_component(effort_limit, joint.nv, where, "effort_limit", finite=False)
    for what, value, given in (("velocity_limit", speed, velocity_limit), ("effort_limit", effort, effort_limit)):
        if not np.all(value > 0):
            raise MechanismError(f"{where}: {what} is {given!r}; give a positive number, or leave it out for no limit")
    return rotor, position, speed, effort
