"""Depths, slip velocities and forces of the contacts of a system, by name."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.contact import Contact, ContactPoints
from jaxdyn.dynamics.kinematics import Motion
from jaxdyn.dynamics.system import State, System, Time, checked_system, system_function
from jaxdyn.mechanism.model import Model


@checked_system
def contact_names(system: System) -> tuple[str, ...]:
    """Names of all contacts of a system, in the order of `contact_forces`: the name of the body, or of both bodies."""
    return names_of_contacts(system)


def names_of_contacts(system: System) -> tuple[str, ...]:
    """Result of `contact_names`, without checks."""
    return tuple(name for force in _contacts(system) for name in force.names(system.model))


@system_function
def contact_forces(system: System, state: State, t: Time = 0.0) -> ContactPoints:
    """Positions, depths, velocities and forces of all contacts of a system, in the order of `System.forces`.

    The forces are those of the given instant. An implicit step applies forces of the end of the step, which differ while the
    contact force changes rapidly and are equal at rest.

    Args:
        system: Mechanism with its forces.
        state: Coordinates and velocities.
        t: Time (s).

    Raises:
        ValueError: The system has no contacts.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        builder = jaxdyn.MechanismBuilder("ball")
        builder.add_body("ball", joint=jaxdyn.Free(), mass=1.0, inertia=0.004 * jnp.eye(3))
        model = builder.build()
        contact = jaxdyn.dynamics.GroundContact.of(model, jaxdyn.dynamics.contact_sphere("ball", radius=0.1))
        system = jaxdyn.System(model, forces=(contact,))
        state = system.at_rest(jnp.array([0.0, 0.0, 0.099, 1.0, 0.0, 0.0, 0.0]))
        weight = jaxdyn.dynamics.contact_forces(system, state).force[0, 2]
        ```

    Source: theory.md (T1)-(T6).
    """
    model = system.model.at(jnp.asarray(t, state.v.dtype))
    return contacts_at(system, model, kinematics.motion(model, state.q, state.v))


def contacts_at(system: System, model: Model, moving: Motion) -> ContactPoints:
    """Result of `contact_forces`, from a motion of the model.

    Args:
        system: Mechanism with its forces.
        model: Mechanism at this time.
        moving: Motion of the model.
    """
    parts = [force.points(model, moving) for force in _some_contacts(system)]
    return ContactPoints(*(jnp.concatenate(values) for values in zip(*parts, strict=True)))


@system_function
def contact_forces_on_bodies(system: System, state: State, t: Time = 0.0) -> Float[Array, "nb 3"]:
    """Sum of the contact forces on each body (N), ground axes.

    Args:
        system: Mechanism with its forces.
        state: Coordinates and velocities.
        t: Time (s).

    Raises:
        ValueError: The system has no contacts.

    Source: theory.md (T5), (T6).
    """
    found = _some_contacts(system)
    t = jnp.asarray(t, state.v.dtype)
    model = system.model.at(t)
    moving = kinematics.motion(model, state.q, state.v)
    wrenches = [force.body_forces(model, moving, t) for force in found]
    return sum(wrenches[1:], wrenches[0])[:, 3:]


def _contacts(system: System) -> list[Contact]:
    return [force for force in system.forces if isinstance(force, Contact)]


def _some_contacts(system: System) -> list[Contact]:
    found = _contacts(system)
    if not found:
        raise ValueError(
            f"the system on mechanism {system.model.name!r} has no contacts; add a GroundContact or SphereContact to its forces"
        )
    return found
