"""Laws of the mechanics on random trees where joints of all kinds meet, free, ball, planar and prescribed ones among them.

All trees of one topology run at once, compiled once per group of laws; what is compared is computed side by side.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import equations
from random_trees import ALL_KINDS, close, moved, random_model, random_motion, random_unit
from stacked_trees import agree, evaluated

from jaxdyn import (
    AppliedForce,
    State,
    System,
    acceleration,
    angular_momentum,
    as_dtype,
    backend,
    bias_force,
    center_of_mass,
    christoffel_first_kind,
    configuration,
    connection_first_kind,
    coriolis_matrix,
    forward_dynamics,
    forward_kinematics,
    gravity_force,
    inverse_dynamics,
    kinetic_energy,
    mass_center_velocities,
    mass_matrix,
    momentum,
    potential_energy,
)
from jaxdyn.dynamics import inverse, kinematics, mass_center_accelerations
from jaxdyn.mechanism.joint import Joint
from jaxdyn.spatial import quaternion, rotation
from jaxdyn.spatial.inertia import symmetric_matrix
from jaxdyn.spatial.transform import RigidTransform

# Kinds in the letters of `random_trees.random_joint`; small letters have prescribed motion.
TREES = {
    "all": {"parents": [-1, 0, 0, 1, 3, 2, -1, 5, 5], "kinds": "FSUHRLCsP"},
    "floating": {"parents": [-1, 0, 1], "kinds": "FSU"},  # the columns of U move in their body
    "grounded": {"parents": [-1, 0, 0, 1], "kinds": "SLFH"},
    "prescribed": {"parents": [-1, 0, 1, 1], "kinds": "uFSU"},
}
METHODS = ["cholesky", "articulated_body"]  # the third one, "contravariant", knows no prescribed motion
COUNT = 3


def samples(name: str, dtype=float):
    """Models of one topology, q, v, a and a direction in the space of each of the three, with leading axis COUNT."""
    rng = np.random.default_rng([11, list(TREES).index(name)])
    shape = TREES[name]
    drawn = []
    for _ in range(COUNT):
        model = random_model(rng, len(shape["kinds"]), armature=True, name=name, **shape).at(jnp.asarray(rng.normal()))
        drawn.append((model, *random_motion(rng, model), *random_motion(rng, model)))
    return as_dtype(jax.tree.map(lambda *x: jnp.stack(x), *drawn), dtype)


def driven_time(model):
    """The time at which the prescribed motions of the model stand, 0 if it has none."""
    times = [joint.time[0] for joint in model.joints if hasattr(joint, "time")]
    return times[0] if times else jnp.zeros((), model.dtype)


def along(model, function, q, v, *rest):
    """Value and rate of function(q, *x) when q moves with velocities v; `rest` holds pairs x, dx/dt."""
    others, rates = rest[::2], rest[1::2]
    return jax.jvp(function, (q, *others), (configuration.coordinate_rate(model, q, v), *rates))


def slopes(model, function, q):
    """Derivatives of function(q) along every velocity component, on the last axis."""
    return jax.jacfwd(lambda step: function(configuration.integrate(model, q, step)))(jnp.zeros(model.nv, q.dtype))


# --- the mass matrix, the two methods of inverse and the three of forward dynamics ---


def dynamics_in_several_ways(model, q, v, a, *_):
    """Pairs of results that are equal."""
    matrix, tau = mass_matrix(model, q), inverse_dynamics(model, q, v, a)
    pairs = {
        "closed form of the mass matrix": (mass_matrix(model, q, method="closed_form"), matrix),
        "the mass matrix is the derivative of the inverse dynamics": (
            jax.jacfwd(lambda a: inverse_dynamics(model, q, v, a))(a),
            matrix,
        ),
        "symmetry": (matrix, matrix.T),
        "mass times acceleration and bias": (tau, matrix @ a + bias_force(model, q, v)),
        "gravity force is the slope of the potential": (
            gravity_force(model, q),
            -slopes(model, lambda q: potential_energy(model, q), q),
        ),
    }
    for method in METHODS:
        pairs[f"forward after inverse, {method}"] = forward_dynamics(model, q, v, tau, method=method), a
    return pairs, jnp.linalg.eigvalsh(matrix)


@functools.cache
def several_ways():
    return evaluated(dynamics_in_several_ways, *samples("all"))


def agree_all(pairs, scale=1.0, roundings=1e4):
    """Every named pair equal, relative to its size or `scale`; the name of the law in the message."""
    for law, (one, other) in pairs.items():
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        assert np.all(np.isfinite(other)), law
        size = max(scale, float(np.max(np.abs(other))))
        error = float(np.max(np.abs(one - other))) / size
        assert error < roundings * np.finfo(float).eps, (law, error)


def test_mass_matrix_inverse_and_forward_dynamics_agree_in_all_methods():
    pairs, eigenvalues = several_ways()
    # Rounding errors of forces are magnified by the inverse of the mass matrix, whose smallest eigenvalues are near 0.05.
    assert np.all(eigenvalues > 0.02)
    agree_all(pairs, scale=10.0)


def test_single_precision_agrees_and_stays_single():
    def some(model, q, v, a, *_):
        return mass_matrix(model, q), inverse_dynamics(model, q, v, a)

    pairs, _ = several_ways()
    expected = pairs["closed form of the mass matrix"][1], pairs["mass times acceleration and bias"][0]
    for single, double in zip(evaluated(some, *samples("all", jnp.float32)), expected, strict=True):
        assert single.dtype == jnp.float32
        np.testing.assert_allclose(single, double, rtol=0, atol=1e-5 * np.max(np.abs(double)))


# --- the connection ---


def laws_of_the_connection(model, q, v, a, *_):
    symbols = connection_first_kind(model, q)
    coriolis = coriolis_matrix(model, q, v)
    matrix, tau = mass_matrix(model, q), inverse_dynamics(model, q, v, a)
    bodies = matrix - jnp.diag(model.armature)
    brackets = jnp.einsum("abd,dg->abg", configuration.structure_coefficients(model, q), bodies)
    metric_slopes = slopes(model, lambda q: mass_matrix(model, q), q)
    _, metric_rate = along(model, lambda q: mass_matrix(model, q), q, v)
    return {
        "closed form and Koszul's formula": (symbols, connection_first_kind(model, q, method="autodiff")),
        "torsion (G16)": (symbols - symbols.swapaxes(0, 1), brackets),
        "compatible with the metric (G15)": (symbols + symbols.swapaxes(1, 2), jnp.einsum("bga->abg", metric_slopes)),
        "metric rate (G17)": (coriolis + coriolis.T, metric_rate),
        "Coriolis force": (coriolis @ v, jnp.einsum("abg,a,b->g", symbols, v, v)),
        "energy is half the square of the velocity in the metric": (kinetic_energy(model, q, v), 0.5 * v @ matrix @ v),
        "covariant inverse dynamics": (inverse_dynamics(model, q, v, a, method="covariant"), tau),
        "contravariant forward dynamics": (forward_dynamics(model, q, v, tau, method="contravariant"), a),
    }, symbols


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["floating", "grounded"])
def test_connection_obeys_its_laws(name):
    model, *rest = samples(name)
    pairs, symbols = evaluated(laws_of_the_connection, model, *rest)
    agree_all(pairs)
    # (G17): the symbols are antisymmetric in the last two indices where the joint of the first one precedes both and its columns
    # do not move in their body.
    topology = model.topology
    before = topology.column_precedes
    fixed = np.array([topology.joint_classes[b].subspace_rate is Joint.subspace_rate for b in topology.body_of_column])
    antisymmetric = before[:, :, None] & before[:, None, :] & fixed[:, None, None]
    defect = np.where(antisymmetric, symbols + np.swapaxes(symbols, 2, 3), 0.0)
    assert np.max(np.abs(defect)) < 1e-12
    assert np.any(np.where(antisymmetric, symbols, 0.0))


def test_textbook_symbols_are_refused_with_the_joint_that_has_none():
    for name, joint in {"floating": r"'body 0_joint' \(Free\)", "grounded": r"'body 0_joint' \(Spherical\)"}.items():
        model, q, *_ = jax.tree.map(lambda x: x[0], samples(name))
        with pytest.raises(ValueError, match=joint + ".*not coordinate rates.*connection_first_kind"):
            christoffel_first_kind(model, q)
    planar = random_model(np.random.default_rng(0), 2, parents=[-1, 0], kinds="UL")
    with pytest.raises(ValueError, match=r"'body 1_joint' \(Planar\)"):
        christoffel_first_kind(planar, jnp.zeros(5))


def test_textbook_symbols_of_every_joint_with_coordinate_rates_are_symmetric_and_those_of_the_metric():
    model = random_model(np.random.default_rng(1), 4, parents=[-1, 0, 1, 1], kinds="UHCR", armature=True)
    q, _, _ = random_motion(np.random.default_rng(2), model)

    def symbols_and_slopes(q):
        return christoffel_first_kind(model, q), jax.jacfwd(lambda q: mass_matrix(model, q))(q)

    symbols, d = (x[0] for x in evaluated(symbols_and_slopes, q[None]))
    close(symbols, symbols.swapaxes(0, 1))
    close(symbols, 0.5 * (np.einsum("bga->abg", d) + np.einsum("gab->abg", d) - d))  # (G6)


# --- an independent route: Lagrange's equations in Hamel's form, by automatic differentiation of the placements ---


def forces_by_hamel(model, q, v, a):
    """Forces of the motion: d/dt(dT/dv) - X(T) + k v dT/dv + X(V). Only placements come from the library, T is their derivative."""
    planar = jax.vmap(
        lambda entries: 0.5 * jnp.trace(symmetric_matrix(entries)) * jnp.eye(3) - symmetric_matrix(entries)
    )(model.inertia)

    def placed(q, t):
        at = forward_kinematics(model.at(t), q)
        return at.rotation, at.translation + jnp.einsum("bij,bj->bi", at.rotation, model.com)

    def kinetic(q, v, t):
        _, (turning, moving) = jax.jvp(placed, (q, t), (configuration.coordinate_rate(model, q, v), jnp.ones_like(t)))
        linear = 0.5 * jnp.sum(model.mass * jnp.sum(moving**2, axis=1))
        return linear + 0.5 * jnp.einsum("bij,bjk,bik->", turning, planar, turning)

    def potential(q, t):
        return -jnp.einsum("b,bi,i->", model.mass, placed(q, t)[1], model.gravity)

    t = driven_time(model)
    q_rate = configuration.coordinate_rate(model, q, v)
    p, p_rate = jax.jvp(jax.grad(kinetic, 1), (q, v, t), (q_rate, a, jnp.ones_like(t)))
    lagrangian_slope = jax.grad(lambda q: kinetic(q, v, t) - potential(q, t))(q)
    directions = jax.vmap(lambda unit: configuration.coordinate_rate(model, q, unit))(jnp.eye(model.nv))
    k = configuration.structure_coefficients(model, q)
    # A rotor is inertia along its own velocity component and turns with no body.
    return p_rate - directions @ lagrangian_slope + jnp.einsum("gad,a,d->g", k, v, p) + model.armature * a


@pytest.mark.thorough
def test_forces_are_those_of_lagrange_in_the_form_of_hamel():
    def both(model, q, v, a, *_):
        return {"Hamel": (inverse_dynamics(model, q, v, a), forces_by_hamel(model, q, v, a))}

    agree_all(evaluated(both, *samples("prescribed"), in_lanes=True), scale=10.0)


# --- energy, momentum, frames ---


def laws_of_energy_and_momentum(model, q, v, tau, *_):
    """For a tree on one free joint, whose first six forces act from outside."""
    model = eqx.tree_at(lambda m: m.armature, model, model.armature.at[:6].set(0.0))  # it would stand on the ground
    a = forward_dynamics(model, q, v, tau)
    placed = jax.tree.map(lambda x: x[0], forward_kinematics(model, q))
    couple, force = placed.rotation @ tau[:3], placed.rotation @ tau[3:6]
    weight = jnp.sum(model.mass) * model.gravity
    moment = couple + jnp.cross(placed.translation, force) + jnp.cross(center_of_mass(model, q), weight)
    push = AppliedForce(2, [0.1, -0.2, 0.3], [3.0, -2.0, 1.0], [0.5, 0.2, -0.7], body_fixed=True)
    pushed = acceleration(System(model, (push,)), State(q, v))
    arm = jax.tree.map(lambda x: x[2], forward_kinematics(model, q))
    energy = lambda q, v: kinetic_energy(model, q, v) + potential_energy(model, q)  # noqa: E731
    rate = lambda function, a: along(model, lambda q, v: function(model, q, v), q, v, v, a)[1]  # noqa: E731
    _, mass_center_rate = along(model, lambda q: center_of_mass(model, q), q, v)
    return {
        "power": (along(model, energy, q, v, v, a)[1], tau @ v),
        "momentum": (momentum(model, q, v), jnp.sum(model.mass) * mass_center_rate),
        "rate of momentum": (rate(momentum, a), force + weight),
        "rate of angular momentum": (rate(angular_momentum, a), moment),
        "rate of momentum by a push": (rate(momentum, pushed), arm.rotation @ jnp.array([3.0, -2.0, 1.0]) + weight),
    }


def test_power_is_the_rate_of_energy_and_outer_forces_that_of_momentum():
    agree_all(evaluated(laws_of_energy_and_momentum, *samples("floating"), in_lanes=True), scale=100.0)


@pytest.mark.parametrize("name", ["all"])
def test_velocities_and_accelerations_are_rates_of_placements(name):
    def rates(model, q, v, a, *_):
        def placed(q, t):
            at = forward_kinematics(model.at(t), q)
            return at.rotation, at.translation + jnp.einsum("bij,bj->bi", at.rotation, model.com)

        def velocities(q, v, t):
            (turned, _), (turning, linear) = jax.jvp(
                placed, (q, t), (configuration.coordinate_rate(model, q, v), jnp.ones_like(t))
            )
            return jax.vmap(rotation.unskew)(turning @ turned.swapaxes(1, 2)), linear  # (B8)

        t = driven_time(model)
        first, second = jax.jvp(
            velocities, (q, v, t), (configuration.coordinate_rate(model, q, v), a, jnp.ones_like(t))
        )
        velocity, accelerated = mass_center_velocities(model, q, v), mass_center_accelerations(model, q, v, a)
        return {
            "angular velocity": (velocity.angular, first[0]),
            "velocity": (velocity.linear, first[1]),
            "angular acceleration": (accelerated.angular, second[0]),
            "acceleration": (accelerated.linear, second[1]),
        }

    agree_all(evaluated(rates, *samples(name), in_lanes=True), scale=10.0)


@pytest.mark.parametrize("name", ["grounded"])
def test_moving_the_world_frame_changes_no_mechanics(name):
    rng = np.random.default_rng(3)
    there = RigidTransform(jnp.asarray(random_unit(rng, 4)), jnp.asarray(rng.normal(size=3)))

    def here_and_there(model, q, v, a, *_):
        other = moved(model, there)
        turned = lambda x: quaternion.rotate(there.quaternion, x)  # noqa: E731
        return {
            "mass matrix": (mass_matrix(other, q), mass_matrix(model, q)),
            "connection": (connection_first_kind(other, q), connection_first_kind(model, q)),
            "inverse dynamics": (inverse_dynamics(other, q, v, a), inverse_dynamics(model, q, v, a)),
            "momentum": (momentum(other, q, v), turned(momentum(model, q, v))),
            "angular momentum": (
                angular_momentum(other, q, v, about=there.translation),
                turned(angular_momentum(model, q, v)),
            ),
        }

    agree_all(evaluated(here_and_there, *samples(name)), scale=10.0)


def test_the_norm_of_quaternions_does_not_matter():
    def scaled_and_not(model, q, v, a, *_):
        unit = configuration.normalize(model, q)
        return {
            "inverse dynamics": (inverse_dynamics(model, unit, v, a), inverse_dynamics(model, q, v, a)),
            "forward dynamics": (forward_dynamics(model, unit, v, a), forward_dynamics(model, q, v, a)),
        }

    agree_all(evaluated(scaled_and_not, *samples("grounded")), scale=100.0)


# --- derivatives: the rules of inverse and forward dynamics against differentiation of the algorithms ---


def derivatives_in_several_ways(model, q, v, a, dq, dv, da):
    """Derivatives along (dq, dv, da), where dq may also change the norm of quaternions, by rule and through the algorithm."""

    def plain_inverse(model, q, v, a):
        return inverse.forces_of_motion(model, kinematics.motion(model, q, v), a)

    at, direction = (q, v, a), (dq, dv, da)
    tau, needed = jax.jvp(lambda q, v, a: plain_inverse(model, q, v, a), at, direction)
    pairs = {"inverse": (jax.jvp(lambda q, v, a: inverse_dynamics(model, q, v, a), at, direction)[1], needed)}
    # a = forward(q, v, tau) changes by da when tau changes by what the motion needs.
    for method in METHODS if model.name == "grounded" else METHODS[:1]:
        forward = lambda *x, method=method: forward_dynamics(model, *x, method=method)  # noqa: E731
        pairs[f"forward, {method}"] = jax.jvp(forward, (q, v, tau), (dq, dv, needed))[1], da
    if model.name != "grounded":  # there the rule is to differentiate the algorithm
        return pairs
    heavier = lambda mass: eqx.tree_at(lambda m: (m.mass, m.com), model, (mass, mass[:, None] * model.com))  # noqa: E731
    mass, change = model.mass, jnp.ones_like(model.mass)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=model.nv))
    return pairs | {
        "inverse, by the model too": (
            jax.jvp(lambda m, q: inverse_dynamics(heavier(m), q, v, a), (mass, q), (change, dq))[1],
            jax.jvp(lambda m, q: plain_inverse(heavier(m), q, v, a), (mass, q), (change, dq))[1],
        ),
        "inverse, reverse mode": (
            jax.grad(lambda q: weights @ inverse_dynamics(model, q, v, a))(q),
            jax.grad(lambda q: weights @ plain_inverse(model, q, v, a))(q),
        ),
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["floating", "grounded", "prescribed"])
def test_derivative_rules_are_the_derivatives_of_the_algorithms(name):
    agree_all(evaluated(derivatives_in_several_ways, *samples(name), in_lanes=name != "prescribed"), scale=100.0)


# --- batches, and one computation per kind ---


def count_of_equations(function, *arguments) -> int:
    with backend("xla"):
        return sum(1 for _ in equations(jax.make_jaxpr(function)(*arguments).jaxpr))


def test_joints_of_one_kind_share_one_computation():
    per_count = []
    for count in (2, 6):
        model = random_model(np.random.default_rng(0), count, kinds="S")
        q, v, _ = random_motion(np.random.default_rng(1), model)
        assert len(model.joints) == 1
        per_count.append(
            [
                count_of_equations(configuration.joint_transforms, model, q),
                count_of_equations(configuration.integrate, model, q, v),
                count_of_equations(configuration.difference, model, q, q),
                count_of_equations(configuration.structure_coefficients, model, q),
            ]
        )
    assert per_count[0] == per_count[1]


def test_a_tree_has_one_stack_per_kind_of_joint():
    kinds = ALL_KINDS + "rs"
    model = random_model(np.random.default_rng(2), 2 * len(kinds), kinds=kinds + kinds[::-1])
    assert len(model.joints) == len(kinds)
    assert sorted(len(bodies) for _, bodies in model.topology.groups) == [2] * len(kinds)


def test_coordinates_belong_to_their_own_joint_in_a_tree_of_all_kinds():
    kinds = "SRFSULsF"
    model = random_model(np.random.default_rng(4), len(kinds), kinds=kinds)
    q, _, _ = random_motion(np.random.default_rng(5), model)
    together = jax.jit(configuration.joint_transforms)(model, q)
    for i in range(len(kinds)):
        joint, start = model.joint(i), model.topology.q_starts[i]
        alone = joint.transform(q[start : start + joint.nq])
        close(together.quaternion[i], alone.quaternion)
        close(together.translation[i], alone.translation)


def test_agreement_would_be_noticed():
    """`agree` and `agree_all` see an error of one part in 1e9."""
    one = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    for check in (lambda x: agree(one, x), lambda x: agree_all({"law": (one, x)})):
        check(one)
        with pytest.raises(AssertionError):
            check(one * (1 + 1e-9))
