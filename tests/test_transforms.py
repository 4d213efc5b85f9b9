"""Every public function of the mechanics under every transformation: a table, so that a new function cannot be forgotten.

The mechanism is the smallest with a branch and both kinds of joints.
"""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from difference_quotients import check_derivatives, flat
from first_cases import first
from jaxprs import equations
from random_trees import close, random_model, random_motion

import jaxdyn
from jaxdyn import Coupling, Distance, JointFriction, Spring, State, System, as_dtype, configuration
from jaxdyn.dynamics import (
    Accelerometer,
    ForceTorqueSensor,
    Gyroscope,
    JointTorqueSensors,
    Markers,
    MotorCurrents,
    Sensor,
)

# Shapes are checked by the tests of the functions themselves; here the checks would take a quarter of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")

MECHANISM = {"parents": [-1, 0, 0], "kinds": "RPR", "armature": True}


def _system(model) -> System:
    ones = jnp.ones_like(model.mass)
    points = jnp.asarray([[0.1, 0.2, 0.3], [-0.3, 0.4, 0.2]], model.dtype)
    spring = Spring(1, points[0], 2, points[1], 20 * ones[0], 0.3 * ones[0])
    return System(model, (spring, JointFriction(0.2 * ones, 0.5 * ones, ones)))


def _closed(model) -> System:
    """With a rod to the ground and a gear: one degree of freedom is left."""
    ones = jnp.ones_like(model.mass)
    points = jnp.asarray([[0.1, 0.9, 0.3], [-0.3, 0.4, 0.2]], model.dtype)
    rod = Distance("rod", -1, points[0], 1, points[1], 0.7 * ones[0])
    gear = Coupling("gear", 2, 0, 0.4 * ones)
    open_chain = _system(model)
    return System(model, open_chain.forces, constraints=(rod, gear))


def _sensors(model) -> tuple[Sensor, ...]:
    """Sensors that depend on accelerations, loads, controls and positions."""
    own = Accelerometer("body 2"), Gyroscope("body 1"), ForceTorqueSensor("body 1"), JointTorqueSensors()
    with jax.ensure_compile_time_eval():  # their default values have the default precision
        return as_dtype((*own, Markers(("body 2",)), MotorCurrents(np.ones(3))), model.dtype)


