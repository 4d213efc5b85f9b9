"""The regressor: generalized forces of a motion are linear in inertial parameters, rotor inertias and most friction coefficients.

    inverse_dynamics(q, v, a) - applied_forces(q, v) = Y(q, v, a) theta + (forces without linear parameters)

The momentum of a body is linear in its ten inertial parameters: the mass m, the first moment h = m c and the inertia tensor J about
the body origin O'. They are given on body axes, where they are constant. Therefore the force that the motion of the body requires,
(M1) and (M2), and its contribution (H1) to the generalized forces are linear in these parameters, too.

All functions compute one sample; the rows of many samples are computed by `jax.vmap(regressor, ...)`.
"""

import collections
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute import stored_outside_jit
from jaxdyn.compute.arrays import dot, einsum, floating
from jaxdyn.dynamics import inverse, kinematics
from jaxdyn.dynamics.doors import checked_model
from jaxdyn.dynamics.equations_of_motion import applied_forces
from jaxdyn.dynamics.forces import JointForce
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Velocities
from jaxdyn.dynamics.system import State, System, Time, checked_system
from jaxdyn.mechanism.components import component_names, units_along
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import EFFORT, Quantity, quantities, quantity
from jaxdyn.spatial.inertia import (
    SpatialInertia,
    inertia_from_planar,
    planar_from_inertia,
    symmetric_entries,
    symmetric_matrix,
)
from jaxdyn.spatial.rotation import Matrix33, Vector3, cross
from jaxdyn.spatial.sixvector import cross_force

INERTIAL_SYMBOLS = ("m", "hx", "hy", "hz", "Jxx", "Jyy", "Jzz", "Jxy", "Jxz", "Jyz")
_INERTIAL_UNITS = ("kg", *["kg m"] * 3, *["kg m^2"] * 6)


class Label(NamedTuple):
    """Name and unit of a parameter, such as ("hx(upper arm)", "kg m")."""

    name: str
    unit: str

    def __str__(self) -> str:
        return f"{self.name} {self.unit}"


class TorqueOffset(JointForce):
    """Constant forces along the velocity components: the zero error of torque sensors or motor currents, as columns of a regressor.

    Attributes:
        torque: Constant forces.
    """

    conservative: ClassVar[bool] = False
    linear: ClassVar[tuple[str, ...]] = ("torque",)

    torque: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(EFFORT))

    def generalized_forces(
        self, model: Model, q: Coordinates, v: Velocities, t: Float[Array, ""]
    ) -> Float[Array, "nv"]:
        return self.torque


@checked_model
@stored_outside_jit
def inertial_parameters(model: Model) -> Float[Array, "nb 10"]:
    """The ten parameters (m, hx, hy, hz, Jxx, Jyy, Jzz, Jxy, Jxz, Jyz) of each body, in which the forces of the body are linear.

        h = m c,   J = J_C + m (c.c 1 - c c^T)

    Returns:
        Mass (kg); first moment h (kg m) and inertia tensor J (kg m^2) about the body origin O', on body axes. Off-diagonal entries
        are tensor entries, the negatives of the products of inertia.

    Source: theory.md (F5), (B10).
    """

    def of_body(mass, com, inertia):
        about_origin = SpatialInertia.of_body(mass, com, symmetric_matrix(inertia))
        tensor = inertia_from_planar(about_origin.planar)
        return jnp.concatenate([mass[None], about_origin.first_moment, symmetric_entries(tensor)])

    return jax.vmap(of_body)(model.mass, model.com, model.inertia)


@checked_model
def with_inertial_parameters(model: Model, parameters: Float[Array, "nb 10"]) -> Model:
    """Replace the inertial parameters of a model; the inverse of `inertial_parameters`.

    Physical validity is not checked, because the result of a fit may be outside of the physical domain.

    Args:
        model: The mechanism.
        parameters: Inertial parameters as `inertial_parameters` returns them.

    Raises:
        ValueError: A body has a first moment but no mass, so that it does not have a center of mass.
    """
    if not isinstance(parameters, Tracer):
        values = np.asarray(parameters)
        nowhere = np.flatnonzero((values[:, 0] == 0) & np.any(values[:, 1:4] != 0, axis=1))
        if nowhere.size:
            raise ValueError(
                f"body {model.topology.body_names[nowhere[0]]!r} has zero mass and a first moment; give it a mass"
            )

    return _with_inertial_parameters(model, parameters)


