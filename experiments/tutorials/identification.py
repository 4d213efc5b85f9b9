# %% [markdown]
# # Identification
#
# An arm of two joints differs from its drawings: the bodies are heavier, their mass centers lie elsewhere, and its friction
# is unknown. Encoders and motor torques were recorded while it moved. Here we
#
# 1. ask which parameters motion can determine at all: base parameters,
# 2. choose the most informative motions, and record them,
# 3. solve for base parameters by linear least squares,
# 4. fit bodies that can exist to the measurements of the encoders, by simulation (output error),
# 5. look at the intervals, and at motions that the fit has not seen.
#
# The recordings are synthetic, so that the truth is available for comparison. Your own would come in by `identify.Recording` or,
# without a line of Python, by `jaxdyn identify`.
#
# The file is a notebook: VS Code and Jupytext open it as one. As a script it takes about two minutes of one processor core:
#
#     python experiments/tutorials/identification.py --out runs/tutorials/identification

# %%
import argparse
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot  # noqa: F401 (with it, a notebook shows the figures that cells end with)
import numpy as np
from matplotlib.figure import Figure

import jaxdyn
from jaxdyn import identify
from jaxdyn.identify import validation
from jaxdyn.view.identification import predictions
from jaxdyn.view.style import BLUE, GRAY, ORANGE

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("runs/tutorials/identification"), help="folder for the pictures")
OUT = parser.parse_known_args()[0].out
OUT.mkdir(parents=True, exist_ok=True)


def keep(figure: Figure, name: str) -> Figure:
    """Save a picture; a cell that ends with it shows it in a notebook."""
    jaxdyn.view.save(figure, OUT / name)
    print(f"picture: {OUT / name}")
    return figure


jax.config.update("jax_enable_x64", True)  # least squares want it

# %% [markdown]
# ## The drawing and the truth
#
# The nominal arm is that of the drawings, with a guess of its friction. The true one, which only the simulated recordings know,
# has other masses, mass centers, inertias and friction. Both joints turn about the horizontal y axis.

# %%
JOINTS = ("shoulder", "elbow")


def arm(masses, coms, moments, viscous, coulomb):
    """Two links in a vertical plane: masses (kg), mass centers on x and z (m), moments of inertia (kg m^2), friction."""
    builder = jaxdyn.MechanismBuilder("arm")
    for k, (name, parent, offset) in enumerate((("upper arm", "ground", 0.0), ("forearm", "upper arm", 0.4))):
        builder.add_body(
            name,
            parent=parent,
            position=(offset, 0, 0),
            joint=jaxdyn.Revolute((0, 1, 0)),
            joint_name=JOINTS[k],
            mass=masses[k],
            com=(coms[k][0], 0, coms[k][1]),
            inertia=(0.3 * moments[k], moments[k], 0.9 * moments[k]),
            position_limits=((-2.0, 2.0), (-2.4, 2.4))[k],
            velocity_limit=(4.0, 6.0)[k],
            effort_limit=(60.0, 20.0)[k],
        )
    friction = jaxdyn.JointFriction(viscous=viscous, coulomb=coulomb, velocity_scale=[0.2, 0.2])
    return jaxdyn.System(builder.build(), (friction,))


nominal = arm((4.0, 2.0), ((0.2, 0.0), (0.15, 0.0)), (0.06, 0.02), viscous=[0.5, 0.5], coulomb=[0.5, 0.5])
truth = arm((5.0, 1.5), ((0.17, 0.03), (0.13, -0.02)), (0.08, 0.012), viscous=[1.0, 0.4], coulomb=[1.2, 0.3])
print(nominal.summary())

# %% [markdown]
# ## Which parameters motion determines
#
# Forces are linear in masses, first moments h = m c, inertias J about the joint, and in friction. But not each of them shows: the
# arm moves in a plane, so most of its inertias do nothing, and the mass of the forearm acts like an inertia of the upper arm. Only
# combinations show, the base parameters. They follow from the structure of the machine alone.

