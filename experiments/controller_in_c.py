"""Can an identified model and an optimal feedback control an arm from C, and how long does a call take?

Method. An arm differs from its drawing: masses are off by a fifth, and its joints have friction. Linear least squares identify it
from the torques of a random motion, with noise. Three functions are written by `jaxdyn.io.export_c`, each an object file and a
header:

    hold(q, v, wanted)         inverse dynamics of the identified arm, which compensates gravity and friction, with PD feedback;
    track(q, v, k)             feedback law u_k + K_k (x - x_k) of a plan by iLQR, for the identified arm and within its limits;
    simulate(q, v, u)          motion of the true arm during one control step, a loop of several simulation steps.

A C program holds the arm for some steps, and then tracks the plan to the goal. It needs a C compiler, but neither Python nor any
library. The same loop in Python is the check.

Expected. The program and Python agree to rounding. The arm ends within 2 mrad of the goal,
a call of the feedback takes less than 0.1 us, of the inverse dynamics less than 1 us, and of the simulation about 6 us.

Run time. About half a minute on two cores.

    python experiments/controller_in_c.py [configs/controller_in_c.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import control, identify
from jaxdyn.io import ConfigError, RunDirectory, export_c, setting
from jaxdyn.jobs import Job, main

STIFFNESS, DAMPING = 100.0, 20.0  # 1/s^2 and 1/s: feedback of the held arm
PERIOD = 10.0  # s, of the random motion
SCALE = 0.1  # rad/s: velocity below which Coulomb friction is smoothed
PROGRAM = """
#include <stdio.h>
#include <time.h>

#include "hold.h"
#include "simulate.h"
#include "track.h"

enum { JOINTS = %(joints)d, HOLD = %(hold)d, STEPS = %(steps)d, CALLS = 20000 };
static const double start[JOINTS] = {%(start)s};

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#define PRINT_TIME(call) \\
    begin = seconds(); \\
    for (int i = 0; i < CALLS; ++i) call; \\
    printf("%%.9g ", (seconds() - begin) / CALLS)

int main(void) {
    _Alignas(64) char workspace[HOLD_WORKSPACE_BYTES + TRACK_WORKSPACE_BYTES + SIMULATE_WORKSPACE_BYTES];
    double q[2][JOINTS], v[2][JOINTS] = {{0.0}}, u[JOINTS], begin;
    int32_t row[1];
    for (int i = 0; i < JOINTS; ++i) q[0][i] = start[i];
    for (int k = 0; k < HOLD + STEPS; ++k) {
        const int now = k %% 2, next = 1 - now;
        row[0] = k - HOLD;
        if (k < HOLD) hold(q[now], v[now], start, u, workspace);
        else track(q[now], v[now], row, u, workspace);
        simulate(q[now], v[now], u, q[next], v[next], workspace);
    }
    const int end = (HOLD + STEPS) %% 2;
    for (int i = 0; i < JOINTS; ++i) printf("%%.17g ", q[end][i]);
    PRINT_TIME(hold(q[end], v[end], start, u, workspace));
    PRINT_TIME(track(q[end], v[end], row, u, workspace));
    PRINT_TIME(simulate(q[end], v[end], u, q[1 - end], v[1 - end], workspace));
    return 0;
}
"""


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        mechanism: File of the drawing of the arm.
        start, goal: Joint angles at the start and at the end of the motion.
        viscous, coulomb: Friction of the joints, which is not in the drawing.
        error: Largest relative error of the masses in the drawing.
        noise: Standard deviation of the noise of measured torques.
        hold, steps: Number of control steps in which the arm is held at the start, and of the motion to the goal.
        dt: Duration of a control step.
        substeps: Number of simulation steps of each control step.
        target: Processor of the C functions, see `jaxdyn.io.export_c`; the program runs on this machine.
        compiler: Command of the C compiler.
    """

    mechanism: Path
    start: tuple[float, ...] = setting(unit="rad")
    goal: tuple[float, ...] = setting(unit="rad")
    viscous: tuple[float, ...] = setting(unit="N m s/rad")
    coulomb: tuple[float, ...] = setting(unit="N m")
    noise: tuple[float, ...] = setting(unit="N m")
    error: float = setting(0.2, minimum=0.0)
    hold: int = setting(200, positive=True)
    steps: int = setting(200, positive=True)
    dt: float = setting(0.005, unit="s", positive=True)
    substeps: int = setting(5, positive=True)
    target: Literal["x86-64", "aarch64", "native"] = "native"
    compiler: str = "cc"


def identified(config: Config, drawing: jaxdyn.System, truth: jaxdyn.System) -> jaxdyn.System:
    """The arm with the parameters that explain its torques; the drawing decides combinations that they do not determine."""
    motions, _ = identify.random_motions(drawing, jax.random.key(0), period=PERIOD)
    motion = jax.tree.map(lambda leaf: leaf[0], motions)

    @jax.jit
    def measured(times):
        q, v, a = jax.vmap(motion)(times)
        states = jaxdyn.State(q, v)
        Y = jax.vmap(identify.regressor, (None, 0, 0))(drawing, states, a)
        return Y, jax.vmap(lambda state, a: jaxdyn.inverse_dynamics(truth, state, a))(states, a)

    noise = jnp.asarray(config.noise)
    Y, torques = measured(jnp.linspace(0.0, PERIOD, 500))
    torques += noise * jax.random.normal(jax.random.key(1), torques.shape)
    guess = identify.linear_parameters(drawing)
    friction = jnp.arange(len(guess)) >= 10 * drawing.model.nb + drawing.model.nv
    prior = identify.Prior(guess, jnp.where(friction, 1.0, config.error * jnp.abs(guess) + 1e-4))
    found = identify.weighted_least_squares(Y, torques, noise, prior=prior)
    return identify.with_linear_parameters(drawing, found.estimate)


