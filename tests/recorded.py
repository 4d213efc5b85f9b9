"""Machines whose recordings are simulated, for the tests of identification."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from mechanisms import double_pendulum, model_from_arrays

import jaxdyn
from jaxdyn.compute.arrays import on_device
from jaxdyn.dynamics.forces.friction import JointFriction
from jaxdyn.identify.charts import Real
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError, Motions
from jaxdyn.identify.measurement import Inputs, Plant, Sensors
from jaxdyn.identify.output_error import predict
from jaxdyn.identify.parameters import Parameter, Parameters
from jaxdyn.identify.recording import Recording, Windows
from jaxdyn.simulate.controls import Knots

STEP = 0.01


def pendulum() -> jaxdyn.Model:
    """A weight on a hinge."""
    return model_from_arrays(
        parents=[0],
        kinds=["revolute"],
        axes=[(0.0, 1.0, 0.0)],
        joint_offsets=[(0, 0, 0)],
        com_offsets=[(0, 0, -0.4)],
        masses=[1.2],
        inertias=[(0.03, 0.03, 0.006, 0, 0, 0)],
        name="pendulum",
    )


def pendulum_plant(noise: float = 1e-3) -> Plant:
    system = jaxdyn.System(pendulum(), (JointFriction([0.05], [0.0], [0.1]),))
    return Plant(system, Sensors(jnp.array([noise])))


def double_pendulum_plant(noise: float = 1e-3) -> Plant:
    """Gains, offsets and delays of the inputs that are no round numbers."""
    system = jaxdyn.System(double_pendulum(), (JointFriction([0.08, 0.03], [0.0, 0.0], [0.1, 0.1]),))
    sensors = Sensors(jnp.full(2, noise), offset=jnp.array([0.03, -0.02]))
    inputs = Inputs(jnp.array([1.15, 0.85]), jnp.array([0.2, -0.1]), jnp.array([0.013, 0.027]))
    return Plant(system, sensors, inputs)


def lively(times, count: int, seed: int):
    """Inputs that shake everything: sums of sines, N m."""
    rng = np.random.default_rng(seed)
    frequency, phase = rng.uniform(0.3, 2.5, (2, 4, count)) * np.array([1.0, 3.0])[:, None, None]
    return np.sum(0.8 * np.sin(2 * np.pi * frequency * times[:, None, None] + phase), axis=1)


def simulated(plant: Plant, duration: float, seed: int, *, irregular: bool = True, name: str = "test") -> Recording:
    """A noiseless recording: what the sensors of a plant say, inputs with knots at all steps of the simulation."""
    rng = np.random.default_rng(seed)
    model = plant.system.model
    steps = round(duration / STEP)
    grid = STEP * np.arange(steps + 1)
    u = lively(grid, plant.system.nu, seed)
    times = grid
    if irregular:  # every grid point, where the inputs have their knots, and another stamp in most of the gaps
        between = grid[:-1] + STEP * rng.uniform(0.1, 0.9, steps)
        times = np.sort(np.concatenate([grid, between[rng.uniform(size=steps) < 0.7]]))
    state = jaxdyn.State(jnp.asarray(rng.normal(0.0, 0.4, model.nq)), jnp.asarray(rng.normal(0.0, 0.8, model.nv)))
    shape = (len(times), plant.sensors.scale.size)
    window = Windows(
        Knots(on_device(u), STEP, 0.0),
        on_device(times),
        on_device(np.zeros(shape)),
        on_device(np.ones(shape)),
        state,
        jnp.zeros(()),
        jnp.zeros(()),
        STEP,
        steps,
    )
    measurements = np.asarray(eqx.filter_jit(predict)(plant, window, state)[0])
    recorded = np.stack([np.interp(times, grid, column) for column in u.T], axis=1)
    return Recording(name, times, measurements, None, recorded, inputs="linear")


def with_noise(recording: Recording, std: float, seed: int) -> Recording:
    """The recording with Gaussian errors of its measurements."""
    noise = np.random.default_rng(seed).normal(0.0, std, recording.q.shape)
    return eqx.tree_at(lambda r: r.q, recording, recording.q + noise)


def normal_of(problem, unknowns):
    """Normal equations, compiled."""
    return eqx.filter_jit(lambda u: problem.normal(u))(unknowns)


def jittered(state: jaxdyn.State, size: float, seed: int) -> jaxdyn.State:
    """States near others."""
    keys = iter(jax.random.split(jax.random.key(seed), 2))
    return jax.tree.map(lambda z: z + size * jax.random.normal(next(keys), z.shape), state)


# The force that the pendulum needs is linear in these: m g l sin(q) + I a + viscous v = u + offset.
# The laws of linear estimates hold for unbounded values.
OF_TORQUES = (
    Parameter("system.forces.0.viscous", chart=Real()),
    Parameter("inputs.offset"),
    Parameter("system.model.armature", chart=Real()),
)


def torques(
    errors, free=OF_TORQUES, *, noise: float = 0.05, plant: Plant | None = None, **options
) -> InverseDynamicsError:
    """A motion of a pendulum and its torques with errors; `errors` are values, or a function of (q, v, a)."""
    t = 0.05 * np.arange(400)
    q = np.sin(t) + 0.4 * np.sin(3.1 * t)
    v, a = np.cos(t) + 1.24 * np.cos(3.1 * t), -np.sin(t) - 3.844 * np.sin(3.1 * t)
    # By hand: weight, inertia about the hinge, friction.
    exact = 1.2 * 9.81 * 0.4 * np.sin(q) + (0.03 + 1.2 * 0.4**2) * a + 0.05 * v
    u = exact + (errors(q, v, a) if callable(errors) else errors)
    around = None
    if any(parameter.path == "inputs.delay" for parameter in free):
        near = jnp.asarray(u)[np.clip(np.arange(400)[:, None] + np.array([-1, 0, 1]), 0, 399)]
        around = jax.vmap(lambda values: Knots(values[:, None], 0.05, -0.05))(near)
    motions = Motions(*(jnp.asarray(x)[:, None] for x in (q, v, a, u)), around=around)
    return InverseDynamicsError(
        Parameters(plant or pendulum_plant(), free), motions, jnp.array([noise]), block=20, **options
    )