# name -> rows, each a function of (model, q, v, a). `a` also serves as force, control and second configuration.
TABLE = {
    "acceleration_energy": [jaxdyn.formulations.acceleration_energy],
    "acceleration_energy_from_kinetic": [jaxdyn.formulations.acceleration_energy_from_kinetic],
    "acceleration_energy_of_velocity": [
        lambda m, q, v, a: jaxdyn.formulations.acceleration_energy_of_velocity(m, q, v)
    ],
    "acceleration_energy_terms": [jaxdyn.formulations.acceleration_energy_terms],
    "canonical_rates": [lambda m, q, v, a: jaxdyn.formulations.canonical_rates(m, q, v, a)],
    "driving_forces": [lambda m, q, v, a: (jaxdyn.driving_forces(System(m), State(q, v), a), v)],
    "driving_power": [lambda m, q, v, a: jaxdyn.dynamics.driving_power(System(m), State(q, v), a)],
    "forward_dynamics_derivatives": [jaxdyn.forward_dynamics_derivatives],
    "generalized_momentum": [lambda m, q, v, a: jaxdyn.dynamics.generalized_momentum(m, q, v)],
    "gibbs_appell_accelerations": [jaxdyn.formulations.gibbs_appell_accelerations],
    "gibbs_appell_forces": [jaxdyn.formulations.gibbs_appell_forces],
    "hamiltonian": [lambda m, q, v, a: jaxdyn.formulations.hamiltonian(m, q, v)],
    "inverse_dynamics_derivatives": [jaxdyn.inverse_dynamics_derivatives],
    "joint_reactions": [lambda m, q, v, a: jaxdyn.joint_reactions(_system(m), State(q, v), a)],
    "kane_forces": [lambda m, q, v, a: jaxdyn.formulations.kane_forces(m, q, v, a, v)],
    "lagrange_forces": [jaxdyn.formulations.lagrange_forces],
    "lagrange_terms": [jaxdyn.formulations.lagrange_terms],
    "screw_accelerations": [jaxdyn.formulations.screw_accelerations],
    "screw_displacements": [lambda m, q, v, a: jaxdyn.formulations.screw_displacements(m, q)],
    "screw_exponential": [lambda m, q, v, a: jaxdyn.formulations.screw_exponential(q, v, a[0])],
    "screw_poses": [lambda m, q, v, a: jaxdyn.formulations.screw_poses(m, q)],
    "screw_velocities": [lambda m, q, v, a: jaxdyn.formulations.screw_velocities(m, q, v)],
    "screws": [lambda m, q, v, a: jaxdyn.formulations.screws(m)],
    "acceleration": [
        lambda m, q, v, a: jaxdyn.acceleration(_system(m), State(q, v), a),
        lambda m, q, v, a: jaxdyn.acceleration(_closed(m), State(q, v), a, correction=a[:2]),
    ],
    "constraint_errors": [lambda m, q, v, a: jaxdyn.constraints.constraint_errors(_closed(m), State(q, v))],
    "constraint_forces": [lambda m, q, v, a: jaxdyn.constraint_forces(_closed(m), State(q, v), a)],
    "constraint_jacobian": [
        lambda m, q, v, a: jaxdyn.constraints.constraint_jacobian(_closed(m), _closed(m).at_rest(q))
    ],
    "angular_momentum": [lambda m, q, v, a: jaxdyn.angular_momentum(m, q, v)],
    "applied_forces": [lambda m, q, v, a: jaxdyn.applied_forces(_system(m), State(q, v), a)],
    "bias_force": [lambda m, q, v, a: jaxdyn.bias_force(m, q, v)],
    "mass_center_accelerations": [jaxdyn.dynamics.mass_center_accelerations],
    "body_jacobian": [lambda m, q, v, a: jaxdyn.body_jacobian(m, q)],
    "mass_center_velocities": [lambda m, q, v, a: jaxdyn.mass_center_velocities(m, q, v)],
    "center_of_mass": [lambda m, q, v, a: jaxdyn.center_of_mass(m, q)],
    "center_of_mass_jacobian": [lambda m, q, v, a: jaxdyn.dynamics.center_of_mass_jacobian(m, q)],
    "centroidal_momentum_matrix": [lambda m, q, v, a: jaxdyn.dynamics.centroidal_momentum_matrix(m, q)],
    "centroidal_momentum_rate": [jaxdyn.dynamics.centroidal_momentum_rate],
    "christoffel_first_kind": [lambda m, q, v, a: jaxdyn.christoffel_first_kind(m, q)],
    "christoffel_second_kind": [lambda m, q, v, a: jaxdyn.christoffel_second_kind(m, q)],
    "connection_first_kind": [lambda m, q, v, a: jaxdyn.connection_first_kind(m, q)],
    "connection_second_kind": [lambda m, q, v, a: jaxdyn.dynamics.connection_second_kind(m, q)],
    "constrained_dynamics": [
        lambda m, q, v, a: jaxdyn.dynamics.constrained_dynamics(m, q, v, a, jnp.stack([v, a, v]), jnp.stack([q[0]] * 3))
    ],
    "covariant_derivative": [lambda m, q, v, a: jaxdyn.dynamics.covariant_derivative(m, q, v, a, v)],
    "coriolis_matrix": [lambda m, q, v, a: jaxdyn.coriolis_matrix(m, q, v)],
    "forward_dynamics": [
        jaxdyn.forward_dynamics,
        lambda m, q, v, a: jaxdyn.forward_dynamics(m, q, v, a, method="articulated_body"),
        lambda m, q, v, a: jaxdyn.forward_dynamics(m, q, v, a, method="contravariant"),
    ],
    "forward_kinematics": [lambda m, q, v, a: jaxdyn.forward_kinematics(m, q)],
    "frame_acceleration": [lambda m, *x: jaxdyn.dynamics.frame_acceleration(m, *x, "body 2", axes="local")],
    "frame_jacobian": [lambda m, q, v, a: jaxdyn.dynamics.frame_jacobian(m, q, "body 2")],
    "frame_placement": [lambda m, q, v, a: jaxdyn.frame_placement(m, q, "body 2")],
    "frame_velocity": [lambda m, q, v, a: jaxdyn.dynamics.frame_velocity(m, q, v, "body 2")],
    "gravity_force": [lambda m, q, v, a: jaxdyn.gravity_force(m, q)],
    "impulse_dynamics": [
        lambda m, q, v, a: jaxdyn.dynamics.impulse_dynamics(m, q, v, jnp.stack([a, q, a]), restitution=0.3)
    ],
    "inverse_dynamics": [
        jaxdyn.inverse_dynamics,
        lambda m, q, v, a: jaxdyn.inverse_dynamics(m, q, v, a, method="covariant"),
    ],
    "kinetic_energy": [lambda m, q, v, a: jaxdyn.kinetic_energy(m, q, v)],
    "mass_matrix": [
        lambda m, q, v, a: jaxdyn.mass_matrix(m, q),
        lambda m, q, v, a: jaxdyn.mass_matrix(m, q, method="closed_form"),
    ],
    "momentum": [lambda m, q, v, a: jaxdyn.momentum(m, q, v)],
    "neutral_state": [lambda m, q, v, a: jaxdyn.neutral_state(System(m))],
    "observe": [lambda m, q, v, a: jaxdyn.dynamics.observe(_system(m), _sensors(m), State(q, v), a)],
    "partial_velocities": [lambda m, q, v, a: jaxdyn.partial_velocities(m, q)],
    "potential_energy": [
        lambda m, q, v, a: jaxdyn.potential_energy(m, q),
        lambda m, q, v, a: jaxdyn.potential_energy(_system(m), _system(m).at_rest(q)),
    ],
    "subtree_centers": [lambda m, q, v, a: jaxdyn.dynamics.subtree_centers(m, q)],
    "total_energy": [lambda m, q, v, a: jaxdyn.total_energy(_system(m), State(q, v))],
    "configuration.difference": [lambda m, q, v, a: configuration.difference(m, q, a)],
    "configuration.coordinate_rate": [lambda m, q, v, a: configuration.coordinate_rate(m, q, v)],
    "configuration.distance": [lambda m, q, v, a: configuration.distance(m, q, a)],
    "configuration.integrate": [lambda m, q, v, a: configuration.integrate(m, q, v)],
    "configuration.difference_jacobians": [lambda m, q, v, a: configuration.difference_jacobians(m, q, a)],
    "configuration.integrate_jacobians": [lambda m, q, v, a: configuration.integrate_jacobians(m, q, v)],
    "configuration.interpolate": [lambda m, q, v, a: configuration.interpolate(m, q, a, v[0])],
}
# Functions that are made of derivatives themselves: one more derivative is compared with difference quotients, not two.
OF_DERIVATIVES = {
    "acceleration_energy_from_kinetic",
    "canonical_rates",
    "constraint_forces",
    "forward_dynamics_derivatives",
    "generalized_momentum",
    "gibbs_appell_accelerations",
    "gibbs_appell_forces",
    "inverse_dynamics_derivatives",
    "lagrange_forces",
    "lagrange_terms",
    "screw_accelerations",
}
# Of these the ones whose derivatives are compared also without the option --exhaustive; each takes up to ten seconds.
COMPARED_OF_DERIVATIVES = {"constraint_forces", "generalized_momentum", "lagrange_forces"}
# What all others are made of, and a closed mechanism with forces: derivatives of second order are compared also without the option.
TWICE = {
    "acceleration 1",
    "mass_center_accelerations 0",
    "constraint_jacobian 0",
    "forward_dynamics 1",
    "inverse_dynamics 0",
    "mass_matrix 0",
}
# Derivatives that XLA compiles, which takes as long for these as the lane compiler, and half as long again for the others.
# `tests/lanes/test_agreement.py` compares the derivatives of both.
BY_XLA = {
    "angular_momentum",
    "mass_center_accelerations",
    "constraint_jacobian",
    "christoffel_first_kind",
    "mass_matrix",
}
BY_XLA |= {name for name in TABLE if name.startswith("configuration.")}
ROWS = [pytest.param(f, id=f"{name} {k}" if k else name) for name, rows in TABLE.items() for k, f in enumerate(rows)]


