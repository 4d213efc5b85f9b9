# %% [markdown]
# # Batched rollouts
#
# One simulation shows how one machine moves from one state. Thousands of them at once show how a machine moves: which motions are
# likely, where chaos begins, how a change of a mass or of a control acts. Here we
#
# 1. simulate one Panda arm, then 4096 of them in one call,
# 2. check the outcome against mechanics: energy gained = work put in,
# 3. differentiate the end of each motion with respect to all masses and all controls,
# 4. draw the map of a double pendulum's somersaults from 180 000 rollouts.
#
# The file is a notebook: VS Code and Jupytext open it as one. As a script it takes less than a minute of one processor core:
#
#     python experiments/tutorials/batched_rollouts.py --out runs/tutorials/batched_rollouts

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
from jaxdyn.view.style import BLUE, GRAY, ORANGE

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("runs/tutorials/batched_rollouts"), help="folder for the pictures")
OUT = parser.parse_known_args()[0].out
OUT.mkdir(parents=True, exist_ok=True)


def keep(figure: Figure, name: str) -> Figure:
    """Save a picture; a cell that ends with it shows it in a notebook."""
    jaxdyn.view.save(figure, OUT / name)
    print(f"picture: {OUT / name}")
    return figure


# Importing jaxdyn changes no setting of JAX. Precision follows the arrays that go in; we want derivatives to many digits.
jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## One arm
#
# A `Model` is a mechanism, a `System` adds forces and drives. The library has both; `summary()` lists their parts. The state is
# a pair (q, v) of coordinates and velocities. `rollout` simulates; it is a pure function, so `jax.jit` compiles it.

# %%
system = jaxdyn.System(jaxdyn.library.panda())
model = system.model
print(system.summary())

DT, STEPS, EVERY = 0.002, 1000, 25  # 2 s in steps of 2 ms, a record every 50 ms
middle = jaxdyn.configuration.random(model, jax.random.key(0), spread=0.0)  # the middle between the joint limits
falling = jax.jit(lambda state: jaxdyn.rollout(system, state, dt=DT, steps=STEPS, save_every=EVERY))(
    jaxdyn.State(middle, jnp.zeros(model.nv))
)
print(
    f"{falling.result} means: {jaxdyn.simulate.RolloutResult(int(falling.result)).message}; it ran as {falling.backend!r}"
)
drift = jax.vmap(lambda state: jaxdyn.total_energy(system, state))(falling.saved)
print(f"energy of the arm that falls without friction: {drift[0]:.2f} J at first, {drift[-1]:.2f} J after 2 s")

# %% [markdown]
# ## 4096 arms
#
# A function of one sample and `jax.vmap` make a batch. Here a sample is an integer: the index of the sample. It makes the key of
# the sample by `jax.random.fold_in`, and the key makes its first state and its torques. So sample 17 is the same in a batch of 20
# and in one of 4096, and nothing random has to be stored.
#
# The torques are `Knots`, one every 0.2 s, linear between them, on top of a PD controller that holds the middle posture.

# %%
SAMPLES = 4096
STIFFNESS = jnp.array([60.0, 60.0, 50.0, 50.0, 20.0, 15.0, 5.0])  # N m/rad
DAMPING = jnp.array([12.0, 12.0, 10.0, 8.0, 2.0, 1.5, 0.5])  # N m s/rad
TORQUE = jnp.array([25.0, 25.0, 20.0, 20.0, 5.0, 4.0, 2.0])  # N m, standard deviation of the knots


def drawn(sample):
    """First state and random torques of a sample."""
    posture_key, torque_key = jax.random.split(jax.random.fold_in(jax.random.key(7), sample))
    state = jaxdyn.State(jaxdyn.configuration.random(model, posture_key, spread=0.6), jnp.zeros(model.nv))
    return state, jaxdyn.Knots(TORQUE * jax.random.normal(torque_key, (11, model.nv)), 0.2)


def held(torques):
    """PD control about the middle posture, gravity compensated, and the torques on top of it."""

    def policy(t, state, key):
        off = jaxdyn.configuration.difference(model, state.q, middle)
        return STIFFNESS * off - DAMPING * state.v - jaxdyn.gravity_force(model, state.q) + torques(t)

    return policy


def simulated(integrator):
    """All rollouts with an integrator, and how long that took."""

    def sample(state, torques):
        # The cost of a rollout is any scalar summed over its steps; this one is the work of the torques.
        return jaxdyn.rollout(
            system,
            state,
            held(torques),
            dt=DT,
            steps=STEPS,
            save_every=EVERY,
            integrator=integrator,
            cost=jaxdyn.simulate.work_of_step(system),
        )

    begin = time.perf_counter()
    compiled = jax.jit(jax.vmap(sample)).lower(states, torques).compile()
    ready = time.perf_counter()
    motions = jax.block_until_ready(compiled(states, torques))
    took = time.perf_counter() - ready
    speed = SAMPLES * STEPS / took
    print(f"{type(integrator).__name__}: compiled in {ready - begin:.1f} s, ran {took:.1f} s, {speed:,.0f} steps/s")
    return motions


