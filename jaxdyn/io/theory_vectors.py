"""Reader of mechanisms in the notation of the numeric test vectors of theory.md section (p)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics.forces import AppliedForce, Damper, Force, Spring
from jaxdyn.dynamics.system import System
from jaxdyn.mechanism.builder import model_from_arrays
from jaxdyn.mechanism.messages import MechanismError

_KINDS = {"R": "revolute", "P": "prismatic"}
_FRAMES = {"body": True, "world": False}


def system_from_dict(
    inputs: dict[str, Any],
) -> tuple[System, Float[Array, "nq"], Float[Array, "nv"], Float[Array, "nv"]]:
    """System, coordinates, velocities and drive forces (system, q, v, tau) from the `inputs` of a test vector.

    Args:
        inputs: Dictionary with `gravity`, `q`, `qd`, `tau`, `bodies` (parent, type "R" or "P", axis to be normalized, joint_offset,
            com, mass, inertia (xx, yy, zz, xy, xz, yz)), and optionally `springs`, `dampers`, `wrenches`. Body indices start at 1;
            0 is the ground. All values are in SI units.

    Raises:
        MechanismError: An entry is missing or unknown, or the builder refuses a value.

    Source: theory.md section (p).
    """
    _check_keys("inputs", inputs, {"gravity", "q", "qd", "tau", "bodies"}, {"springs", "dampers", "wrenches"})
    bodies = inputs["bodies"]
    for i, body in enumerate(bodies):
        _check_keys(f"body {i + 1}", body, {"parent", "type", "axis", "joint_offset", "com", "mass", "inertia"}, set())
        if body["type"] not in _KINDS:
            raise MechanismError(f'body {i + 1}: unknown type {body["type"]!r}; use "R" (revolute) or "P" (prismatic)')
    n = len(bodies)
    axes = [_numbers(f"axis of body {i + 1}", b["axis"], 3) for i, b in enumerate(bodies)]
    model = model_from_arrays(
        parents=[b["parent"] for b in bodies],
        kinds=[_KINDS[b["type"]] for b in bodies],
        axes=[axis / (np.linalg.norm(axis) or 1.0) for axis in axes],
        joint_offsets=[b["joint_offset"] for b in bodies],
        com_offsets=[b["com"] for b in bodies],
        masses=[b["mass"] for b in bodies],
        inertias=[b["inertia"] for b in bodies],
        gravity=inputs["gravity"],
    )
    forces: list[Force] = []
    for i, spring in enumerate(inputs.get("springs", [])):
        ends = _ends(f"spring {i + 1}", spring, {"stiffness", "free_length"}, n)
        stiffness, length = (_numbers(f"{key} of spring {i + 1}", spring[key]) for key in ("stiffness", "free_length"))
        forces.append(Spring(*ends, stiffness, length))
    for i, damper in enumerate(inputs.get("dampers", [])):
        ends = _ends(f"damper {i + 1}", damper, {"coefficient"}, n)
        forces.append(Damper(*ends, _numbers(f"coefficient of damper {i + 1}", damper["coefficient"])))
    for i, wrench in enumerate(inputs.get("wrenches", [])):
        where = f"wrench {i + 1}"
        _check_keys(where, wrench, {"body", "frame", "point", "force", "torque"}, set())
        if wrench["frame"] not in _FRAMES:
            raise MechanismError(f'{where}: unknown frame {wrench["frame"]!r}; use "body" or "world"')
        body = _body_number(where, wrench["body"], n)
        point, force, torque = (_numbers(f"{key} of {where}", wrench[key], 3) for key in ("point", "force", "torque"))
        forces.append(AppliedForce(body, point, force, torque, _FRAMES[wrench["frame"]]))
    q, v, tau = (_numbers(key, inputs[key], n) for key in ("q", "qd", "tau"))
    return System(model, tuple(forces)), q, v, tau


def _ends(
    where: str, pair: dict[str, Any], own: set[str], bodies: int
) -> tuple[int, Float[Array, "3"], int, Float[Array, "3"]]:
    _check_keys(where, pair, {"body_a", "point_a", "body_b", "point_b"} | own, set())
    a, b = (_body_number(where, pair[key], bodies) for key in ("body_a", "body_b"))
    point_a, point_b = (_numbers(f"{key} of {where}", pair[key], 3) for key in ("point_a", "point_b"))
    return a, point_a, b, point_b


def _numbers(what: str, value: Any, *shape: int) -> Array:
    """Array of the given shape in JAX's default precision."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise MechanismError(f"{what} is {value!r}; give numeric values") from None
    if array.shape != shape:
        raise MechanismError(
            f"{what} has shape {array.shape}; give {shape[0] if shape else 'one'} value{'s' * bool(shape)}"
        )
    return jnp.asarray(array, float)


def _body_number(where: str, body: int, bodies: int) -> int:
    """Body index from 0, with -1 for the ground."""
    if not 0 <= body <= bodies:
        raise MechanismError(f"{where}: there is no body {body}; use 0 (the ground) to {bodies}")
    return body - 1


def _check_keys(where: str, entry: dict[str, Any], required: set[str], optional: set[str]) -> None:
    missing, unknown = required - entry.keys(), entry.keys() - required - optional
    if missing:
        raise MechanismError(f"{where}: {', '.join(sorted(missing))} missing; add it")
    if unknown:
        raise MechanismError(
            f"{where}: unknown entry {', '.join(sorted(unknown))}; the entries are {', '.join(sorted(required | optional))}"
        )