# %%
base = identify.system_base_parameters(nominal, jax.random.key(0))
print(base.report())

# %% [markdown]
# ## The most informative motions
#
# Not every motion determines all of them well. Periodic motions as Fourier series have exact velocities and accelerations; draw
# 64 of them, each as large as the limits of the machine allow, and ask which regressor Y carries the most information: the
# largest determinant of Y'Y, rows divided by the noise. (`identify.design_excitation` continues from there by gradients, for a
# minute or two.)

# %%
PERIOD, INTERVAL = 8.0, 0.01  # s
TORQUE_NOISE = jnp.array([0.1, 0.04])  # N m
grid = INTERVAL * np.arange(round(PERIOD / INTERVAL) + 1)
batch, _ = identify.random_motions(nominal, jax.random.key(1), period=PERIOD, harmonics=5, samples=80, count=64)


@jax.jit
def rows(motion):
    """Base columns of the regressor along a motion."""
    q, v, a = jax.vmap(motion)(jnp.asarray(grid))
    return base.columns(jax.vmap(identify.regressor, (None, 0, 0))(nominal, jaxdyn.State(q, v), a))


@jax.jit
@jax.vmap
def information(motion):
    Y = rows(motion) / TORQUE_NOISE[:, None]
    return jnp.einsum("tip,tiq->pq", Y, Y)


told = np.asarray(information(batch))
determinants = np.linalg.slogdet(told)[1]
ranking = np.argsort(-determinants)
best, second, another = (jax.tree.map(lambda leaf, k=k: leaf[k], batch) for k in (*ranking[:2], ranking[-1]))
print(
    f"log determinant: {determinants.max():.1f} the best, {np.median(determinants):.1f} the median, {determinants.min():.1f}"
)
spread = np.sqrt(np.diagonal(np.linalg.inv(told), axis1=1, axis2=2))  # of the base parameters, after such a recording