states, torques = jax.jit(jax.vmap(drawn))(jnp.arange(SAMPLES))
motions = simulated(jaxdyn.RungeKutta4())

# %% [markdown] On a CPU the lane compiler of jaxdyn took the rollout and made one kernel of it, with one arm in each vector
# element of the processor. If it could not, XLA would have run the same function, and the record would say why. Each arm ends
# with a code, `RolloutResult`.

# %%
record = next(r for r in reversed(jaxdyn.lanes.records()) if r.name == "rollout")
print(
    f"{record.name}: backend {record.backend}, {record.width} arms per vector, {record.operations:,} operations per arm"
)
print({code.name: int(jnp.sum(motions.result == code)) for code in jaxdyn.simulate.RolloutResult})

# %% [markdown]
# The bands below hold the middle half and the middle 90 % of all arms. In the strip one arm is in color.

# %%
keep(jaxdyn.view.joint_fans(model, motions.time[0], motions.saved.q), "joint_fans.png")

# %%
strip = jaxdyn.view.stick_figure_strip(model, motions.time[0], motions.saved.q, frames=5)
keep(strip, "panda_strip.png")

# %% [markdown]
# ## Does it obey mechanics?
#
# A simulation that looks right may still be wrong. The energy shows it: kinetic plus potential energy gained must be the work
# that the torques did. Each dot below is one arm. The default integrator, semi-implicit Euler, is cheap and of first order: at 2
# ms its errors show, in the picture and in the arm that fell above. `RungeKutta4` takes four evaluations per step, and the errors
# are gone.

# %%
energy = jaxdyn.batched(lambda state: jaxdyn.total_energy(system, state))
figure = Figure(figsize=(9, 4), layout="constrained")
for axis, integrator in zip(figure.subplots(1, 2), (jaxdyn.SemiImplicitEuler(), jaxdyn.RungeKutta4()), strict=True):
    run, name = simulated(integrator), type(integrator).__name__
    gained, work = np.asarray(energy(run.final) - energy(states)), np.asarray(run.cost)
    error = np.median(np.abs(gained - work))
    print(f"energy balance of {name}: median error {error:.2g} J, median work {np.median(np.abs(work)):.1f} J")
    axis.plot(work, gained, ".", color=BLUE, ms=2, alpha=0.4)
    axis.plot([work.min(), work.max()], [work.min(), work.max()], color=ORANGE, lw=1)
    axis.set_xlabel("work of the torques (J)")
    axis.set_ylabel("energy gained (J)")
    axis.set_title(f"{name}: median error {error:.2g} J", fontsize=9)
figure.suptitle(f"Energy balance of {SAMPLES} Panda arms over 2 s in steps of 2 ms")
keep(figure, "energy_balance.png")

# %% [markdown]
# ## Derivatives through the rollout
#
# Where is the flange at the end, and what would move it? Height of the flange is a function of the masses and of the torques at
# the knots; `jax.value_and_grad` differentiates it through all steps. Reverse mode costs a few rollouts, however many parameters
# there are: here 7 masses and 77 torques. `jaxdyn.batched` is `jit(vmap(...))` by the lane compiler, value and gradient in one
# kernel.

# %%
SHORT = 200  # steps, 0.4 s


def end_height(mass, torques, state):
    heavier = eqx.tree_at(lambda s: s.model.mass, system, mass)
    end = jaxdyn.rollout(heavier, state, held(torques), dt=DT, steps=SHORT, save_every=SHORT).final
    return jaxdyn.frame_placement(model, end.q, "flange").translation[2]


slopes = jaxdyn.batched(jax.value_and_grad(end_height, argnums=(0, 1)), in_axes=(None, 0, 0))
some = jax.tree.map(lambda x: x[:512], (torques, states))
begin = time.perf_counter()
height, (by_mass, by_torque) = jax.block_until_ready(slopes(model.mass, *some))
print(f"512 gradients by {model.nb} masses and {by_torque.values[0].size} torques: {time.perf_counter() - begin:.1f} s")

# %% [markdown]
# A derivative that was never checked is a guess. The central difference quotient along a random direction must agree.

# %%
rng = np.random.default_rng(0)
direction = jnp.asarray(rng.normal(size=model.nb))
one = jax.tree.map(lambda x: x[0], some)
heights = jax.jit(lambda mass: end_height(mass, *one))
quotient = (heights(model.mass + 1e-5 * direction) - heights(model.mass - 1e-5 * direction)) / 2e-5
slope = direction @ by_mass[0]
print(f"gradient check: {slope:.8f} by reverse mode, {quotient:.8f} m by difference quotient")
print(f"gradient relative error: {abs(float(slope / quotient) - 1):.1e}")

