# %% [markdown]
# # Trajectory optimization
#
# An acrobot hangs from a bar: two links, and a motor in the elbow only. Which torques swing it up to a handstand, and which do it
# with the least effort? Here we
#
# 1. state the problem once and solve it from 256 random first guesses,
# 2. look at the local optima that they lead to,
# 3. solve it from a straight line of states that is not a motion, by multiple shooting,
# 4. play the best plan with disturbances, without and with feedback,
# 5. ask how the plan changes with the length of a link, without solving again.
#
# The file is a notebook: VS Code and Jupytext open it as one. As a script it takes about a minute and a half of one processor core:
#
#     python experiments/tutorials/trajectory_optimization.py --out runs/tutorials/trajectory_optimization

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
from jaxdyn import control
from jaxdyn.view.style import BLUE, GRAY, ORANGE

parser = argparse.ArgumentParser()
folder = Path("runs/tutorials/trajectory_optimization")
parser.add_argument("--out", type=Path, default=folder, help="folder for the pictures")
OUT = parser.parse_known_args()[0].out
OUT.mkdir(parents=True, exist_ok=True)


def keep(figure: Figure, name: str) -> Figure:
    """Save a picture; a cell that ends with it shows it in a notebook."""
    jaxdyn.view.save(figure, OUT / name)
    print(f"picture: {OUT / name}")
    return figure


jax.config.update("jax_enable_x64", True)  # optima are found to many digits

# %% [markdown]
# ## The problem
#
# Minimize the integral of u^2 over 2 s, u the torque of the elbow, held over each of 50 steps. The acrobot hangs at first and
# stands upright at rest in the end; the torque stays within 20 N m.
#
# A cost or a constraint is any function of (dynamics, t, x, u). `dynamics.difference` compares states in tangent coordinates, so
# the same lines work for quaternions. `MultibodyDynamics` makes time steps of a mechanism, here of the acrobot of M. Kelly's
# OptimTraj, which the library has.
#
# The length of the lower link stays a variable, for later: its weight sits at its end.

# %%
system = jaxdyn.library.system("acrobot_point_masses")
print(system.summary())
hanging = jaxdyn.State(jnp.zeros(2), jnp.zeros(2))
upright = jaxdyn.State(jnp.array([jnp.pi, 0.0]), jnp.zeros(2))
DURATION, STEPS, TORQUE, LENGTH = 2.0, 50, 20.0, 0.5  # s, -, N m, m

problem = control.ControlProblem(
    control.MultibodyDynamics(system),
    hanging,
    duration=DURATION,
    steps=STEPS,
    running=lambda dynamics, t, x, u: u @ u,
    lower=-TORQUE,
    upper=TORQUE,
    final_constraints=control.Equality(lambda dynamics, t, x, u: dynamics.difference(upright, x), "upright"),
)


def with_length(length):
    """The problem of an acrobot whose lower link has another length (m)."""
    return eqx.tree_at(lambda p: p.dynamics.system.model.com, problem, system.model.com.at[1, 2].set(-length))


# %% [markdown]
# ## Many starts
#
# The problem is not convex: where a search ends depends on where it begins. So begin at many places. `rollout_controls` makes
# a plan of states and controls, `solve_batch` improves all plans at once, in the lane compiler. `ILQR` makes, iteration by
# iteration, a linear-quadratic problem about the plan and rolls its policy out; with `second_order` it is DDP. A search that leads
# nowhere leaves the others alone: its result code says how it ended.

# %%
STARTS = 256
torques = 5.0 * jax.random.normal(jax.random.key(0), (STARTS, STEPS, 1))
starts = jax.vmap(lambda u: control.rollout_controls(problem, u))(torques)
begin = time.perf_counter()
found = control.solve_batch(problem, control.ILQR(second_order=True), starts, every=100, progress=False)
print(f"{STARTS} searches: {time.perf_counter() - begin:.1f} s with compilation")
print(control.describe_optima(found))
optima = control.optima(found)
best = jax.tree.map(lambda leaf: leaf[optima[0].best], found)
print(f"best plan: {best.cost:.4f} N² m² s, upright to {best.violation:.1e}")

