"""Rollouts: controls, records, costs, stops, result codes, batches, memory of reverse mode."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from mechanisms import double_pendulum, swinging

import jaxdyn
from jaxdyn import Knots, State, System, rollout
from jaxdyn.simulate import RolloutResult

SYSTEM = System(double_pendulum())


def by_hand(system, state, us, dt):
    """Semi-implicit Euler in a Python loop."""
    states = [state]
    for u in us:
        v = state.v + dt * jaxdyn.acceleration(system, state, u)
        state = State(state.q + dt * v, v)
        states.append(state)
    return states


def test_rollout_is_the_loop_over_its_steps():
    us = 0.1 * jax.random.normal(jax.random.key(1), (6, 2))
    trajectory = rollout(SYSTEM, swinging(), us, dt=0.01, steps=6)
    states = by_hand(SYSTEM, swinging(), us, 0.01)
    # The same operations compiled differently: rounding only.
    np.testing.assert_allclose(trajectory.saved.q, np.stack([s.q for s in states]), rtol=1e-13)
    np.testing.assert_allclose(trajectory.saved.v, np.stack([s.v for s in states]), rtol=1e-13)
    np.testing.assert_allclose(trajectory.time, 0.01 * np.arange(7), rtol=1e-15)
    np.testing.assert_array_equal(trajectory.final.q, trajectory.saved.q[-1])
    assert (trajectory.result, trajectory.steps) == (RolloutResult.SUCCESSFUL, 6)


@pytest.mark.parametrize("save_every", [1, 2, 3, 6, 12])
def test_records_are_every_nth_state_whatever_the_checkpoints(save_every):
    full = rollout(SYSTEM, swinging(), dt=0.01, steps=12).saved
    thin = rollout(SYSTEM, swinging(), dt=0.01, steps=12, save_every=save_every)
    np.testing.assert_allclose(thin.saved.q, full.q[::save_every], rtol=1e-13)
    np.testing.assert_allclose(thin.time, 0.01 * np.arange(0, 13, save_every), rtol=1e-15)


@pytest.mark.parametrize("steps", [1, 2, 7, 13, 31])
def test_any_number_of_steps_survives_the_checkpointed_loop(steps):
    last = rollout(SYSTEM, swinging(), dt=0.01, steps=steps, save_every=steps)
    np.testing.assert_allclose(last.final.q, by_hand(SYSTEM, swinging(), [None] * steps, 0.01)[-1].q, rtol=1e-12)
    assert last.steps == steps


def test_user_record_sees_time_state_and_control_in_force():
    us = jnp.arange(8.0).reshape(4, 2)
    saved = rollout(SYSTEM, swinging(), us, dt=0.5, steps=4, save_every=2, t0=3.0, save=lambda t, s, u: (t, u)).saved
    np.testing.assert_allclose(saved[0], [3.0, 4.0, 5.0])
    np.testing.assert_allclose(saved[1], [us[0], us[2], us[3]])  # the last control still holds at the end


def test_substeps_are_shorter_steps_under_one_held_control():
    us = jnp.array([[0.3, -0.2], [0.1, 0.4]])
    coarse = rollout(SYSTEM, swinging(), us, dt=0.02, steps=2, substeps=4)
    fine = rollout(SYSTEM, swinging(), jnp.repeat(us, 4, axis=0), dt=0.005, steps=8, save_every=4)
    np.testing.assert_allclose(coarse.saved.q, fine.saved.q, rtol=1e-13)


def test_substeps_take_controls_at_their_own_times():
    knots = Knots(jnp.array([[0.0, 1.0], [0.8, -2.0], [-0.5, 1.5]]), 0.04, 1.0, "linear")
    coarse = rollout(SYSTEM, swinging(), knots, dt=0.04, steps=2, substeps=4, t0=1.0)
    fine = rollout(SYSTEM, swinging(), knots, dt=0.01, steps=8, save_every=4, t0=1.0)
    np.testing.assert_allclose(coarse.saved.q, fine.saved.q, rtol=1e-12)


def test_policy_gets_time_state_and_its_own_key_per_step():
    key = jax.random.key(5)

    def policy(t, state, key):
        return -0.2 * state.v + t + jax.random.normal(key, (2,))

    us = rollout(SYSTEM, swinging(), policy, dt=0.01, steps=5, key=key, save=lambda t, s, u: u).saved
    states = rollout(SYSTEM, swinging(), us[:5], dt=0.01, steps=5).saved
    noise = np.stack([jax.random.normal(jax.random.fold_in(key, k), (2,)) for k in range(5)])
    np.testing.assert_allclose(us[:5], -0.2 * states.v[:5] + 0.01 * np.arange(5)[:, None] + noise, rtol=1e-12)


class TestKnots:
    values = jnp.array([[1.0], [2.0], [4.0], [3.0]])

    @pytest.mark.parametrize("kind", ["zero_order", "linear", "cubic"])
    def test_knots_are_met_and_held_outside(self, kind):
        knots = Knots(self.values, 0.1, 2.0, kind)
        at = jax.vmap(knots)
        np.testing.assert_allclose(at(2.0 + 0.1 * jnp.arange(4.0)), self.values, atol=1e-12)
        np.testing.assert_allclose(at(jnp.array([-5.0, 99.0])), [[1.0], [3.0]], atol=1e-12)

    @pytest.mark.parametrize("kind", ["zero_order", "linear", "cubic"])
    def test_each_control_may_have_its_own_start(self, kind):
        values = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)))
        start = jnp.array([0.0, 0.07, -0.12])
        together = jax.jit(lambda t: Knots(values, 0.1, start, kind)(t))
        for t in (-1.0, 0.0, 0.234, 0.39, 2.0):
            apart = [Knots(values[:, k : k + 1], 0.1, start[k], kind)(jnp.asarray(t))[0] for k in range(3)]
            np.testing.assert_allclose(together(jnp.asarray(t)), jnp.stack(apart), rtol=1e-14)

    def test_between_knots(self):
        middle = jnp.asarray(2.05)
        assert Knots(self.values, 0.1, 2.0, "zero_order")(middle) == 1.0
        np.testing.assert_allclose(Knots(self.values, 0.1, 2.0, "linear")(middle), [1.5])
        # Catmull-Rom through 1, 1, 2, 4 at one half: (-1 + 9 + 18 - 4)/16.
        np.testing.assert_allclose(Knots(self.values, 0.1, 2.0, "cubic")(middle), [22 / 16])

    def test_cubic_has_a_continuous_rate_and_reproduces_a_parabola(self):
        t = jnp.arange(7.0)
        knots = Knots((t**2)[:, None], 1.0, 0.0, "cubic")
        rate = jax.vmap(jax.jacfwd(knots))
        np.testing.assert_allclose(rate(jnp.array([3.0 - 1e-9, 3.0 + 1e-9]))[:, 0], 6.0, atol=1e-7)
        inner = jnp.linspace(1.0, 5.0, 23)
        np.testing.assert_allclose(jax.vmap(knots)(inner)[:, 0], inner**2, rtol=1e-12)

    def test_knots_drive_a_rollout_as_the_array_they_stand_for(self):
        values = jax.random.normal(jax.random.key(0), (4, 2))
        held = rollout(SYSTEM, swinging(), Knots(values, 0.03, 0.0, "zero_order"), dt=0.01, steps=12)
        array = rollout(SYSTEM, swinging(), jnp.repeat(values, 3, axis=0), dt=0.01, steps=12)
        np.testing.assert_allclose(held.saved.q, array.saved.q, rtol=1e-12)

    def test_unknown_interpolation_is_refused(self, as_a_user):
        with pytest.raises(ValueError, match=r"no interpolation of Knots 'spline' .*; use one of zero_order, linear"):
            Knots(self.values, 0.1, 0.0, "spline")


@pytest.mark.parametrize("start", [0.0, 100.0])
def test_zero_order_knots_are_never_late_in_single_precision(start):
    knots = Knots(jnp.arange(60000, dtype=jnp.float32)[:, None], jnp.float32(1e-3), jnp.float32(start), "zero_order")
    index = jnp.arange(60000)
    times = jnp.float32(start) + index.astype(jnp.float32) * jnp.float32(1e-3)
    np.testing.assert_array_equal(jax.vmap(knots)(times)[:, 0], index)


def test_zero_order_knots_are_held_over_all_stages_of_a_step():
    values = jax.random.normal(jax.random.key(0), (4, 2))
    method = jaxdyn.RungeKutta4()
    held = rollout(SYSTEM, swinging(), Knots(values, 0.05, 0.0, "zero_order"), dt=0.05, steps=4, integrator=method)
    array = rollout(SYSTEM, swinging(), values, dt=0.05, steps=4, integrator=method)
    np.testing.assert_allclose(held.final.q, array.final.q, rtol=1e-12)


@pytest.mark.parametrize("backend", first(1, ["lanes", "xla"]))
def test_held_knots_between_steps_keep_their_impulse(backend):
    """A body of 1 kg without friction: its velocity is the integral of the force, for any start of the knots and any steps."""
    builder = jaxdyn.MechanismBuilder("bodies")
    for name in ("one", "other"):
        builder.add_body(name, joint=jaxdyn.Prismatic((1, 0, 0)), mass=1.0, inertia=(1, 1, 1))
    bodies = System(builder.build())
    values = np.random.default_rng(0).normal(size=(8, 2))

    def speeds(start, dt, t0=0.0):
        knots = Knots(jnp.asarray(values), 0.1, start, "zero_order")
        steps = round(0.6 / abs(dt))
        return rollout(bodies, bodies.at_rest(jnp.zeros(2)), knots, dt=dt, steps=steps, t0=t0, backend=backend).saved.v

    def impulse(start, t):
        edges = np.concatenate([[-np.inf], start + 0.1 * np.arange(1, 8), [np.inf]])
        return values.T @ np.diff(np.clip(edges, 0.0, t))

    run = jax.jit(speeds, static_argnums=(1, 2))
    slope = jax.jit(lambda start, dt: jax.jvp(lambda s: speeds(s, dt), (start,), (jnp.ones(2),))[1], static_argnums=1)
    for start in ([0.0, 0.0], [0.033, -0.271], [0.1, 0.25]):
        for dt in (0.1, 0.03):
            times = dt * np.arange(round(0.6 / dt) + 1)
            expected = [[impulse(s, t)[k] for k, s in enumerate(start)] for t in times]
            np.testing.assert_allclose(run(jnp.array(start), dt), expected, atol=1e-12)
            # Each jump adds minus its height times the delay; the one on a boundary of the rollout counts from one side.
            rate = [[(impulse(s, t)[k] - impulse(s - 1e-4, t)[k]) / 1e-4 for k, s in enumerate(start)] for t in times]
            np.testing.assert_allclose(slope(jnp.array(start), dt), rate, atol=1e-9)
    backward = run(jnp.array([0.033, -0.271]), -0.1, 0.6)
    np.testing.assert_allclose(backward[-1], [-impulse(0.033, 0.6)[0], -impulse(-0.271, 0.6)[1]], atol=1e-12)


def test_truth_values_are_counted():
    counted = rollout(SYSTEM, swinging(), dt=0.01, steps=5, cost=lambda t, s, u, after: s.q[0] < 10)
    assert counted.cost == 5


def test_cost_is_summed_over_steps_and_sees_both_ends():
    us = jnp.ones((6, 2))
    trajectory = rollout(
        SYSTEM,
        swinging(),
        us,
        dt=0.01,
        steps=6,
        save_every=3,
        cost=lambda t, s, u, after: {"effort": jnp.sum(u**2), "path": jnp.sum(jnp.abs(after.q - s.q)), "t": t},
    )
    states = by_hand(SYSTEM, swinging(), us, 0.01)
    path = sum(np.abs(b.q - a.q).sum() for a, b in itertools.pairwise(states))
    np.testing.assert_allclose(trajectory.cost["effort"], 12.0)
    np.testing.assert_allclose(trajectory.cost["path"], path, rtol=1e-12)
    np.testing.assert_allclose(trajectory.cost["t"], 0.01 * 15)


def test_stop_condition_holds_the_sample_and_its_cost():
    def run(state):
        return rollout(
            SYSTEM, state, dt=0.01, steps=40, stop=lambda t, s: t > 0.095, cost=lambda t, s, u, after: jnp.ones(())
        )

    stopped = run(swinging())
    assert (stopped.result, stopped.steps, stopped.cost) == (RolloutResult.STOPPED, 10, 10.0)
    np.testing.assert_array_equal(stopped.saved.q[10:], np.broadcast_to(stopped.saved.q[10], (31, 2)))


def test_one_diverging_sample_is_flagged_while_the_others_go_on():
    v = jnp.stack([swinging().v, jnp.array([1e200, -1e200]), jnp.array([jnp.nan, 0.0]), 0.5 * swinging().v])
    run = jax.jit(jax.vmap(lambda v: rollout(SYSTEM, State(swinging().q, v), dt=0.01, steps=20)))
    batch = run(v)
    np.testing.assert_array_equal(
        batch.result,
        [RolloutResult.SUCCESSFUL, RolloutResult.DIVERGED, RolloutResult.DIVERGED, RolloutResult.SUCCESSFUL],
    )
    np.testing.assert_array_equal(batch.steps, [20, 0, 0, 20])
    for sample in (0, 3):
        alone = rollout(SYSTEM, State(swinging().q, v[sample]), dt=0.01, steps=20)
        np.testing.assert_allclose(batch.final.q[sample], alone.final.q, rtol=1e-12)


@pytest.mark.parametrize(
    ("fast", "dt", "result"),
    [(2e6, 1e-3, RolloutResult.DIVERGED), (2e5, 10.0, RolloutResult.DIVERGED), (2e5, 1e-3, RolloutResult.SUCCESSFUL)],
    ids=["velocity beyond the limit", "step beyond the limit", "within"],
)
def test_one_coordinate_beyond_the_limit_is_enough_to_diverge(fast, dt, result):
    builder = jaxdyn.MechanismBuilder("two slides", gravity=(0, 0, 0))
    for name in ("left", "right"):
        builder.add_body(name, joint=jaxdyn.Prismatic((1, 0, 0)), mass=1.0)
    run = jax.jit(jax.vmap(lambda v: rollout(System(builder.build()), State(jnp.zeros(2), v), dt=dt, steps=3)))
    ends = run(jnp.array([[fast, 0.1], [0.1, fast], [0.1, 0.1]]))
    np.testing.assert_array_equal(ends.result, [result, result, RolloutResult.SUCCESSFUL])


def test_a_diverged_sample_does_not_spoil_the_gradient_of_the_others():
    # No friction of a real joint puts energy in; a leaf takes any value.
    stable = System(double_pendulum(), (jaxdyn.JointFriction([0.1, 0.1], [0.0, 0.0], [1.0, 1.0]),))
    unstable = eqx.tree_at(lambda s: s.forces[0].viscous, stable, jnp.array([-0.1, -0.1]))
    far = 1e5  # a speed at which the motion leaves the limit within 20 steps

    def loss(mass, scale):
        system = eqx.tree_at(lambda s: s.model.mass, unstable, mass)
        end = rollout(system, State(swinging().q, scale * swinging().v), dt=0.01, steps=20)
        return jnp.where(end.result == RolloutResult.SUCCESSFUL, jnp.sum(end.final.q), 0.0), end.result

    def total(mass):
        losses, results = jax.vmap(loss, (None, 0))(mass, jnp.array([0.1, far]))
        return jnp.sum(losses), results

    gradient, results = jax.jit(jax.grad(total, has_aux=True))(unstable.model.mass)
    alone = jax.grad(lambda mass: loss(mass, jnp.asarray(0.1))[0])(unstable.model.mass)
    np.testing.assert_array_equal(results, [RolloutResult.SUCCESSFUL, RolloutResult.DIVERGED])
    np.testing.assert_allclose(gradient, alone, rtol=1e-9)


def test_batches_over_states_controls_and_any_leaves_of_the_model():
    masses = jnp.array([[1.0, 0.7], [1.2, 0.4]])
    qs = jnp.stack([swinging().q, 0.5 * swinging().q])
    us = jax.random.normal(jax.random.key(3), (2, 5, 2))

    def run(mass, q, u):
        system = eqx.tree_at(lambda s: s.model.mass, SYSTEM, mass)
        return rollout(system, State(q, swinging().v), u, dt=0.01, steps=5).final.q

    batch = jax.jit(jax.vmap(jax.vmap(jax.vmap(run, (None, None, 0)), (None, 0, None)), (0, None, None)))(
        masses, qs, us
    )
    assert batch.shape == (2, 2, 2, 2)
    np.testing.assert_allclose(batch[1, 0, 1], run(masses[1], qs[0], us[1]), rtol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_precision_follows_the_inputs(dtype):
    system, state = jaxdyn.as_dtype((SYSTEM, swinging()), dtype)
    for integrator in (jaxdyn.SemiImplicitEuler(), jaxdyn.RungeKutta4(), jaxdyn.ImplicitMidpoint()):
        trajectory = rollout(
            system, state, Knots(jnp.ones((2, 2), dtype), 0.1), dt=0.01, steps=2, integrator=integrator
        )
        assert {x.dtype for x in jax.tree.leaves((trajectory.time, trajectory.saved, trajectory.final))} == {
            jnp.dtype(dtype)
        }


@pytest.mark.parametrize(("steps", "save_every"), [(1000, 1000), (1000, 10), (900, 100), (997, 997), (60, 60)])
def test_reverse_mode_keeps_no_more_states_than_the_stated_bound(steps, save_every):
    """What is kept between the forward and the backward pass, counted; independent of how fast memory is freed within."""

    def kept(steps, save_every):
        def end(state):
            return jnp.sum(rollout(SYSTEM, state, dt=0.001, steps=steps, save_every=save_every).final.q)

        _, pullback = jax.vjp(end, swinging())
        return sum(x.size for x in jax.tree.leaves(pullback))

    carry = 2 + 2 + 2  # q, v, result and steps
    bound = steps / save_every + max(64, 3 * np.sqrt(save_every)) + 2
    assert kept(steps, save_every) <= bound * carry + kept(1, 1)


@pytest.mark.thorough
@pytest.mark.parametrize(("steps", "save_every"), [(4096, 4096), (1024, 32)])
def test_reverse_mode_takes_no_more_memory_than_the_stated_bound(steps, save_every):
    """As XLA plans it, per sample of a batch, beyond the memory of a single step."""

    def planned(steps, save_every):
        def end(q):
            start = State(q, swinging().v)
            return jnp.sum(rollout(SYSTEM, start, dt=0.001, steps=steps, save_every=save_every, backend="xla").saved.q)

        batch = jnp.tile(swinging().q, (64, 1))
        gradient = jax.jit(jax.vmap(jax.grad(end))).lower(batch).compile()
        return gradient.memory_analysis().temp_size_in_bytes / 64

    records = steps / save_every
    bound = records + max(128, 3 * np.sqrt(save_every)) + 2
    # The records that `end` takes have cotangents of their own, q and v.
    assert planned(steps, save_every) <= 8 * (bound * 6 + (records + 1) * 4) + planned(1, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"state": State(jnp.zeros(3), jnp.zeros(2))},
            r"q has shape \(3,\), but mechanism 'double pendulum' has nq = 2",
        ),
        ({"state": State(jnp.zeros((5, 2)), jnp.zeros((5, 2)))}, r"for a batch, wrap the function in jax.vmap"),
        ({"controls": jnp.zeros((4, 2))}, r"controls have shape \(4, 2\); give shape \(6, 2\): one row per step"),
        ({"controls": jnp.zeros((6, 3))}, r"controls have shape \(6, 3\); give shape \(6, 2\)"),
        ({"controls": jnp.zeros((9, 6, 2))}, r"for a batch, wrap rollout in jax.vmap"),
        ({"controls": Knots(jnp.zeros((4, 3)), 0.1)}, r"controls have shape \(4, 3\); give shape \(knots, 2\)"),
        (
            {"controls": lambda t, s, k: jnp.zeros(3)},
            r"policy '<lambda>' returns shape \(3,\); return an array of shape \(2,\)",
        ),
        ({"save_every": 4}, r"save_every = 4 does not divide steps = 6; choose a divisor"),
        ({"substeps": 0}, r"substeps is 0; give 1 or more"),
        (
            {"controls": jnp.zeros((6, 2), jnp.float32)},
            r"mixed precision \(system: float64; state: float64; controls: float32\)",
        ),
        ({"state": jaxdyn.as_dtype(swinging(), jnp.float32)}, r"convert with jaxdyn.as_dtype"),
    ],
)
def test_wrong_input_is_refused_with_the_remedy(as_a_user, change, message):
    arguments = {"state": swinging(), "dt": 0.01, "steps": 6} | change
    with pytest.raises(ValueError, match=message):
        rollout(SYSTEM, **arguments)