figure = Figure(figsize=(10, 5.2), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
for k, name in enumerate(JOINTS):
    left.plot(grid, np.degrees(jax.vmap(best)(jnp.asarray(grid))[0][:, k]), lw=1.6, label=name)
left.set_xlabel("time (s)")
left.set_ylabel("angle (deg)")
left.set_title("the best motion", fontsize=10)
left.legend(frameon=False, fontsize=8)
left.grid(alpha=0.25)
places = np.arange(base.rank)
right.plot(spread.T, places, "o", color=GRAY, ms=3, alpha=0.4)
right.plot([], [], "o", color=GRAY, ms=3, label="64 random motions")
right.plot(spread[ranking[0]], places, "o", color=ORANGE, label="the best of them")
right.set_xscale("log")
right.set_yticks(places, [f"{name} ({unit})" for name, unit in zip(base.names, base.units, strict=True)], fontsize=7)
right.invert_yaxis()
right.set_xlabel("standard deviation (unit of the parameter)")
right.legend(frameon=False, fontsize=8)
right.grid(alpha=0.25)
figure.suptitle("Information of motions about the base parameters of the arm")
keep(figure, "excitation.png")

# %% [markdown]
# ## Recordings
#
# The arm follows the best motion and the second one; the last one is kept to judge by. The measurements: angles by
# encoders with noise of 1 mrad, torques with the noise above. Velocities and accelerations were not.

# %%
ENCODER_NOISE = 1e-3  # rad
rng = np.random.default_rng(3)


@jax.jit
def moved(motion):
    """Angles, velocities, accelerations of the true arm along a motion, and the torques that it takes."""
    q, v, a = jax.vmap(motion)(jnp.asarray(grid))
    state = jaxdyn.State(q, v)
    needed = jax.vmap(lambda q, v, a: jaxdyn.inverse_dynamics(truth.model, q, v, a))(q, v, a)
    return q, v, a, needed - jax.vmap(lambda state: jaxdyn.applied_forces(truth, state))(state)


def recorded(name, motion):
    q, _, _, tau = (np.asarray(x) for x in moved(motion))
    angles = q + ENCODER_NOISE * rng.normal(size=q.shape)
    measured = tau + np.asarray(TORQUE_NOISE) * rng.normal(size=tau.shape)
    return identify.Recording(name, grid, angles, None, measured, inputs="linear")


learned = [recorded("best", best), recorded("second", second)]
unseen = recorded("unseen", another)

# %% [markdown]
# ## Base parameters at once
#
# Where motion is known, base parameters come from one linear least-squares problem. Here we take the motion that was commanded,
# with its exact velocities and accelerations, as one does with Fourier series averaged over periods.
#
# Do the intervals keep their word? The truth is available, so repeat the experiment 400 times with other noise, under `jax.vmap`,
# and count.

# %%
motions = (best, second)
Y = jnp.concatenate([rows(motion) for motion in motions])
measured = jnp.concatenate([jnp.asarray(recording.u) for recording in learned])
linear = identify.weighted_least_squares(Y, measured, TORQUE_NOISE)
print(linear.report(base.names, base.units))

true_base, nominal_base = (np.asarray(base.values(identify.linear_parameters(s))) for s in (truth, nominal))
exact = jnp.concatenate([moved(motion)[3] for motion in motions])
noise = TORQUE_NOISE * jax.random.normal(jax.random.key(4), (400, *exact.shape))
repeated = jax.jit(jax.vmap(lambda e: identify.weighted_least_squares(Y, exact + e, TORQUE_NOISE)))(noise)
lower, upper = (np.asarray(bound) for bound in repeated.intervals())
print(
    f"linear fit: 95 % intervals contain the true value in {100 * np.mean((lower <= true_base) & (true_base <= upper)):.1f} %"
)

# %% [markdown]
# ## Bodies that can exist
#
# Linear least squares need accelerations, and nothing keeps their masses positive. Output error needs neither: simulate windows of
# the recordings with the measured torques, compare with the encoders, and improve the parameters and the initial states of all
# windows by Levenberg-Marquardt with exact Jacobians. Each body moves as one log-Cholesky factor of its pseudo-inertia, so that
# every step of the fit is a body that can exist; friction stays positive.
#
# The data determine fewer combinations than the 20 parameters of the bodies. A weak prior, the divergence from the drawing,
# decides the rest.

# %%
plant = identify.Plant(nominal, identify.Sensors(noise=jnp.full(2, ENCODER_NOISE)))
free = [identify.body_inertia(name, prior=identify.DivergencePrior(1.0)) for name in nominal.model.topology.body_names]
free += [
    identify.Parameter("system.forces.0.viscous", chart=identify.Positive()),
    identify.Parameter("system.forces.0.coulomb", chart=identify.Positive()),
]
parameters = identify.Parameters(plant, free)
windows = identify.cut(learned, duration=0.5, interval=INTERVAL)
problem = identify.OutputError(parameters, windows)
begin = time.perf_counter()
found = identify.fit(problem, identify.LevenbergMarquardt(tolerance=1e-5), max_steps=2000, progress=False)
print(
    f"{windows.count} windows: {found.result.name} after {found.stats.iterations} steps, {time.perf_counter() - begin:.1f} s"
)
identified = found.value
print(f"bodies that cannot exist: {validation.unphysical_bodies(identified.system.model) or 'none'}")

# %% [markdown]
# ## How well is it known?
#
# `uncertainty` gives covariances of all values. The prior holds the single numbers of the bodies; the data hold the base
# parameters, which are functions of these parameters. Their covariance follows by the Jacobian of that function, made by JAX.

# %%
known = identify.uncertainty(problem, found.unknowns)


def base_of(values):
    """Base parameters of the values of a fit: two bodies of ten parameters, then friction."""
    numbers, friction = values[:20].reshape(2, 10), values[20:].reshape(2, 2)
    leaves = (numbers[:, 0], numbers[:, 1:4], numbers[:, 4:], *friction)
    system = eqx.tree_at(
        lambda s: (s.model.mass, s.model.com, s.model.inertia, s.forces[0].viscous, s.forces[0].coulomb),
        nominal,
        leaves,
    )
    return base.values(identify.linear_parameters(system))


J = np.asarray(jax.jacfwd(base_of)(known.values))
estimate = np.asarray(base_of(known.values))
half = 1.96 * np.sqrt(np.diag(J @ np.asarray(known.covariance) @ J.T))
held = np.abs(estimate - true_base) <= half
print(f"{'base parameter':34} {'unit':9} {'drawing':>9} {'truth':>9} {'fit':>9}")
for k, (name, unit) in enumerate(zip(base.names, base.units, strict=True)):
    row = f"{nominal_base[k]:9.4f} {true_base[k]:9.4f} {estimate[k]:9.4f} +- {half[k]:.4f}"
    print(f"{name:34} {unit:9} {row}{'' if held[k] else '  missed'}")
judged = half > 0  # not the armature, which was not free
print(f"output error: 95 % intervals contain the true values of {held[judged].sum()} of {judged.sum()} base parameters")

# %%
figure = Figure(figsize=(9.5, 5.6), layout="constrained")
axis = figure.subplots()
scale = np.maximum(np.abs(true_base), 0.02)
for name, center, width, color, shift in (
    ("linear least squares", np.asarray(linear.estimate), 1.96 * np.asarray(linear.standard_deviation), GRAY, -0.17),
    ("output error, physical bodies", estimate, half, BLUE, 0.17),
):
    off = 100 * (center - true_base) / scale
    axis.errorbar(off, places + shift, xerr=100 * width / scale, fmt="o", ms=4, capsize=3, color=color, label=name)
axis.plot(100 * (nominal_base - true_base) / scale, places, "x", color=ORANGE, label="drawing")
axis.axvline(0, color="black", lw=0.8)
axis.set_xscale("symlog", linthresh=10, linscale=2)
axis.set_xticks(
    [-1000, -100, -10, -5, 0, 5, 10, 100, 1000], ["-1000", "-100", "-10", "-5", "0", "5", "10", "100", "1000"]
)
axis.set_yticks(places, [f"{name} ({unit})" for name, unit in zip(base.names, base.units, strict=True)], fontsize=7.5)
axis.invert_yaxis()
axis.set_xlabel("error (% of the true value, or of 0.02 where that is smaller)")
axis.grid(alpha=0.25)
figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
figure.suptitle("Estimates with 95 % intervals against the truth")
keep(figure, "intervals.png")

# %% [markdown]
# ## Motions that it has not seen
#
# A fit is judged by its predictions. Each second of the last recording is simulated by the recorded torques, without feedback,
# from the state that was commanded at its start. (If it is not known, `validation.fitted_starts` estimates it.)

# %%
held_out = identify.cut([unseen], duration=1.0, interval=INTERVAL, both_ends=True)
starts = jaxdyn.State(*jax.vmap(another)(jnp.arange(float(held_out.count)))[:2])
errors, read = {}, {}
for name, machine in (("drawing", plant), ("identified", identified)):
    read[name] = validation.predicted_measurements(machine, held_out, starts)
    errors[name] = validation.window_errors(held_out, read[name])
    print(
        f"{name}: predictions of unseen windows are off by {1000 * np.sqrt(np.mean(errors[name].rms ** 2)):.2f} mrad rms"
    )

# %%
shown = 3
figure = predictions(
    JOINTS,
    held_out.times[shown],
    np.degrees(held_out.measurements[shown]),
    np.degrees(read["identified"][shown]),
    units=["deg"] * len(JOINTS),
    title="An unseen second: encoders and the identified arm, simulated by the recorded torques",
)
for k, axis in enumerate(figure.axes[:2]):
    axis.plot(
        held_out.times[shown], np.degrees(read["drawing"][shown, :, k]), color=ORANGE, lw=1.0, ls="--", label="drawing"
    )
figure.axes[0].legend(frameon=False, fontsize=8)
keep(figure, "validation.png")