def draw(seed: int):
    rng = np.random.default_rng(seed)
    model = random_model(rng, 3, **MECHANISM)
    return model, *random_motion(rng, model)


@pytest.fixture(scope="module")
def inputs():
    return draw(0)


@pytest.fixture(scope="module")
def others():
    return draw(1)


def on_numbers(function, inputs):
    """The function of one pytree of floating-point numbers, model and motion, with a flat result; and those numbers.

    Limits of motion are infinite and enter no equation.
    """
    model, *motion = inputs
    numbers, static = eqx.partition((eqx.tree_at(lambda m: m.limits, model, None), *motion), eqx.is_inexact_array)
    return lambda numbers: flat(function(*eqx.combine(numbers, static))), numbers


def test_the_table_has_every_public_function_of_the_mechanics():
    packages = (jaxdyn, jaxdyn.dynamics, jaxdyn.formulations, jaxdyn.constraints)
    members = [(name, getattr(package, name)) for package in packages for name in dir(package)]
    mechanics = ("jaxdyn.dynamics", "jaxdyn.formulations")
    public = {name for name, item in members if inspect.isfunction(item) and item.__module__.startswith(mechanics)}
    # A search, whose derivatives are those of the condition that it meets: tests/dynamics/test_frame_targets.py.
    searches = {"inverse_kinematics"}
    # Functions of closed loops: tests/constraints/test_forces.py and test_derivatives.py.
    of_loops = {"minimal_motion", "minimal_acceleration"}
    # Functions that need contacts or describe them: tests/dynamics/test_contact*.py, tests/simulate/test_contact_outputs.py.
    contacts = {name for name in public if name.startswith("contact_")} | {"restitution", "damping_ratio"}
    assert len(contacts) == 9
    assert public == {name for name in TABLE if not name.startswith("configuration.")} | searches | of_loops | contacts