def planned(config: Config, system: jaxdyn.System) -> tuple[control.ControlProblem, control.Solution]:
    """The motion to the goal and its feedback."""
    limits = system.model.limits.effort
    start, goal = (system.at_rest(jnp.asarray(q)) for q in (config.start, config.goal))
    problem = control.ControlProblem(
        control.MultibodyDynamics(system, jaxdyn.SemiImplicitEuler()),
        start,
        duration=config.steps * config.dt,
        steps=config.steps,
        running=(
            control.Effort(1.0 / limits**2),
            control.Deviation(goal, jnp.repeat(jnp.array([0.1, 0.1]), len(limits))),
        ),
        final=control.Deviation(goal, jnp.repeat(jnp.array([1000.0, 100.0]), len(limits))),
        lower=-limits,
        upper=limits,
    )
    return problem, control.solve(problem, control.ILQR(tolerance=1e-4))


def functions(config: Config, model: jaxdyn.System, truth: jaxdyn.System) -> dict[str, Any]:
    """The functions of one sample that are exported."""
    problem, solution = planned(config, model)
    plan, gains = solution.value, solution.feedback

    def hold(q, v, wanted):
        return jaxdyn.inverse_dynamics(model, jaxdyn.State(q, v), STIFFNESS * (wanted - q) - DAMPING * v)

    def track(q, v, k):
        deviation = jnp.concatenate([q - plan.states.q[k], v - plan.states.v[k]])
        return jnp.clip(plan.controls[k] + gains[k] @ deviation, problem.lower, problem.upper)

    def simulate(q, v, u):
        dt = config.dt / config.substeps
        motion = jaxdyn.rollout(
            truth, jaxdyn.State(q, v), lambda t, state, key: u, dt=dt, steps=config.substeps, save_every=config.substeps
        )
        return motion.final.q, motion.final.v

    return {"hold": hold, "track": track, "simulate": simulate}


def moved(config: Config, hold, track, simulate) -> np.ndarray:
    """Final joint angles in the same loop in Python."""
    start = jnp.asarray(config.start)

    def held(state, _):
        return simulate(*state, hold(*state, start)), None

    def tracked(state, k):
        return simulate(*state, track(*state, k)), None

    @jax.jit
    def run(state):
        state, _ = jax.lax.scan(held, state, None, length=config.hold)
        return jax.lax.scan(tracked, state, jnp.arange(config.steps, dtype=jnp.int32))[0]

    return np.asarray(run((start, jnp.zeros_like(start)))[0])


def in_c(config: Config, folder: Path, joints: int) -> np.ndarray:
    """Final joint angles, and seconds per call of each function, of the C program."""
    start = ", ".join(map(repr, config.start))
    text = PROGRAM % {"joints": joints, "hold": config.hold, "steps": config.steps, "start": start}
    (folder / "main.c").write_text(text)
    files = ["main.c", "hold.o", "track.o", "simulate.o"]
    try:
        subprocess.run([config.compiler, "-std=gnu11", "-O2", "-Wall", "-o", "main", *files], cwd=folder, check=True)
    except FileNotFoundError:
        raise ConfigError(f"compiler: there is no {config.compiler!r}; give the command of a C compiler") from None
    run = subprocess.run([folder / "main"], capture_output=True, text=True, check=True)
    return np.array(run.stdout.split(), float)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True):
        drawing = jaxdyn.io.load_system(config.mechanism)
        joints = drawing.model.nv
        factors = 1.0 + config.error * jax.random.uniform(jax.random.key(2), (drawing.model.nb,), minval=-1.0)
        heavier = eqx.tree_at(
            lambda m: (m.mass, m.inertia),
            drawing.model,
            (factors * drawing.model.mass, factors[:, None] * drawing.model.inertia),
        )
        none, scale = [0.0] * joints, [SCALE] * joints
        truth = jaxdyn.System(heavier, (jaxdyn.JointFriction(list(config.viscous), list(config.coulomb), scale),))
        guess = jaxdyn.System(drawing.model, (jaxdyn.JointFriction(none, none, scale),))
        model = identified(config, guess, truth)
        exported = functions(config, model, truth)
        folder = directory.path("code")
        row, number = jax.ShapeDtypeStruct((joints,), float), jax.ShapeDtypeStruct((), jnp.int32)
        for name, specs in (("hold", (row,) * 3), ("track", (row, row, number)), ("simulate", (row,) * 3)):
            export_c(exported[name], specs, folder / name, target=config.target)
        found = in_c(config, folder, joints)
        expected = moved(config, **exported)
    reached, seconds = found[:joints], dict(zip(exported, found[joints:].tolist(), strict=True))
    metrics = {
        "seconds_per_call": seconds,
        "largest_error_rad": float(np.max(np.abs(reached - np.asarray(config.goal)))),
        "largest_difference_from_python_rad": float(np.max(np.abs(reached - expected))),
    }
    for name, taken in seconds.items():
        print(f"{name:9s} {1e9 * taken:7.0f} ns per call")
    print(f"largest distance of a joint from the goal: {1e3 * metrics['largest_error_rad']:.2f} mrad")
    print(f"largest difference from Python: {metrics['largest_difference_from_python_rad']:.1e} rad")
    return metrics


JOB = Job("controller-in-c", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