# %%
names = list(model.topology.body_names)
figure = Figure(figsize=(9, 4), layout="constrained")
left, right = figure.subplots(1, 2)
left.boxplot(1000 * np.asarray(by_mass), showfliers=False, medianprops={"color": ORANGE})
left.set_xticks(range(1, len(names) + 1), names, rotation=45, ha="right")
left.set_ylabel("d(height) / d(mass) (mm/kg)")
left.axhline(0, color=GRAY, lw=0.8)
left.set_title("masses, 512 arms", fontsize=9)
typical = 1000 * np.sqrt(np.mean(np.asarray(by_torque.values) ** 2, axis=0))[:3].T
image = right.imshow(typical, aspect="auto", cmap="viridis")
right.set_xticks(range(3), ["0.0", "0.2", "0.4"])
right.set_yticks(range(model.nv), model.topology.joint_names)
right.set_xlabel("time of the knot (s)")
right.set_title("torques, root mean square over the arms", fontsize=9)
figure.colorbar(image, ax=right, label="d(height) / d(torque) (mm/(N m))")
figure.suptitle("Sensitivity of the height of the flange after 0.4 s")
keep(figure, "gradients.png")

# %% [markdown]
# ## Arms that diverge
#
# A rollout that diverges does not stop the others: it is held at its last good state, `healthy` is False for it, and its derivative
# means nothing. Outside of `jit` a rollout warns; a jitted one leaves it to you to ask. Here the wrists have the damping of a real
# drive and the old explicit form of the integrator takes it. A sum over the healthy arms alone is 0 if none is left, which an
# optimizer takes for a perfect loss. Give the others a separate loss instead.

# %%
stiff = jaxdyn.System(model, (jaxdyn.JointFriction([100.0] * 7, [0.0] * 7, [1.0] * 7),))
WORST = 4.0  # m^2, more than the square of any height that the flange can have


def losses(damping):
    """Squared height of the flange after 0.1 s, two means of it, and how the arms ended."""

    def sample(state):
        end = jaxdyn.rollout(stiff, state, dt=DT, steps=50, save_every=50, integrator=jaxdyn.SemiImplicitEuler(damping))
        return end, jaxdyn.frame_placement(model, end.final.q, "flange").translation[2] ** 2

    ends, loss = jax.jit(jax.vmap(sample))(some[1])
    wrong = jnp.sum(jnp.where(ends.healthy, loss, 0.0)) / jnp.maximum(jnp.sum(ends.healthy), 1)
    right = jnp.mean(jnp.where(ends.healthy, loss, WORST))
    return float(wrong), float(right), ends.describe()


for damping in ("explicit", "implicit"):
    wrong, right, outcome = losses(damping)
    print(outcome)
    print(
        f"loss with {damping} damping: {wrong:.3f} m^2 by a sum over the healthy arms, {right:.3f} m^2 with all arms counted"
    )

# %% [markdown]
# ## A map of somersaults
#
# Two weights of 1 kg on rods of 1 m. We let them go at rest, from every pair of angles, and ask when the lower rod first turns
# over, that is, when its angle to the vertical passes 180 degrees. `stop` ends a sample at that moment: its code is STOPPED and
# `steps` counts its steps. The others COMPLETE. The angles of the mechanism are relative to the link before; those of the map are
# absolute, from hanging.
#
# Single precision is enough here and twice as fast; `as_dtype` converts a system. The map has a symmetry, left is right, so half
# of it is simulated.

# %%
chain = jaxdyn.as_dtype(jaxdyn.System(jaxdyn.library.point_mass_chain()), jnp.float32)
SIDE, LONGEST, STEP = 601, 12.0, 0.01  # pixels, s, s


def somersault(first, second):
    start = jaxdyn.State(jnp.stack([first, second - first]), jnp.zeros(2, jnp.float32))
    return jaxdyn.rollout(
        chain,
        start,
        dt=STEP,
        steps=round(LONGEST / STEP),
        save_every=round(LONGEST / STEP),
        integrator=jaxdyn.RungeKutta4(),
        stop=lambda t, state: jnp.abs(state.q[0] + state.q[1]) > jnp.pi,
    )