# %% [markdown]
# Most starts lead to one optimum, and a few to others that take half of the effort. Who starts once hardly ever finds the best.
#
# A second method from another place: `MultipleShooting` improves states and controls together, so it may begin with states that
# are not a motion, such as a straight line from hanging to upright with no torque at all. It needs no luck to get there, and ends
# in an optimum too, another one. Below it is a function of the length and of the guess, compiled once for all that follows.

# %%
solve = jax.jit(lambda length, guess: control.solve(with_length(length), control.MultipleShooting(), guess))
share = jnp.linspace(0.0, 1.0, STEPS + 1)[:, None]
line = control.Plan(
    jaxdyn.State(share * upright.q, jnp.zeros((STEPS + 1, 2))), jnp.zeros((STEPS, 1)), design=jnp.zeros(0)
)
straight = solve(LENGTH, line)
print(f"from a straight line: {straight.cost:.4f} N² m² s, {control.ControlResult(int(straight.result)).name.lower()}")
again = solve(LENGTH, best.value)
print(f"from the best plan of ILQR: {again.cost:.4f} N² m² s after {again.stats.iterations} iterations")

# %% [markdown]
# All of these are ways to swing up. In the strip below each row is one of them; in the phase plane they wind from hanging to
# upright.

# %%
seconds = np.linspace(0.0, DURATION, STEPS + 1)
plans = [(o.cost, jax.tree.map(lambda leaf, k=o.best: leaf[k], found.value)) for o in optima[:3]]
plans.append((float(straight.cost), straight.value))
colors = [BLUE, "#1b8a6b", ORANGE, "#7b4fa3"]


def links(states):
    """Elbow and tip (m), x and z, of states of the acrobot."""
    q1, q2 = np.asarray(states.q[..., 0]), np.asarray(states.q[..., 0] + states.q[..., 1])
    elbow = 0.5 * np.stack([np.sin(q1), -np.cos(q1)], axis=-1)
    return elbow, elbow + 0.5 * np.stack([np.sin(q2), -np.cos(q2)], axis=-1)


FRAMES = 9
figure = Figure(figsize=(9.6, 5.4), layout="constrained")
for row, (axis, (cost, plan), color) in enumerate(zip(figure.subplots(len(plans), 1), plans, colors, strict=True)):
    elbow, tip = links(plan.states)
    for k in range(FRAMES):
        moment, x0 = round(k * STEPS / (FRAMES - 1)), 2.3 * k
        before = slice(max(0, moment - 12), moment + 1)
        axis.plot(x0 + tip[before, 0], tip[before, 1], color=color, lw=1.0, alpha=0.5)
        axis.plot(
            x0 + np.array([0.0, elbow[moment, 0], tip[moment, 0]]),
            [0.0, elbow[moment, 1], tip[moment, 1]],
            "o-",
            color=color,
            lw=2.5,
            ms=4,
        )
        if row == len(plans) - 1:
            axis.text(x0, -1.5, f"{seconds[moment]:.2f} s", ha="center", fontsize=8)
    axis.set(xlim=(-1.2, 2.3 * (FRAMES - 1) + 1.2), ylim=(-1.15, 1.15), aspect="equal")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_ylabel(f"{cost:.1f}\nN² m² s", rotation=0, ha="right", va="center", color=color)
    axis.spines[:].set_visible(False)
figure.suptitle("Four swing-ups of an acrobot, each a local optimum; left: the effort")
keep(figure, "swing_ups.png")