@stored_outside_jit
def _with_inertial_parameters(model: Model, parameters: Float[Array, "nb 10"]) -> Model:
    def of_body(values):
        mass, first_moment = values[0], values[1:4]
        com = jnp.where(mass == 0, 0.0, first_moment / jnp.where(mass == 0, 1.0, mass))
        about_origin = planar_from_inertia(symmetric_matrix(values[4:]))
        about_center = about_origin - jnp.outer(first_moment, com)
        return mass, com, symmetric_entries(inertia_from_planar(about_center))

    mass, com, inertia = jax.vmap(of_body)(parameters)
    return eqx.tree_at(lambda m: (m.mass, m.com, m.inertia), model, (mass, com, inertia))


@checked_model
def inertial_regressor(
    model: Model, q: Coordinates, v: Velocities, a: Accelerations
) -> Float[Array, "nv inertial_columns"]:
    """Regressor of the inertial parameters, with ten columns per body, for trees with joints of any kind.

        inverse_dynamics(model, q, v, a) = Y inertial_parameters(model).ravel() + armature a

    Column k of body i is the generalized force that the motion requires if the k-th parameter of body i is 1 and all other
    parameters of all bodies are 0. The masses and inertias of the model are not used.

    Args:
        model: The mechanism.
        q: Coordinates.
        v: Velocities, rad/s or m/s.
        a: Accelerations, rad/s^2 or m/s^2.

    Source: theory.md (M1), (M2) with (F5), and (H1); Atkeson, An and Hollerbach 1986.
    """
    moving = kinematics.motion(model, q, v)
    placed = moving.placements
    gravity = jnp.concatenate([jnp.zeros_like(model.gravity), model.gravity])
    acceleration = kinematics.accelerations(model, moving, a) - gravity[None]
    into_body = jax.vmap(_motion_to_inner)
    velocity = into_body(placed.rotation, placed.offset, moving.velocity)
    forces = jax.vmap(_unit_forces)(velocity, into_body(placed.rotation, placed.offset, acceleration))
    # Columns of motion in the body frame: power, and with it the generalized force, does not depend on axes and reference point.
    columns = jax.vmap(jax.vmap(_motion_to_inner, (None, None, 0)), (0, 0, None))(
        placed.rotation, placed.offset, placed.columns
    )
    moves = model.topology.column_moves_body.astype(v.dtype)
    return einsum("ai,iac,ikc->aik", moves, columns, forces).reshape(model.nv, 10 * model.nb)  # (H1)


@checked_model
def kinetic_energy_regressor(model: Model, q: Coordinates, v: Velocities) -> Float[Array, "inertial_columns"]:
    """Regressor of the kinetic energy, with ten columns per body in the order of `inertial_regressor`.

        kinetic_energy(model, q, v) = y . inertial_parameters(model).ravel() + 1/2 armature v^2 + (spin of rotors)

    Args:
        model: The mechanism.
        q: Coordinates.
        v: Velocities, rad/s or m/s.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        row = jaxdyn.identify.kinetic_energy_regressor(model, jnp.array([0.3, -0.5]), jnp.array([1.0, 2.0]))
        energy = row @ jaxdyn.identify.inertial_parameters(model).ravel()
        ```

    Source: theory.md (F5), (F7); Gautier and Khalil 1988.
    """
    moving = kinematics.motion(model, q, v)
    placed = moving.placements
    velocity = jax.vmap(_motion_to_inner)(placed.rotation, placed.offset, moving.velocity)
    return 0.5 * einsum("ikc,ic->ik", jax.vmap(_unit_momenta)(velocity), velocity).ravel()  # (F7)