angle = np.linspace(-np.pi, np.pi, SIDE, dtype=np.float32)
half = angle[SIDE // 2 :]  # of the first angle, zero included
first, second = (grid.ravel() for grid in np.meshgrid(half, angle, indexing="ij"))
begin = time.perf_counter()
samples = jax.block_until_ready(jax.jit(jax.vmap(somersault))(first, second))
took = time.perf_counter() - begin
print(
    f"{first.size} rollouts of up to {round(LONGEST / STEP)} steps by {samples.backend!r}: {took:.1f} s with compilation"
)

# %% [markdown]
# The map has a law to obey. To turn over, the lower rod needs the energy to stand upright while the upper one hangs. With m g l =
# 1 for both weights, the energy at rest is -2 cos(first) - cos(second), and that posture has -2 + 1 = -1. So nobody turns over
# where 2 cos(first) + cos(second) > 1: inside of the white curve.

# %%
turned = np.asarray(samples.result) == jaxdyn.simulate.RolloutResult.STOPPED
allowed = 2 * np.cos(first) + np.cos(second) <= 1
print({code.name: int(np.sum(np.asarray(samples.result) == code)) for code in jaxdyn.simulate.RolloutResult})
print(f"somersaults without the energy for them: {int(np.sum(turned & ~allowed))} of {int(np.sum(~allowed))}")
print(f"somersaults with the energy for them: {int(np.sum(turned & allowed))} of {int(np.sum(allowed))}")

when = np.where(turned, STEP * np.asarray(samples.steps), np.nan).reshape(half.size, SIDE)
full = np.concatenate([when[:0:-1, ::-1], when])  # (first, second) and (-first, -second) turn over at the same time

figure = Figure(figsize=(7.4, 6.2), layout="constrained")
axis = figure.subplots()
axis.set_facecolor("black")
image = axis.imshow(
    full.T, origin="lower", extent=(-180, 180, -180, 180), cmap="inferno_r", norm="log", vmin=0.2, vmax=LONGEST
)
degrees = np.linspace(-180, 180, SIDE)
level = 2 * np.cos(np.radians(degrees))[None] + np.cos(np.radians(degrees))[:, None]
axis.contour(degrees, degrees, level, levels=[1.0], colors="white", linewidths=1.0)
axis.set_xlabel("angle of the upper rod from hanging (deg)")
axis.set_ylabel("angle of the lower rod from hanging (deg)")
axis.set_xticks(range(-180, 181, 60))
axis.set_yticks(range(-180, 181, 60))
bar = figure.colorbar(image, ax=axis, label="time until the lower rod turns over (s)", ticks=[0.2, 0.5, 1, 2, 4, 8, 12])
bar.ax.set_yticklabels(["0.2", "0.5", "1", "2", "4", "8", "12"])
bar.ax.minorticks_off()
figure.suptitle("Somersaults of a double pendulum; black: none within 12 s")
keep(figure, "somersaults.png")

# %% [markdown]
# ## Chaos
#
# At the ragged edges of the map neighbors part. 2000 pendulums start within a thousandth of a degree of each other: together for
# some seconds, then everywhere.

# %%
COUNT = 2000
precise = jaxdyn.System(jaxdyn.library.point_mass_chain())
center = np.radians(np.array([120.0, 100.0]))
spread = np.radians(np.linspace(-5e-4, 5e-4, COUNT))


def swung(off):
    start = jaxdyn.State(jnp.stack([center[0] + off, center[1] - center[0]]), jnp.zeros(2))
    return jaxdyn.rollout(precise, start, dt=0.005, steps=3000, save_every=10, integrator=jaxdyn.RungeKutta4())


swarm = jax.jit(jax.vmap(swung))(jnp.asarray(spread))
tip = np.asarray(swarm.saved.q)
upper, lower = tip[..., 0], tip[..., 0] + tip[..., 1]
x, z = np.sin(upper) + np.sin(lower), -np.cos(upper) - np.cos(lower)
apart = np.hypot(x - x.mean(axis=0), z - z.mean(axis=0)).mean(axis=0)
seconds = np.asarray(swarm.time[0])
print(f"tips within 1 cm of each other until t = {seconds[np.argmax(apart > 0.01)]:.2f} s")

figure = Figure(figsize=(11, 2.9), layout="constrained")
for k, (panel, instant) in enumerate(zip(figure.subplots(1, 5), (2.0, 8.0, 10.0, 11.5, 13.0), strict=True)):
    column = int(np.argmin(np.abs(seconds - instant)))
    for sample in range(0, COUNT, 20):
        ex, ez = np.sin(upper[sample, column]), -np.cos(upper[sample, column])
        panel.plot([0, ex, x[sample, column]], [0, ez, z[sample, column]], color=GRAY, lw=0.5, alpha=0.35)
    panel.scatter(x[:, column], z[:, column], c=np.arange(COUNT), cmap="plasma", s=4, lw=0, zorder=3)
    panel.set(xlim=(-2.1, 2.1), ylim=(-2.1, 2.1), aspect="equal", xlabel="x (m)")
    panel.set_title(f"t = {instant:g} s", fontsize=9)
    if k == 0:
        panel.set_ylabel("z (m)")
    else:
        panel.set_yticklabels([])
figure.suptitle(f"{COUNT} double pendulums that started within 0.001 degrees")
keep(figure, "chaos.png")