# %%
figure = Figure(figsize=(10.0, 4.2), layout="constrained")
left, right = figure.subplots(1, 2)
for (cost, plan), color in zip(plans, colors, strict=True):
    left.plot(np.degrees(plan.states.q[:, 0]), plan.states.v[:, 0], color=color, lw=1.8, label=f"{cost:.1f} N² m² s")
    right.step(seconds, np.append(plan.controls[:, 0], plan.controls[-1, 0]), where="post", color=color, lw=1.5)
left.plot([0, 180], [0, 0], "o", mfc="white", mec=GRAY, zorder=5)
left.set_xlabel("angle of the shoulder (deg); 0 hangs, 180 stands")
left.set_ylabel("rate of the shoulder (rad/s)")
for bound in (TORQUE, -TORQUE):
    right.axhline(bound, color=GRAY, ls="--", lw=1)
right.set_xlabel("time (s)")
right.set_ylabel("torque of the elbow (N m)")
for axis in (left, right):
    axis.grid(alpha=0.25)
figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
figure.suptitle("Phase plane of the shoulder, and torques; the bound is dashed")
keep(figure, "phase_plane.png")

# %% [markdown]
# As a moving picture: the best plan in color, the others as ghosts.

# %%
motions = np.stack([np.asarray(plan.states.q) for _, plan in plans])
frames = jaxdyn.view.animate(system, seconds, motions, OUT / "swing_up.gif", fps=12.5, speed=0.5, progress=False)
print(f"picture: {OUT / 'swing_up.gif'} with {frames} frames")

# %% [markdown]
# ## Play it
#
# A plan must prove itself on the machine. First without disturbance: `rollout` with the controls of the plan, with the
# integrator and the step of the plan, must end where the plan ends.
#
# Then 500 times with realistic errors: the acrobot does not start at rest but a little off, and both of its weights are a percent
# or two from their nominal values. The torques alone miss; the way up is unstable, so small errors grow. With feedback,
# u = u_k + K_k (x - x_k), it arrives. `tracking_gains` makes the gains K of a linear-quadratic regulator along the plan, and
# `Tracker` is the policy for `rollout`.

# %%
dt = DURATION / STEPS
RK4 = jaxdyn.RungeKutta4()
plan = best.value


def off_upright(state):
    """Largest angle from upright of both links, rad."""
    off = jaxdyn.configuration.difference(system.model, upright.q, state.q)
    return jnp.max(jnp.abs(jnp.cumsum(off)))


replay = jaxdyn.rollout(system, hanging, plan.controls, dt=dt, steps=STEPS, integrator=RK4)
print(f"replay without disturbance ends {off_upright(replay.final):.1e} rad from upright")

gains = control.tracking_gains(problem, plan, jnp.eye(4), 0.1 * jnp.eye(1), 10.0 * jnp.eye(4))
tracker = control.Tracker(problem, plan, gains)


@jax.vmap
def disturbed(sample):
    start_key, mass_key = jax.random.split(jax.random.fold_in(jax.random.key(1), sample))
    off = 0.02 * jax.random.normal(start_key, (2, 2))
    start = jaxdyn.State(hanging.q + off[0], hanging.v + off[1])
    mass = system.model.mass * (1.0 + 0.01 * jax.random.normal(mass_key, (2,)))
    real = eqx.tree_at(lambda s: s.model.mass, system, mass)
    ways = (plan.controls, tracker)
    return [jaxdyn.rollout(real, start, way, dt=dt, steps=STEPS, integrator=RK4).saved for way in ways]


blind, seeing = jax.jit(disturbed)(jnp.arange(500))
missed = [np.degrees(jax.vmap(lambda s: off_upright(jax.tree.map(lambda x: x[-1], s)))(w)) for w in (blind, seeing)]
for name, off in zip(("torques alone", "with feedback"), missed, strict=True):
    print(
        f"{name}: median {np.median(off):.2f} deg from upright at the end, 95 % within {np.percentile(off, 95):.2f} deg"
    )