@checked_model
def potential_energy_regressor(model: Model, q: Coordinates) -> Float[Array, "inertial_columns"]:
    """Regressor of the potential energy of gravity, with ten columns per body in the order of `inertial_regressor`.

        potential_energy(model, q) = y . inertial_parameters(model).ravel()

    Args:
        model: The mechanism.
        q: Coordinates.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        row = jaxdyn.identify.potential_energy_regressor(model, jnp.array([0.3, -0.5]))
        energy = row @ jaxdyn.identify.inertial_parameters(model).ravel()
        ```

    Source: theory.md (H2), (F7).
    """
    placed = kinematics.placements(model, q)
    origin = placed.reference + placed.offset
    of_mass = -einsum("bi,i->b", origin, model.gravity)
    of_moment = -einsum("bij,i->bj", placed.rotation, model.gravity)
    return jnp.concatenate([of_mass[:, None], of_moment, jnp.zeros((model.nb, 6), q.dtype)], axis=1).ravel()  # (F7)


def _motion_to_inner(rotation: Matrix33, offset: Vector3, motion: Float[Array, "6"]) -> Float[Array, "6"]:
    """Convert a twist about P on ground axes to the body origin and body axes; `offset` is the vector from P to this origin."""
    w, v = motion[:3], motion[3:]
    return jnp.concatenate([dot(w, rotation), dot(v + cross(w, offset), rotation)])


def _unit_forces(velocity: Float[Array, "6"], acceleration: Float[Array, "6"]) -> Float[Array, "10 6"]:
    """Force on a body in this motion for a unit of each inertial parameter, on body axes about the body origin."""

    turning = jax.vmap(cross_force, (None, 0))(velocity, _unit_momenta(velocity))
    return _unit_momenta(acceleration) + turning  # (M1), (M2)


def _unit_momenta(motion: Float[Array, "6"]) -> Float[Array, "10 6"]:
    """Momentum of a body in this motion for a unit of each inertial parameter, on body axes about the body origin."""

    def momentum(parameters):
        tensor = symmetric_matrix(parameters[4:])
        return SpatialInertia(parameters[0], parameters[1:4], planar_from_inertia(tensor)).momentum(motion)

    return jax.vmap(momentum)(jnp.eye(10, dtype=motion.dtype))


@checked_system
def regressor(system: System, state: State, a: Accelerations, t: Time = 0.0) -> Float[Array, "nv parameters"]:
    """Regressor Y of all linear parameters of a system: bodies, rotors, and forces that declare linear coefficients.

        inverse_dynamics - applied_forces = Y linear_parameters(system) + remaining_forces(system, state, a)

    The left side contains the forces of constraints. They vanish along the independent velocities: multiply both sides by the
    transposed basis of `constraints.minimal_motion`, and fit the drive forces in the same form.

    Columns are in the order of `labels`: ten per body, the armature of each velocity component, and `Force.linear` of each force of
    the system, such as viscous and Coulomb friction. A `TorqueOffset` among the forces adds one constant column per velocity
    component.

    Args:
        system: The mechanism with its forces.
        state: Coordinates and velocities.
        a: Accelerations, rad/s^2 or m/s^2.
        t: Time, s, for joints with prescribed motion.

    Raises:
        TypeError: `system` is not a `System`, or `state` is not a `State`.
        ValueError: The state or the accelerations have a wrong shape.

    Source: theory.md (I1), (H1); `inertial_regressor`.
    """
    model = system.model.at(jnp.asarray(t, state.v.dtype))
    blocks = [inertial_regressor(model, state.q, state.v, a), jnp.diag(a)]
    coefficients = _coefficients(system)
    if coefficients:
        changed = jax.jacfwd(lambda values: applied_forces(_with_coefficients(system, values), state, t=t))
        blocks += [-block.reshape(model.nv, -1) for block in changed(coefficients)]
    return jnp.concatenate(blocks, axis=1)


