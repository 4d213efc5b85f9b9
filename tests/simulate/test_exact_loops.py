"""Long simulations of closed mechanisms: loops stay closed, energy stays bounded, gradients are right."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import (
    ConstantRate,
    ImplicitMidpoint,
    LoopJoint,
    MechanismBuilder,
    Model,
    Projected,
    Revolute,
    Rheonomic,
    RungeKutta4,
    SemiImplicitEuler,
    State,
    System,
    Variational,
)
from jaxdyn.simulate import RolloutResult
from jaxdyn.spatial.transform import RigidTransform

# Shapes are checked by the tests of the functions themselves; here the checks would take most of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")

CRANK, COUPLER, ROCKER, BASE = 0.3, 0.8, 0.6, 1.0


def skeleton(crank) -> Model:
    """Bodies of a planar four-bar in the plane x, z, on joints without places."""
    builder = MechanismBuilder("four-bar")
    for name, parent, joint, mass in (
        ("crank", "ground", crank, 0.5),
        ("coupler", "crank", Revolute((0, -1, 0)), 1.0),
        ("rocker", "ground", Revolute((0, -1, 0)), 0.7),
    ):
        builder.add_body(name, parent=parent, joint=joint, mass=mass, com=(0.2, 0, 0), inertia=(0.001, 0.03, 0.03))
    return builder.build()


FREE = skeleton(Revolute((0, -1, 0)))


def four_bar(lengths, model: Model = FREE) -> System:
    """With lengths of crank, coupler, rocker and base, which may be traced, and a revolute joint that closes it."""
    turn = jnp.array([np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0])  # z to -y
    zero = jnp.zeros(())
    at = [jnp.stack([x, zero, zero]) for x in (zero, lengths[0], lengths[3])]
    model = eqx.tree_at(lambda m: m.placement.translation, model, jnp.stack(at))
    ends = [RigidTransform(turn, jnp.stack([lengths[i], zero, zero])) for i in (1, 2)]
    return System(model, constraints=(LoopJoint("pin", "revolute", 1, ends[0], 2, ends[1]),))


LENGTHS = jnp.array([CRANK, COUPLER, ROCKER, BASE])
START = jnp.array([0.7, -0.1, 1.3])


@pytest.fixture(scope="module")
def swinging() -> tuple[System, State]:
    """A conservative four-bar with its crank turning over and over."""
    system = four_bar(LENGTHS)

    def start(guess):
        q = jaxdyn.assemble(system, system.at_rest(guess)).q
        return State(q, jaxdyn.project_velocity(system, State(q, jnp.array([8.0, 0.0, 0.0]))))

    return system, jax.tree.map(lambda x: x[0], jaxdyn.batched(start, backend="lanes")(START[None]))


@pytest.fixture(scope="module")
def reference(swinging) -> State:
    system, state = swinging
    return jax.jit(
        lambda state: (
            jaxdyn.rollout(system, state, dt=DURATION / 4000, steps=4000, save_every=4000, integrator=Projected()).final
        )
    )(state)


STEPS = 4000
DURATION = 0.4


@pytest.mark.parametrize(
    ("integrator", "dtype", "residual", "rate", "drift"),
    [
        # The energy of Runge-Kutta 4 drifts, but slowly; the error of the variational integrator is larger and does not grow.
        pytest.param(Projected(), jnp.float64, 1e-10, 1e-8, 1e-4, id="projected"),
        pytest.param(Variational(), jnp.float64, 1e-10, 1e-8, 1e-3, id="variational"),
        pytest.param(Projected(), jnp.float32, 1e-4, 1e-4, 2e-2, id="projected in single precision"),
        # Stabilization alone: errors of the order of the method.
        pytest.param(RungeKutta4(), jnp.float64, 1e-7, 1e-4, 1e-4, id="stabilized"),
    ],
)
def test_loops_stay_closed_and_energy_bounded(swinging, integrator, dtype, residual, rate, drift, exhaustive):
    system, state = jaxdyn.as_dtype(swinging, dtype)

    def save(t, state, u):
        return jaxdyn.constraints.constraint_errors(system, state), jaxdyn.total_energy(system, state)

    steps = 25 * STEPS if exhaustive else STEPS
    found = jax.jit(
        lambda state: jaxdyn.rollout(
            system, state, dt=1e-3, steps=steps, save_every=100, save=save, integrator=integrator
        )
    )(state)
    errors, energy = found.saved
    assert int(found.result) == RolloutResult.SUCCESSFUL.value
    assert np.abs(found.final.q[0]) > 5e-3 * steps  # it turned over and over
    assert np.abs(errors.residual).max() < residual
    assert np.abs(errors.rate).max() < rate
    error = np.abs(energy - energy[0]) / np.abs(energy[0])
    assert error.max() < drift
    if isinstance(integrator, Variational):  # bounded: the last third, of a turn and more, is no worse than the first
        third = len(error) // 3
        assert error[-third:].max() < 1.5 * error[:third].max()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "integrator",
    [SemiImplicitEuler(), RungeKutta4(), ImplicitMidpoint(), Variational(), Projected()],
    ids=lambda i: f"{type(i).__name__} {getattr(i, 'integrator', '')}",
)
def test_error_falls_with_the_declared_order(swinging, reference, integrator):
    system, state = swinging

    # All lengths of the step in one program, which makes too many of the longer ones: each has a record at the end.
    @jax.jit
    @jax.vmap
    def run(dt):
        return jaxdyn.rollout(system, state, dt=dt, steps=160, save_every=40, integrator=integrator).saved.q

    steps = np.array([40, 80, 160])
    ends = np.asarray(run(DURATION / steps))[range(3), steps // 40]
    errors = np.abs(ends - np.asarray(reference.q)).max(axis=1)
    slopes = np.log2(errors[:-1] / errors[1:])
    np.testing.assert_allclose(slopes, integrator.order, atol=0.35)


class Unsolved(SemiImplicitEuler):
    """Good steps, of which it says that they failed."""

    def step(self, system, state, control, t, dt):
        return super().step(system, state, control, t, dt)[0], jnp.asarray(False)


def test_a_projected_step_fails_where_loops_stay_open_and_where_the_integrator_failed(swinging):
    """Each alone is enough: a loop too far open for one iteration, and an integrator that could not solve its equations."""
    system, state = swinging
    opened = State(state.q.at[0].add(0.2), state.v)
    euler = SemiImplicitEuler()

    def solved(state):
        steps = (Projected(euler, iterations=1), Projected(Unsolved(), iterations=1), euler)
        return jnp.stack([i.step(system, state, lambda t: None, jnp.zeros(()), jnp.asarray(1e-4))[1] for i in steps])

    both = jax.tree.map(lambda *x: jnp.stack(x), state, opened)
    found = np.asarray(jaxdyn.batched(solved, backend="lanes")(both))
    assert found.tolist() == [[True, False, True], [False, False, True]]


@pytest.mark.thorough
def test_gradients_of_500_steps_and_of_multipliers_are_difference_quotients(exhaustive):
    """In lengths, masses, a torque and the initial state; the loop is assembled anew for each, with the crank at a given angle."""
    # Four evaluations a step take a third more time to compile; their derivatives are tested in test_gradients, without loops.
    integrator = Projected() if exhaustive else Projected(SemiImplicitEuler())

    def final(numbers, weights):
        lengths, masses, torque, angle, speed = numbers
        system = eqx.tree_at(lambda s: s.model.mass, four_bar(lengths), masses)
        q = jaxdyn.assemble(system, system.at_rest(START.at[0].set(angle)), held=(0,)).q
        # Not `minimal_motion`, whose factorization has no scalar form, so that XLA would compile all, in more time.
        v = jaxdyn.project_velocity(system, State(q, jnp.array([1.0, 0.0, 0.0])))
        v = speed / v[0] * v  # there is only one direction
        controls = torque * jnp.tile(jnp.array([[1.0, 0.0, 0.0]]), (500, 1))
        end = jaxdyn.rollout(
            system, State(q, v), controls, dt=1e-3, steps=500, save_every=500, integrator=integrator
        ).final
        pin = jaxdyn.constraint_forces(system, end, controls[-1])["pin"].multipliers
        # The moments in the redundant equations are zero but for rounding.
        return weights @ jnp.stack([jnp.sum(end.q**2) + jnp.sum(end.v**2), jnp.sum(pin[:3] ** 2)])

    start = (LENGTHS, jnp.array([0.5, 1.0, 0.7]), jnp.asarray(0.3), jnp.asarray(0.7), jnp.asarray(4.0))
    rng = np.random.default_rng(0)
    change = jax.tree.map(lambda x: rng.normal(size=x.shape), start)
    step = 1e-5
    # Here, ahead and behind, of either quantity: one compiled batch.
    near = jax.tree.map(
        lambda x, d: jnp.asarray(np.asarray(x) + step * np.multiply.outer([0, 1, -1] * 2, d)), start, change
    )
    weights = jnp.repeat(jnp.eye(2), 3, axis=0)
    values, gradients = jaxdyn.batched(jax.value_and_grad(final), backend="lanes")(near, weights)
    for k in (0, 3):
        _, ahead, behind = np.asarray(values[k : k + 3])
        along = sum(np.vdot(g[k], d) for g, d in zip(gradients, change, strict=True))
        np.testing.assert_allclose(along, (ahead - behind) / (2 * step), rtol=1e-5)
        assert np.abs(along) > 0.1


@pytest.mark.thorough
def test_a_motor_of_prescribed_motion_drives_a_loop():
    """A crank that turns at a constant rate by prescription, and one that a controller of torque keeps at the same rate."""
    speed = 3.0
    driven = four_bar(LENGTHS, skeleton(Rheonomic(Revolute((0, -1, 0)), ConstantRate(speed, 0.7))))
    free = four_bar(LENGTHS)

    def compared(t):
        q = jaxdyn.assemble(driven, driven.at_rest(START[1:]), t).q
        v = jaxdyn.project_velocity(driven, State(q, jnp.zeros(2)), t)
        a = jaxdyn.acceleration(driven, State(q, v), t=t)
        torque = jaxdyn.driving_forces(driven, State(q, v), t=t)["crank_joint"]
        whole = State(jnp.concatenate([0.7 + speed * t[None], q]), jnp.concatenate([speed + 0.0 * t[None], v]))
        errors = jaxdyn.constraints.constraint_errors(free, whole)
        expected = jaxdyn.acceleration(free, whole, jnp.concatenate([torque, jnp.zeros(2)]))
        pins = [
            jaxdyn.loop_reactions(s, x, u, t)["pin"].force
            for s, x, u in ((driven, State(q, v), None), (free, whole, jnp.concatenate([torque, jnp.zeros(2)])))
        ]
        return errors, jnp.concatenate([jnp.zeros(1), a]), expected, pins, State(q, v)

    # A batch of one, so that the lane compiler compiles it: XLA takes five times as long.
    found = jaxdyn.batched(compared, backend="lanes")(jnp.array([0.2]))
    errors, a, expected, pins, start = jax.tree.map(lambda x: x[0], found)
    np.testing.assert_allclose(errors.residual, 0.0, atol=1e-12)
    np.testing.assert_allclose(errors.rate, 0.0, atol=1e-12)
    np.testing.assert_allclose(expected, a, atol=1e-9)
    np.testing.assert_allclose(pins[0], pins[1], atol=1e-9)
    # And it stays so while it runs, whichever way errors are kept small.
    for integrator, bound in ((Projected(), 1e-11), (RungeKutta4(), 1e-6), (Variational(), 1e-11)):
        end = jax.jit(
            lambda state, i=integrator: jaxdyn.rollout(
                driven, state, dt=1e-3, steps=1000, save_every=1000, integrator=i, t0=0.2
            )
        )(start).final
        errors = jaxdyn.constraints.constraint_errors(driven, end, 1.2)
        assert np.abs(errors.residual).max() < bound
        assert np.abs(errors.rate).max() < 1e3 * bound


@pytest.mark.thorough
def test_a_batch_of_4096_random_four_bars_flags_those_that_cannot_close():
    """Every sample has other lengths; in some, the longest exceeds the others together, or the crank angle is out of reach."""
    rng = np.random.default_rng(2)
    lengths = jnp.asarray(0.5 * np.exp(0.6 * rng.normal(size=(4096, 4))))

    def simulated(lengths):
        system = four_bar(lengths)
        start = jaxdyn.assemble(system, system.at_rest(START), max_steps=30)
        state = State(start.q, jaxdyn.project_velocity(system, State(start.q, jnp.array([1.0, 0.0, 0.0]))))
        run = jaxdyn.rollout(system, state, dt=1e-3, steps=50, save_every=50, integrator=Projected())
        error = jnp.max(jnp.abs(jaxdyn.constraints.constraint_errors(system, run.final).residual))
        return start.q, start.closed, run.result, error

    q, closed, result, error = map(np.asarray, jaxdyn.batched(simulated, backend="lanes")(lengths))
    longest = lengths.max(axis=1)
    possible = np.asarray(2 * longest < lengths.sum(axis=1))
    assert 0.05 < 1 - possible.mean() < 0.5
    assert not np.any(closed & ~possible)  # none is said to be closed that cannot be
    # Assembly may end where it goes no further though another start would do: rarely.
    assert np.mean(closed[possible]) > 0.97
    assert np.all(result[closed] == RolloutResult.SUCCESSFUL.value)
    assert error[closed].max() < 1e-9
    assert np.all(np.isfinite(q))