# %%
figure = Figure(figsize=(9.5, 4.6), layout="constrained")
for axis, states, name in zip(figure.subplots(1, 2), (blind, seeing), ("torques alone", "with feedback"), strict=True):
    elbow, tip = links(states)
    axis.plot(tip[:150, :, 0].T, tip[:150, :, 1].T, color=GRAY, lw=0.5, alpha=0.35)
    for sample in range(60):
        ends = np.stack([np.zeros(2), elbow[sample, -1], tip[sample, -1]])
        axis.plot(*ends.T, color=ORANGE, lw=1.0, alpha=0.5)
    wanted = links(plan.states)[1]
    axis.plot(*wanted.T, color=BLUE, lw=1.8)
    axis.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xlabel="x (m)", ylabel="z (m)", title=name)
    axis.set_xticks([-1, -0.5, 0, 0.5, 1])
    axis.set_yticks([-1, -0.5, 0, 0.5, 1])
figure.suptitle("Tip of 150 disturbed acrobots (gray), of the plan (blue), and where 60 of them end (orange)")
keep(figure, "disturbed.png")

# %% [markdown]
# ## The derivative of an optimum
#
# What if the lower link were longer? One way is to solve again. The other is the implicit function theorem: `optimal_plan` is the
# plan as a differentiable function of all numbers of its problem, however many iterations the solver took. One derivative gives
# the first-order change of every torque, and the slope of the cost.
#
# The cost of an optimum by length is a curve; the derivative at 0.5 m must be its tangent. Solving again at a few lengths shows it.
# (Farther away the solver may slip into a neighboring optimum, and the curve jumps.)

# %%
solution = solve(LENGTH, best.value)


def optimum(length):
    moved = control.optimal_plan(with_length(length), jax.lax.stop_gradient(solution))
    return dt * jnp.sum(moved.controls**2), moved.controls[:, 0]


(cost, _), (slope, torque_slope) = jax.jit(lambda x: jax.jvp(optimum, (x,), (jnp.ones(()),)))(jnp.asarray(LENGTH))
STEP = 1e-3
shorter, longer = solve(LENGTH - STEP, best.value), solve(LENGTH + STEP, best.value)
quotient = (longer.cost - shorter.cost) / (2 * STEP)
print(f"slope of the cost: {slope:.4f} by optimal_plan, {quotient:.4f} N² m s by solving twice again")
print(f"slope relative error: {abs(float(slope / quotient) - 1):.1e}")

# %%
lengths = np.linspace(0.49, 0.53, 5)
solved_again = [solve(float(length), best.value) for length in lengths]
figure = Figure(figsize=(9.5, 4.0), layout="constrained")
left, right = figure.subplots(1, 2)
left.plot(lengths, [s.cost for s in solved_again], "o", color=BLUE, label="solved again")
left.plot(lengths, cost + slope * (lengths - LENGTH), color=ORANGE, label="one derivative at 0.5 m")
left.set_xlabel("length of the lower link (m)")
left.set_ylabel("cost of the best swing-up (N² m² s)")
left.legend(frameon=False)
other = 3
right.step(seconds[:-1], plan.controls[:, 0], where="post", color=GRAY, lw=1.0, label="plan for 0.50 m")
right.step(
    seconds[:-1],
    solved_again[other].value.controls[:, 0],
    where="post",
    color=BLUE,
    label=f"solved again for {lengths[other]:.2f} m",
)
predicted = np.asarray(plan.controls[:, 0] + torque_slope * (lengths[other] - LENGTH))
right.step(seconds[:-1], predicted, where="post", color=ORANGE, ls="--", label="first order")
right.set_xlabel("time (s)")
right.set_ylabel("torque of the elbow (N m)")
right.legend(frameon=False, fontsize=8)
for axis in (left, right):
    axis.grid(alpha=0.25)
figure.suptitle("How the best swing-up changes with the length of the lower link")
keep(figure, "length.png")
