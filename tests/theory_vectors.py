"""Mechanisms in the notation of the numeric test vectors of theory.md section (p)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from mechanisms import model_from_arrays

from jaxdyn.dynamics.forces import AppliedForce, Damper, Force, Spring
from jaxdyn.dynamics.system import System

KINDS = {"R": "revolute", "P": "prismatic"}


def system_from_dict(inputs: dict[str, Any]) -> tuple[System, Array, Array, Array]:
    """System, coordinates, velocities and drive forces (system, q, v, tau) from the `inputs` of a test vector.

    Args:
        inputs: Dictionary with `gravity`, `q`, `qd`, `tau`, `bodies` (parent, type "R" or "P", axis to be normalized, joint_offset,
            com, mass, inertia (xx, yy, zz, xy, xz, yz)), and optionally `springs`, `dampers`, `wrenches`. Body indices start at 1;
            0 is the ground. All values are in SI units.
    """
    bodies = inputs["bodies"]
    model = model_from_arrays(
        parents=[b["parent"] for b in bodies],
        kinds=[KINDS[b["type"]] for b in bodies],
        axes=[np.array(b["axis"]) / np.linalg.norm(b["axis"]) for b in bodies],
        joint_offsets=[b["joint_offset"] for b in bodies],
        com_offsets=[b["com"] for b in bodies],
        masses=[b["mass"] for b in bodies],
        inertias=[b["inertia"] for b in bodies],
        gravity=inputs["gravity"],
    )
    forces: list[Force] = [
        *(Spring(*_ends(s), s["stiffness"], s["free_length"]) for s in inputs.get("springs", [])),
        *(Damper(*_ends(d), d["coefficient"]) for d in inputs.get("dampers", [])),
        *(
            AppliedForce(
                w["body"] - 1, _array(w["point"]), _array(w["force"]), _array(w["torque"]), w["frame"] == "body"
            )
            for w in inputs.get("wrenches", [])
        ),
    ]
    return System(model, tuple(forces)), *(_array(inputs[key]) for key in ("q", "qd", "tau"))


def _ends(pair: dict[str, Any]) -> tuple[int, Array, int, Array]:
    return pair["body_a"] - 1, _array(pair["point_a"]), pair["body_b"] - 1, _array(pair["point_b"])


def _array(values: Any) -> Array:
    return jnp.asarray(values, float)
