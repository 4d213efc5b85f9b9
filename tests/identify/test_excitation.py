"""Motions for identification: exact derivatives, limits that hold, and far more information than random motions give."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import close

import jaxdyn
from jaxdyn import (
    JointDrives,
    JointFriction,
    MechanismBuilder,
    Revolute,
    State,
    System,
    applied_forces,
    inverse_dynamics,
)
from jaxdyn.identify.excitation import ExcitationError, ExcitationResult, design_excitation, random_motions
from jaxdyn.identify.fourier_motion import FourierMotion
from jaxdyn.identify.linear_fit import weighted_least_squares
from jaxdyn.identify.regression import regressor


def test_fourier_motion_has_exact_derivatives_and_repeats():
    rng = np.random.default_rng(0)
    motion = FourierMotion(
        *map(jnp.asarray, (rng.normal(size=2), rng.normal(size=(2, 3)), rng.normal(size=(2, 3)), 1.7))
    )

    @jax.jit
    def derivatives(motion, t):
        (_, rate, second), (q_rate, v_rate, _) = jax.jvp(motion, (t,), (jnp.ones_like(t),))
        return rate, q_rate, second, v_rate

    v, q_rate, a, v_rate = derivatives(motion, jnp.asarray(0.4))
    close(v, np.asarray(q_rate), scale=10.0)
    close(a, np.asarray(v_rate), scale=10.0)
    rest = motion.at_rest()
    q, v, a = jax.jit(jax.vmap(rest))(jnp.asarray([0.0, 0.3, float(motion.period)]))
    close(v[np.array([0, 2])], 0.0, scale=10.0)
    close(a[np.array([0, 2])], 0.0, scale=100.0)
    close(q[2], np.asarray(q[0]), scale=10.0)
    assert float(jnp.max(jnp.abs(v[1]))) > 0.1
    again = rest.at_rest()
    close(again.sine, np.asarray(rest.sine))
    close(again.cosine, np.asarray(rest.cosine))


def arm(effort: float = 14.0) -> System:
    """A shoulder that pans and an elbow that lifts 3 kg m^2/s^2 at most; positions, speeds and forces are all limited."""
    builder = MechanismBuilder("arm")
    builder.add_body("upper", joint=Revolute((0, 0, 1)), joint_name="pan", mass=2.0, com=(0.2, 0, 0),
                     inertia=(0.02, 0.05, 0.05), position_limits=(-1.0, 2.0), velocity_limit=3.0, effort_limit=effort)  # fmt: skip
    builder.add_body("lower", parent="upper", position=(0.5, 0, 0), joint=Revolute((0, 1, 0)), joint_name="lift", mass=1.0,
                     com=(0.3, 0, 0), inertia=(0.01, 0.03, 0.03), velocity_limit=4.0, effort_limit=effort)  # fmt: skip
    return System(builder.build(), (JointFriction(viscous=[0.3, 0.2], coulomb=[0.5, 0.4], velocity_scale=[0.1, 0.1]),))


OPTIONS = {
    "period": 4.0,
    "harmonics": 3,
    "samples": 30,
    "starts": 3,
    "max_steps": 60,
    "noise": jnp.asarray([0.1, 0.05]),
}


def test_designed_motion_tells_more_within_all_limits():
    system = arm()
    found = design_excitation(system, jax.random.key(1), **OPTIONS, history=True)
    motion, rank = found.value, found.base.rank
    assert found.result == ExcitationResult.SUCCESSFUL
    assert found.stats.steps == OPTIONS["max_steps"]
    # The search increases the information of each motion; at first it may exceed limits.
    assert found.history is not None
    assert found.history.shape == (60, 3)
    assert np.all(found.history[-1] > found.history[0])

    @jax.jit
    def evaluated(motion, times):
        def at(t):
            q, v, a = motion(t)
            return q, v, a, inverse_dynamics(system.model, q, v, a) - applied_forces(system, State(q, v))

        def row(t):
            q, v, a = motion(t)
            return regressor(system, State(q, v), a)

        return jax.vmap(at)(times), jax.vmap(row)(times[::37])

    # Samples, and a grid finer than that on which the search looked; 37 times 30 moments of one period.
    moments, Y = evaluated(motion, jnp.asarray(np.arange(1110) * 4.0 / 1110))
    q, v, a, force = map(np.asarray, moments)
    limits = jax.tree.map(np.asarray, system.model.limits)
    assert np.all((q > limits.lower) & (q < limits.upper))
    assert np.all(np.abs(v) < limits.velocity)
    assert np.all(np.abs(force) < limits.effort)
    close(jnp.asarray([v[0], a[0]]), 0.0, scale=100.0)
    # The margins are those of the motion; the largest amplitude stands at one of them.
    speed, effort = (
        1.0 - np.max(np.abs(x), axis=0) / limit for x, limit in ((v, limits.velocity), (force, limits.effort))
    )
    np.testing.assert_allclose(found.margins.speed, speed, atol=1e-3)
    np.testing.assert_allclose(found.margins.effort, effort, atol=1e-3)
    np.testing.assert_allclose(found.margins.position[0], np.min([q[:, 0] + 1.0, 2.0 - q[:, 0]]) / 1.5, atol=1e-3)
    assert np.isinf(found.margins.position[1])
    assert 0.002 < min(float(jnp.min(margin)) for margin in found.margins) < 0.004
    # The determinant is that of a fit from these samples.
    Y = found.base.columns(Y)
    covariance = weighted_least_squares(Y, jnp.ones(Y.shape[:2]).at[0, 0].set(2.0), OPTIONS["noise"])
    information = np.linalg.inv(covariance.covariance / covariance.residual_variance)
    np.testing.assert_allclose(found.log_determinant, np.linalg.slogdet(information)[1], rtol=1e-9)
    # Random motions are as large as the limits allow, too; the designed one makes errors smaller by a third or so, on average.
    assert found.random_log_determinants.shape == (3,)
    assert np.all(np.isfinite(found.random_log_determinants))
    assert float(found.log_determinant - jnp.max(found.random_log_determinants)) > 2 * np.log(1.3) * rank
    # Drives that cannot hold the arm: the same search, compiled already, has nothing to offer and says so.
    weak = eqx.tree_at(lambda s: s.model.limits.effort, system, jnp.full(2, 1e-7))
    with pytest.raises(
        ExcitationError, match=r"^ExcitationResult\.NOT_HELD: Even very small motions exceed the limits"
    ):
        design_excitation(weak, jax.random.key(0), base=found.base, **OPTIONS)
    failed = design_excitation(weak, jax.random.key(0), base=found.base, **OPTIONS, throw=False)
    assert failed.result == ExcitationResult.NOT_HELD
    assert failed.history is None
    options = {name: OPTIONS[name] for name in ("period", "harmonics", "samples")}
    with pytest.raises(ExcitationError, match="Even very small motions exceed the limits"):
        random_motions(weak, jax.random.key(0), **options)


def test_systems_that_cannot_follow_are_refused():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="harmonics is 1"):
        design_excitation(arm(), key, harmonics=1)
    with pytest.raises(ValueError, match="'gyroscope' has joints with quaternions or prescribed motion"):
        design_excitation(System(jaxdyn.library.gyroscope()), key)
    with pytest.raises(ValueError, match="'arm' has loops or joints without drives"):
        design_excitation(System(arm().model, drives=JointDrives((0,), [1.0])), key)
    endless = eqx.tree_at(lambda s: s.model.limits.velocity, arm(), jnp.full(2, jnp.inf))
    with pytest.raises(ValueError, match="joint 'lift' has no limits of position and speed"):
        design_excitation(endless, key)
    with pytest.raises(ValueError, match="max_steps is -1"):
        design_excitation(arm(), key, max_steps=-1)


def test_random_motions_are_by_default_those_from_which_the_design_starts():
    design, random = (inspect.signature(f).parameters for f in (design_excitation, random_motions))
    for name in ("period", "harmonics", "samples"):
        assert random[name].default == design[name].default
    assert random["count"].default == design["starts"].default
