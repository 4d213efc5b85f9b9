"""Output error: parameters come back from recordings, and derivatives are those of the loss."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, double_pendulum_plant, jittered, normal_of, pendulum_plant, simulated, with_noise

import jaxdyn
from jaxdyn.identify.charts import Positive
from jaxdyn.identify.least_squares import Unknowns
from jaxdyn.identify.levenberg_marquardt import FitResult, begin, fit, iterate
from jaxdyn.identify.losses import Cauchy, Huber, Squares
from jaxdyn.identify.measurement import Plant, Sensors, joint_positions_and_velocities
from jaxdyn.identify.output_error import OutputError, between, predict
from jaxdyn.identify.parameters import GaussianPrior, Parameter, Parameters, body_inertia
from jaxdyn.identify.recording import cut


def differences(problem, at: Unknowns, step: float):
    """Gradient of the loss by central differences: shared, and local of every window."""
    P, (W, L) = at.x.size, (problem.windows.count, 2 * at.local.v.shape[1])

    @eqx.filter_jit
    def losses(problem):
        def loss(move):
            return problem.normal(problem.moved(at, move[:P], move[P:].reshape(W, L))).loss

        moves = step * jnp.concatenate([jnp.eye(P + W * L), -jnp.eye(P + W * L)])
        return jax.lax.map(loss, moves)

    ahead, behind = np.split(np.asarray(losses(problem)), 2)
    gradient = (ahead - behind) / (2 * step)
    return gradient[:P], gradient[P:].reshape(W, L)


@pytest.fixture(scope="module")
def found():
    truth = double_pendulum_plant()
    recordings = [simulated(truth, 1.2, seed, name=f"run {seed}") for seed in (1, 2)]
    wrong = eqx.tree_at(
        lambda p: (p.system.model.mass, p.system.forces[0].viscous, p.sensors.offset, p.inputs),
        truth,
        (
            jnp.array([1.0, 0.8]),
            jnp.array([0.05, 0.05]),
            jnp.zeros(2),
            jax.tree.map(
                lambda a, b: a + b, truth.inputs, type(truth.inputs)(*(jnp.full(2, x) for x in (-0.1, -0.05, 0.004)))
            ),
        ),
    )
    free = [
        Parameter("system.model.mass", (1,), Positive()),
        Parameter("system.forces.0.viscous", chart=Positive()),
        Parameter("sensors.offset"),
        Parameter("inputs.gain", chart=Positive()),
        Parameter("inputs.offset", name="torque offset"),
        Parameter("inputs.delay"),
    ]
    windows = cut(recordings, duration=0.3, interval=STEP, first=0.1, lead=0.05)
    problem = OutputError(Parameters(wrong, free), windows, backend="xla")
    return truth, problem, fit(problem, progress=False, max_iterations=40)


class TestRecovery:
    """Noiseless readings at irregular times, several things unknown at once."""

    def test_all_comes_back(self, found):
        truth, problem, end = found
        assert int(end.result) == FitResult.CONVERGED
        values = problem.parameters.values(end.unknowns.x)
        expected = problem.parameters.values(problem.parameters.free_of(truth))
        np.testing.assert_allclose(values, expected, atol=1e-6)

    def test_delays_were_no_multiples_of_the_step(self, found):
        truth, _, _ = found
        assert np.all(np.abs(np.asarray(truth.inputs.delay) / STEP % 1.0 - 0.5) < 0.4)


@pytest.fixture(scope="module")
def case():
    builder = jaxdyn.MechanismBuilder("ball pendulum")
    builder.add_body(
        "bob", joint=jaxdyn.Spherical(), mass=1.0, com=(0.02, 0.0, -0.3), inertia=(0.02, 0.03, 0.015, 0.0, 0.002, 0.0)
    )
    system = jaxdyn.System(builder.build())
    plant = Plant(system, Sensors(jnp.full(7, 0.05), observe=joint_positions_and_velocities))
    truth = simulated(plant, 0.12, 3)
    recording = eqx.tree_at(
        lambda r: (r.q, r.v), truth, (truth.q[:, :4].copy(), truth.q[:, 4:].copy()), is_leaf=lambda x: x is None
    )
    recording.q[5] = np.nan
    windows = cut([recording], duration=0.04, interval=STEP, with_velocities=True)
    parameters = Parameters(
        plant, [body_inertia("bob", prior=None), Parameter("inputs.gain", prior=GaussianPrior(0.1, 0.9))]
    )
    problem = OutputError(
        parameters,
        windows,
        Huber(1.0),
        start_noise=jnp.linspace(0.05, 0.2, 6),
        continuity=jnp.linspace(0.02, 0.1, 6),
        backend="xla",
    )
    model = system.model
    moves = 0.3 * jnp.asarray(np.random.default_rng(0).normal(size=(windows.count, 6)))
    dx = 0.1 * jnp.asarray(np.random.default_rng(1).normal(size=13))
    at = eqx.filter_jit(lambda: problem.moved(problem.start, dx, moves))()
    return model, problem, at


class TestDerivatives:
    """Normal equations against differences of the loss, with everything that can be in it, ball joint and robust loss too."""

    def test_gradient(self, case):
        _, problem, at = case
        normal = normal_of(problem, at)
        shared, local = differences(problem, at, 1e-5)
        np.testing.assert_allclose(normal.shared_gradient, shared, rtol=1e-6, atol=1e-6 * np.max(np.abs(shared)))
        np.testing.assert_allclose(normal.local_gradient, local, rtol=1e-6, atol=1e-6 * np.max(np.abs(local)))
        assert np.all(np.asarray(problem.windows.followed) == [1.0, 1.0, 0.0])

    def test_gauss_newton_matrix(self, case):
        """Second derivatives of the loss where all residuals are zero but for the noise: a Gauss-Newton matrix is exact there."""
        model, problem, _ = case
        problem = eqx.tree_at(
            lambda p: (p.loss, p.windows.readings), problem, (Squares(), problem.windows.readings), is_leaf=callable
        )
        at = _consistent(problem)
        problem = at[0]
        normal = normal_of(problem, at[1])
        P, (W, L) = normal.shared.shape[0], normal.local_gradient.shape

        @eqx.filter_jit
        def gradients(problem, unknowns, moves):
            def gradient(move):
                n = problem.normal(problem.moved(unknowns, move[:P], move[P:].reshape(W, L)))
                return jnp.concatenate([n.shared_gradient, n.local_gradient.ravel()])

            return jax.lax.map(gradient, moves)

        step = 1e-5
        eye = step * jnp.eye(P + W * L)
        ahead, behind = (np.asarray(gradients(problem, at[1], sign * eye)) for sign in (1.0, -1.0))
        hessian = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(dense(normal), hessian, atol=2e-6 * np.max(np.abs(hessian)))


def dense(normal) -> np.ndarray:
    """The arrow written out."""
    P, (W, L) = normal.shared.shape[0], normal.local_gradient.shape
    H = np.zeros((P + W * L, P + W * L))
    H[:P, :P] = normal.shared
    for k in range(W):
        own = slice(P + k * L, P + (k + 1) * L)
        H[own, :P], H[:P, own], H[own, own] = normal.mixed[k], normal.mixed[k].T, normal.local[k]
        if normal.next is not None and k + 1 < W:
            after = slice(P + (k + 1) * L, P + (k + 2) * L)
            H[own, after], H[after, own] = normal.next[k], normal.next[k].T
    return H


def _consistent(problem):
    """A point at which all residuals vanish, prior, guesses and jumps included, and the problem with readings that fit it."""
    x = problem.parameters.start.at[-3:].set(0.9)  # the mean of the prior
    plant = problem.parameters.place(x)
    first = jax.tree.map(lambda z: z[0], problem.windows.starts)
    states, readings = [], []
    run = eqx.filter_jit(predict)
    for k in range(problem.windows.count):
        states.append(first)
        y, first = run(plant, first, jax.tree.map(lambda z, k=k: z[k], problem.windows))
        readings.append(y)
    starts = jax.tree.map(lambda *z: jnp.stack(z), *states)
    exact = eqx.tree_at(lambda p: (p.windows.starts, p.windows.readings), problem, (starts, jnp.stack(readings)))
    return exact, Unknowns(x, starts)