@checked_system
def remaining_forces(system: System, state: State, a: Accelerations, t: Time = 0.0) -> Float[Array, "nv"]:
    """Generalized forces that a motion requires if all linear parameters are zero, N m or N.

    Subtract them from measured forces before a fit. They are zero if all forces of the system are linear in their parameters.

    Args:
        system: The mechanism with its forces.
        state: Coordinates and velocities.
        a: Accelerations, rad/s^2 or m/s^2.
        t: Time, s, for joints with prescribed motion.

    Raises:
        TypeError: `system` is not a `System`, or `state` is not a `State`.
        ValueError: The state has a wrong shape.
    """
    bare = with_linear_parameters(system, jnp.zeros_like(linear_parameters(system)))
    model = bare.model.at(jnp.asarray(t, state.v.dtype))
    forces = applied_forces(bare.changed(drives=None), State(state.q, state.v), t=t)
    return inverse.recursive_inverse_dynamics(model, state.q, state.v, a) - forces


@checked_system
@stored_outside_jit
def linear_parameters(system: System) -> Float[Array, "parameters"]:
    """Values of the parameters of `regressor` in a system, in the units of `labels`."""
    parts = [inertial_parameters(system.model), system.model.armature, *_coefficients(system)]
    return jnp.concatenate([part.ravel() for part in parts])


@checked_system
def with_linear_parameters(system: System, parameters: Float[Array, "parameters"]) -> System:
    """Replace the values of the parameters of `regressor` in a system; the inverse of `linear_parameters`.

    Args:
        system: The mechanism with its forces.
        parameters: Values in the units of `labels`.

    Raises:
        ValueError: The number of values does not match the number of parameters; see also `with_inertial_parameters`.
    """
    model, coefficients = system.model, _coefficients(system)
    sizes = [10 * model.nb, model.nv, *(value.size for value in coefficients)]
    if parameters.shape != (sum(sizes),):
        raise ValueError(
            f"parameters has shape {parameters.shape}, but the system on {model.name!r} has {sum(sizes)}: see labels(system)"
        )
    inertial, armature, *values = jnp.split(parameters, np.cumsum(sizes)[:-1])
    model = with_inertial_parameters(model, inertial.reshape(model.nb, 10))
    model = eqx.tree_at(lambda m: m.armature, model, armature)
    values = [value.reshape(old.shape) for value, old in zip(values, coefficients, strict=True)]
    return _with_coefficients(eqx.tree_at(lambda s: s.model, system, model), values)


@checked_system
def labels(system: System) -> tuple[Label, ...]:
    """Name and unit of each parameter of `regressor`, such as "Jzz(upper) kg m^2" or "viscous(elbow) N m s/rad".

    Bodies and joints are identified by their names, and the components of a joint with several components by an index:
    "viscous(ball[2])".
    A parameter of a whole force is identified by the index of the force in `System.forces`: "stiffness(Spring 0)". The index is
    also added if several forces in the joints have parameters with the same name: "JointFriction 1 viscous(elbow)".
    """
    model, topology = system.model, system.model.topology

    def per_component(symbol: str, declared: Quantity) -> list[Label]:
        names, units = component_names(model, declared), units_along(model, declared)
        return [Label(f"{symbol}({name})", unit) for name, unit in zip(names, units, strict=True)]

    found = [
        Label(f"{symbol}({body})", unit)
        for body in topology.body_names
        for symbol, unit in zip(INERTIAL_SYMBOLS, _INERTIAL_UNITS, strict=True)
    ]
    found += per_component("armature", quantities(Model)["armature"])
    joint_forces = [force for force in system.forces if isinstance(force, JointForce)]
    uses = collections.Counter(field for force in joint_forces for field in type(force).linear)
    for number, force in enumerate(system.forces):
        kind = f"{type(force).__name__} {number}"
        declared = quantities(type(force))
        for field in type(force).linear:
            if isinstance(force, JointForce):
                found += per_component(field if uses[field] == 1 else f"{kind} {field}", declared[field])
            else:
                found.append(Label(f"{field}({kind})", declared[field].unit_of(turns=True)))
    return tuple(found)


def _coefficients(system: System) -> list:
    """The linear coefficients of all forces: arrays, or their placeholders in `eqx.tree_at`."""
    return [getattr(force, field) for force in system.forces for field in type(force).linear]


def _with_coefficients(system: System, values: list[Array]) -> System:
    return eqx.tree_at(_coefficients, system, values) if values else system
