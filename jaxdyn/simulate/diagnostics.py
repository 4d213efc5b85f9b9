"""Diagnostics of a simulation: the energy balance, and the penetration of contacts."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.contact.points import contact_forces, contact_names
from jaxdyn.dynamics.equations_of_motion import applied_forces
from jaxdyn.dynamics.forces import Force
from jaxdyn.dynamics.system import State, System, checked_system
from jaxdyn.errors import UnknownName
from jaxdyn.mechanism import configuration


@checked_system
def work_of_step(system: System) -> Callable[..., Float[Array, ""]]:
    """Stage cost for `rollout` that sums the work (J) of the controls and of all forces that are not conservative.

        W = sum over steps of (Q_before + Q_after)/2 . (step in tangent coordinates) + V_after - V_before

    V is the energy stored by the forces that are not conservative; of these, only `JointLimits` store energy.

    With the total energy E, E_end - E_start - W is the error of the power balance: zero for constant controls, and of second order
    in dt for friction. Forces that depend on time explicitly are evaluated at the start of the step, which causes an error of first
    order in dt. The work of prescribed motions is not included: see `driving_power`.

    Source: theory.md (G7), dE/dt = Q . v.
    """
    dissipative = System(system.model, tuple(f for f in system.forces if not f.conservative), system.drives)
    storing = [f for f in dissipative.forces if type(f).potential_energy is not Force.potential_energy]

    def stored(t: Float[Array, ""], q: Float[Array, "nq"]) -> Float[Array, ""]:
        model = system.model.at(t)
        placed = kinematics.placements(model, q)
        return sum((force.potential_energy(model, q, placed) for force in storing), jnp.zeros((), q.dtype))

    def work(t: Float[Array, ""], state: State, u: Float[Array, "nu"] | None, after: State) -> Float[Array, ""]:
        step = configuration.difference(system.model, state.q, after.q)
        mean = 0.5 * (applied_forces(dissipative, state, u, t) + applied_forces(dissipative, after, u, t))
        return dot(mean, step) + stored(t, after.q) - stored(t, state.q)

    return work


def power_balance_error(
    energy: Float[Array | np.ndarray, "*batch records"], work: Float[Array | np.ndarray, "*batch"]
) -> Float[Array | np.ndarray, "*batch"]:
    """Error of the power balance: energy gained minus work done, E_end - E_start - W, J."""
    return energy[..., -1] - energy[..., 0] - work


@checked_system
def deepest_penetration(system: System, records: State) -> Float[Array, "contacts"]:
    """Largest depth (m) of each contact over all records, in the order of `jaxdyn.dynamics.contact.points.contact_names`.

    A contact that was never closed has a negative value. A rollout in which a body sinks into the ground or passes through it is
    healthy, because all its states are finite; this function reveals it.

    Args:
        system: Mechanism with its forces.
        records: States of one sample, such as `Trajectory.saved`, with the leading axis of the records.

    Raises:
        ValueError: The system has no contacts.

    Source: theory.md (T1).
    """
    return jnp.max(jax.vmap(lambda state: contact_forces(system, state).depth)(records), axis=0)


@checked_system
def save_contacts_and_frames(system: System, *frames: str) -> Callable[..., dict[str, Any]]:
    """Function for the argument `save` of `rollout`, which records states, contact forces, and the motion of frames.

    The records are a dictionary: "state"; "contact_forces" (contacts, 3) in N, if the system has contacts; and for each frame
    "position:NAME" (3,) in m and "velocity:NAME" (3,) in m/s. Vectors are on ground axes.

    Args:
        system: Mechanism with its forces.
        frames: Names of bodies or frames.

    Raises:
        UnknownName: No body or frame has one of the names; raised by the rollout.
    """

    def save(t: Float[Array, ""], state: State, u: Float[Array, "nu"] | None) -> dict[str, Any]:
        outputs = [f"{what}:{name}" for name in frames for what in ("position", "velocity")]
        contacts = ["contact_forces"] if contact_names(system) else []
        return {"state": state} | {name: output(system, state, name, t) for name in (*contacts, *outputs)}

    return save


@checked_system
def output(system: System, state: State, name: str, t: Float[Array, ""] | float = 0.0) -> Array:
    """An output of a state on ground axes: "contact_forces" (N), "position:FRAME" (m) or "velocity:FRAME" (m/s).

    Args:
        system: Mechanism with its forces.
        state: Coordinates and velocities.
        name: Name of the output.
        t: Time (s).

    Raises:
        UnknownName: There is no such output, body or frame.
        ValueError: The system has no contacts.
    """
    kind, _, frame = name.partition(":")
    if name == "contact_forces":
        return contact_forces(system, state, t).force
    model = system.model.at(jnp.asarray(t, state.v.dtype))
    if kind == "position" and frame:
        return kinematics.frame_placement(model, state.q, frame).translation
    if kind == "velocity" and frame:
        return kinematics.frame_velocity(model, state.q, state.v, frame).linear
    raise UnknownName("output", name, ("contact_forces", "position:FRAME", "velocity:FRAME"))


def output_columns(system: System, name: str) -> list[str]:
    """Name and unit of each value of an output, such as "velocity:foot x [m/s]", in row-major order.

    Args:
        system: Mechanism with its forces.
        name: Name of the output, see `output`.
    """
    if name == "contact_forces":
        rows = [f"contact_forces {k} {contact}" for k, contact in enumerate(contact_names(system))]
        return [f"{row} {axis} [N]" for row in rows for axis in "xyz"]
    unit = "m" if name.startswith("position:") else "m/s"
    return [f"{name} {axis} [{unit}]" for axis in "xyz"]