@pytest.mark.parametrize("function", ROWS)
def test_jit_of_vmap_is_the_loop_and_traces_once_for_all_models_of_one_topology(function, inputs, others):
    expected = {0: flat(function(*inputs)), 1: flat(function(*others))}
    traces = 0

    @jax.jit
    @jax.vmap
    def batched(*arguments):
        nonlocal traces
        traces += 1
        return flat(function(*arguments))

    assert inputs[0].topology is not others[0].topology  # equal by value, so the compilation is shared
    for pair, order in [((inputs, others), (0, 1)), ((others, inputs), (1, 0))]:
        actual = batched(*jax.tree.map(lambda *x: jnp.stack(x), *pair))
        close(actual, jnp.stack([expected[k] for k in order]), scale=100.0)
    assert traces == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive) if name in OF_DERIVATIVES - COMPARED_OF_DERIVATIVES else name
        for name in TABLE
    ],
)
def test_derivatives_forward_reverse_and_forward_over_reverse_are_difference_quotients(name, inputs, exhaustive):
    for row, function in enumerate(TABLE[name]):
        twice = exhaustive or f"{name} {row}" in TWICE or name.startswith("configuration.")
        orders = 2 if twice and name not in OF_DERIVATIVES else 1
        check_derivatives(*on_numbers(function, inputs), orders=orders, in_lanes=name not in BY_XLA)


# Functions that are made of derivatives take the longest, and `tests/formulations` compares their numbers in single precision.
@pytest.mark.parametrize("function", first(25, sorted(ROWS, key=lambda row: row.id.split()[0] in OF_DERIVATIVES)))
def test_single_precision_in_gives_single_precision_out_and_all_the_way(function, inputs):
    f, x = on_numbers(function, as_dtype(inputs, jnp.float32))

    def with_derivatives(x):
        value, pull = jax.vjp(f, x)
        return value, pull(jnp.ones_like(value))

    jaxpr = jax.make_jaxpr(with_derivatives)(x)
    inside = [v.aval for e in equations(jaxpr.jaxpr) for v in (*e.invars, *e.outvars)]
    # A Python number, as in `where(condition, x, 0.0)`, is a weakly typed scalar of double precision until it meets x.
    types = {str(x.dtype) for x in inside if not (x.weak_type and x.shape == ())}
    assert "float32" in types
    assert "float64" not in types
    assert {str(out.dtype) for out in jaxpr.out_avals} == {"float32"}
