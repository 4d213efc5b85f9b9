"""Output error: parameters come back from recordings, and derivatives are those of the loss."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, double_pendulum_plant, normal_of, pendulum_plant, simulated, with_noise

import jaxdyn
from jaxdyn.dynamics.sensors import JointEncoders
from jaxdyn.identify import output_error
from jaxdyn.identify.charts import Positive, Real
from jaxdyn.identify.fitting import FitError, fit
from jaxdyn.identify.least_squares import Unknowns, jacobian_by_fewer_sweeps
from jaxdyn.identify.levenberg_marquardt import LevenbergMarquardt
from jaxdyn.identify.losses import Cauchy, Huber, Squares
from jaxdyn.identify.measurement import MeasurementError, Plant, Sensors
from jaxdyn.identify.output_error import OutputError, predict
from jaxdyn.identify.parameters import GaussianPrior, Parameter, ParameterError, Parameters
from jaxdyn.identify.recording import Recording, cut
from jaxdyn.identify.solver import FitResult
from jaxdyn.simulate.integrators import SemiImplicitEuler


@eqx.filter_jit
def around(problem, at: Unknowns, moves):
    """Loss and gradient at points around, and the normal equations at the point; one compilation for all of it."""
    P, (W, L) = at.x.size, (problem.windows.count, 2 * at.local.v.shape[1])

    def one(move):
        normal = problem.normal(problem.moved(at, move[:P], move[P:].reshape(W, L)))
        gradient = jnp.concatenate([normal.shared_gradient, normal.local_gradient.ravel()])
        return normal, gradient

    normals, gradients = jax.lax.map(one, moves)
    return normals.loss, gradients, jax.tree.map(lambda z: z[0], normals)


def central(values, count: int, step: float):
    """Difference quotients of what was evaluated at 0, +step and -step of each number."""
    return (np.asarray(values[1 : count + 1]) - np.asarray(values[count + 1 :])) / (2.0 * step)


def moves_of(count: int, step: float):
    return step * jnp.concatenate([jnp.zeros((1, count)), jnp.eye(count), -jnp.eye(count)])


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
    problem = OutputError(Parameters(wrong, free), windows)
    return truth, problem, fit(problem, progress=False, max_steps=40)


class TestRecovery:
    """Noiseless measurements at irregular times, several things unknown at once."""

    def test_all_comes_back(self, found):
        truth, problem, end = found
        assert int(end.result) == FitResult.SUCCESSFUL
        values = problem.parameters.values(end.unknowns.x)
        expected = problem.parameters.values(problem.parameters.unconstrained(truth))
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
    plant = Plant(system, Sensors(jnp.full(7, 0.05), observe=(JointEncoders(), JointEncoders(velocities=True))))
    truth = simulated(plant, 0.12, 3)
    recording = eqx.tree_at(
        lambda r: (r.q, r.v), truth, (truth.q[:, :4].copy(), truth.q[:, 4:].copy()), is_leaf=lambda x: x is None
    )
    recording.q[5] = np.nan
    windows = cut([recording], duration=0.02, interval=STEP, with_velocities=True).select(slice(3))
    parameters = Parameters(
        plant, [Parameter("system.model.inertia"), Parameter("inputs.gain", prior=GaussianPrior(0.1, 0.9))]
    )
    problem = OutputError(
        parameters,
        windows,
        Huber(1.0),
        start_noise=jnp.linspace(0.05, 0.2, 6),
        continuity=jnp.linspace(0.02, 0.1, 6),
        integrator=SemiImplicitEuler(),
    )
    model = system.model
    moves = 0.3 * jnp.asarray(np.random.default_rng(0).normal(size=(windows.count, 6)))
    dx = 0.01 * jnp.asarray(np.random.default_rng(1).normal(size=9))
    at = eqx.filter_jit(lambda: problem.moved(problem.initial, dx, moves))()
    return model, problem, at


@pytest.mark.usefixtures("by_xla")
class TestDerivatives:
    """Normal equations against differences of the loss, with everything that can be in it, ball joint and robust loss too."""

    def test_gradient(self, case):
        _, problem, at = case
        count = at.x.size + 6 * problem.windows.count
        losses, gradients, _ = around(problem, at, moves_of(count, 1e-5))
        quotient = central(losses, count, 1e-5)
        np.testing.assert_allclose(gradients[0], quotient, rtol=1e-5, atol=1e-7 * np.max(np.abs(quotient)))
        assert np.min(np.abs(quotient)) > 0
        assert np.all(np.asarray(problem.windows.followed) == [1.0, 1.0, 0.0])

    def test_gauss_newton_matrix(self, case):
        """It is the second derivative of the loss where all residuals are zero."""
        problem, at = _consistent(case[1])
        count = at.x.size + 6 * problem.windows.count
        losses, gradients, normal = around(problem, at, moves_of(count, 2e-6))
        np.testing.assert_allclose(losses[0], 0.0, atol=1e-20)
        hessian = central(gradients, count, 2e-6)  # inertias are small, and so must the step be
        H = dense(normal)
        scale = 1.0 / np.sqrt(np.diag(H))
        np.testing.assert_allclose(scale[:, None] * H * scale, scale[:, None] * hessian * scale, atol=1e-6)


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
    """A point at which all residuals vanish, prior, guesses and jumps included, and the problem with measurements that fit it."""
    x = problem.parameters.initial.at[-3:].set(0.9)  # the mean of the prior
    plant = problem.parameters.place(x)
    first = jax.tree.map(lambda z: z[0], problem.windows.starts)
    states, measurements = [], []
    run = eqx.filter_jit(functools.partial(predict, integrator=problem.integrator))
    for k in range(problem.windows.count):
        states.append(first)
        y, first = run(plant, jax.tree.map(lambda z, k=k: z[k], problem.windows), first)
        measurements.append(y)
    starts = jax.tree.map(lambda *z: jnp.stack(z), *states)
    exact = eqx.tree_at(
        lambda p: (p.windows.starts, p.windows.measurements), problem, (starts, jnp.stack(measurements))
    )
    return exact, Unknowns(x, starts)


class TestPendulum:
    """Things that the smallest machine shows."""

    @pytest.fixture
    def recording(self):
        return simulated(pendulum_plant(), 2.0, 5, irregular=False)

    def problem(self, recording, duration: float, **options) -> OutputError:
        wrong = eqx.tree_at(lambda p: p.system.model.com, pendulum_plant(), jnp.array([[0.0, 0.0, -0.25]]))
        parameters = Parameters(
            wrong,
            # Unbounded values are those that the tests compare, and may be as wrong as a test of failures needs.
            [Parameter("system.model.com", name="com"), Parameter("system.forces.0.viscous", chart=Real())],
        )
        return OutputError(parameters, cut([recording], duration=duration, interval=STEP), **options)

    def test_outliers(self, recording):
        rough = with_noise(recording, 1e-3, 0)
        rough.q[::17] += 0.3
        plain, cauchy = (
            fit(self.problem(rough, 0.5, loss=loss), progress=False).unknowns.x for loss in (Squares(), Cauchy())
        )
        assert abs(float(cauchy[2]) + 0.4) < 2e-3
        assert abs(float(plain[2]) + 0.4) > 5 * abs(float(cauchy[2]) + 0.4)

    def test_batch_of_starts_and_resuming(self, recording):
        problem = self.problem(recording, 0.5)
        x = problem.initial.x
        starts = jnp.stack([x, x.at[2].set(-0.3), x.at[3].set(-1e6), x.at[2].set(-0.6)])
        batch = Unknowns(starts, jax.tree.map(lambda z: jnp.stack([z] * 4), problem.initial.local))
        solver = LevenbergMarquardt()
        through = fit(problem, solver, batch, progress=False, max_steps=30, throw=False)
        np.testing.assert_array_equal(
            through.result, [FitResult.SUCCESSFUL, FitResult.SUCCESSFUL, FitResult.NOT_FINITE, FitResult.SUCCESSFUL]
        )
        for k in (0, 1, 3):
            np.testing.assert_allclose(through.unknowns.x[k, 2:], [-0.4, 0.05], atol=1e-6)
        seen = []
        half = fit(problem, solver, batch, progress=False, max_steps=2, after_step=seen.append, throw=False)
        assert len(seen) == 2
        assert int(half.result[0]) == FitResult.OUT_OF_STEPS
        np.testing.assert_array_equal(
            half.value.sensors.noise, jnp.stack([problem.parameters.subject.sensors.noise] * 4)
        )
        with pytest.raises(FitError, match=r"1 of 4 failed, the first has index 2.*NOT_FINITE.*initial guess"):
            fit(problem, solver, progress=False, max_steps=30, resume=half.search)
        resumed = fit(problem, solver, progress=False, max_steps=30, resume=half.search, throw=False)
        for a, b in zip(jax.tree.leaves(resumed), jax.tree.leaves(through), strict=True):
            np.testing.assert_array_equal(a, b)

    @pytest.mark.usefixtures("by_xla")
    def test_errors_of_predictions_that_grow(self, recording):
        constant, growing = (self.problem(recording, 0.5, growth_time=time) for time in (None, 0.1))
        start, window = jax.tree.map(lambda leaf: leaf[1], (constant.initial.local, constant.windows))
        before, after = (
            jax.jit(lambda problem: problem.residuals(problem.initial.x, start, window)[0])(problem)
            for problem in (constant, growing)
        )
        assert float(jnp.max(jnp.abs(before))) > 1.0
        np.testing.assert_allclose(after, before / (1.0 + window.times / 0.1)[:, None], rtol=1e-12)
        with pytest.raises(ValueError, match="growth_time"):
            self.problem(recording, 0.5, growth_time=0.0)

    def test_backends_agree(self, recording):
        problem, normals = self.problem(recording, 0.5), []
        for name in ("lanes", "xla"):
            with jaxdyn.backend(name):
                normals.append(normal_of(problem, problem.initial))
        lanes, xla = normals
        for a, b in zip(jax.tree.leaves(lanes), jax.tree.leaves(xla), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * float(jnp.max(jnp.abs(b))))

    @pytest.mark.thorough
    def test_multiple_shooting_finds_what_single_shooting_misses(self, recording):
        short = fit(self.problem(recording, 0.25, continuity=jnp.array([1e-2, 1e-1])), progress=False, max_steps=40)
        np.testing.assert_allclose(short.unknowns.x[2:], [-0.4, 0.05], atol=1e-5)
        wrong = self.problem(recording, 2.0, free_starts=False)
        assert float(normal_of(wrong, wrong.initial).loss) > 1e3


def sine(joints: int = 2) -> Recording:
    """Something to look at that no machine has done."""
    time = STEP * np.arange(50)
    q = np.sin(3.0 * time)[:, None] * np.ones(joints)
    return Recording("sine", time, q, None, 0.1 * q)


@pytest.mark.parametrize(("delay", "free", "lead"), [(0.02, False, 0.0), (0.0, True, 0.0), (0.02, True, 0.01)])
def test_delays_need_inputs_from_before_the_windows(delay, free, lead):
    """They would be answered by the first input within the window, which nobody would notice."""
    plant = eqx.tree_at(lambda p: p.inputs.delay, pendulum_plant(), jnp.array([delay]))
    parameters = Parameters(plant, [Parameter("inputs.delay" if free else "system.model.mass")])
    windows = cut([sine(joints=1)], duration=0.3, interval=STEP, lead=lead)
    with pytest.raises(MeasurementError, match=r"give a larger lead to `cut`"):
        OutputError(parameters, windows)


@pytest.mark.thorough
@pytest.mark.usefixtures("by_xla")
def test_many_parameters_are_differentiated_from_the_adjoint(monkeypatch):
    """The same normal equations as in forward mode, joints between windows included."""
    plant = double_pendulum_plant()
    leaves = ("model.mass", "model.com", "model.inertia", "model.placement.translation", "forces.0.viscous")
    free = [Parameter(f"system.{leaf}", name=leaf) for leaf in leaves] + [
        Parameter("inputs.gain"),
        Parameter("inputs.offset"),
    ]
    windows = cut([sine()], duration=STEP, interval=STEP, first=0.05, lead=0.05).select(slice(3))
    options = {"continuity": jnp.full(4, 0.1), "integrator": SemiImplicitEuler()}
    problem = OutputError(Parameters(plant, free), windows, Cauchy(), **options)
    start = problem.moved(problem.initial, jnp.linspace(0.0, 0.1, problem.initial.x.size), jnp.full((3, 4), 0.01))
    modes = []

    def forward(rows, columns):
        modes.append(jacobian_by_fewer_sweeps(rows, columns))
        return jax.jacfwd

    adjoint = eqx.filter_jit(lambda at: problem.normal(at))(start)
    monkeypatch.setattr(output_error, "jacobian_by_fewer_sweeps", forward)
    expected = eqx.filter_jit(lambda at: problem.normal(at))(start)
    for ours, theirs in zip(*map(jax.tree.leaves, (adjoint, expected)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12 * np.max(np.abs(theirs)))
    assert modes == [jax.jacrev]
    assert jacobian_by_fewer_sweeps(100, 30) is jax.jacfwd


@pytest.mark.parametrize("path", ["sensors.noise", "sensors.quantization"])
def test_the_unit_of_errors_cannot_be_free(path):
    windows = cut([sine(joints=1)], duration=0.3, interval=STEP)
    with pytest.raises(ParameterError, match=rf"{path} scales the residuals.*fix it"):
        OutputError(Parameters(pendulum_plant(), [Parameter(path)]), windows)
