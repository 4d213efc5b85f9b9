"""Does a body's attitude move faster, or more accurately, in s-parameters than in quaternions?

Method. One rigid body turns about its center of mass in three cases: a symmetric and a general body without any moment, and the
symmetric body in a medium that resists with the moment -h w. Both forms of `jaxdyn.formulations.attitude` take Runge-Kutta steps of
order 4: the s-parameter form (speed, alpha, beta, s; 6 variables, switched to the shadow set where |s| > 1) and the quaternion
form (attitude quaternion, body rates; 7 variables, never normalized). Both start from the attitude of the config and from random
attitudes and directions of the angular velocity. The error is the angle between the attitude at the end and that of a quaternion
solution with steps an eighth of the finest. The cost is the time of one step, compilation apart, of one body and of a batch; the
forms take turns, the median counts.

Pictures. Without a moment the s-parameters stay on a surface: a torus for the symmetric body, and for every body the circles of all
turns about the angular velocity, over the cone of its directions in the body. In the medium they move from torus to torus.

Expected. The exact rates of the symmetric body in the medium are reproduced, the trajectories stay on their surfaces, both
forms have order 4. The s-parameter form needs sines, cosines and divisions, and its rates grow where the angular velocity nears
inertial Y or -Y, while the kinematics of the quaternion are linear: quaternions should be faster, and at worst far more accurate.

Run time. About 15 s on two cores.

    python experiments/attitude_s_parameters.py [configs/attitude_s_parameters.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from jaxdyn.formulations import attitude
from jaxdyn.io import RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main
from jaxdyn.spatial import attitude as maps
from jaxdyn.spatial import quaternion


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        symmetric_body: Principal moments of inertia; the first two are equal.
        general_body: Principal moments of inertia, all different.
        resistance: Coefficient h of the medium, whose moment is -h times the angular velocity.
        speed: Initial magnitude of the angular velocity.
        s: S-parameters of the first initial state, which is that of the pictures; its alpha = 0 and beta = 90 deg.
        shown_duration: Duration of the trajectories in the pictures.
        duration: Simulated time of the error measurements.
        coarsest_step: Longest time step.
        halvings: Number of times that the time step is halved.
        starts: Number of initial states of the error measurements; all but the first are random.
        seed: Seed of the random initial states.
        timed_steps: Number of steps in a timed call for one body; the batch of all initial states takes a hundredth of it.
        rounds: Number of timed calls of each kind.
    """

    symmetric_body: tuple[float, float, float] = setting((3.0, 3.0, 2.0), unit="kg m^2", positive=True)
    general_body: tuple[float, float, float] = setting((3.0, 2.2, 1.2), unit="kg m^2", positive=True)
    resistance: float = setting(0.1, unit="N m s/rad", positive=True)
    speed: float = setting(2.0, unit="rad/s", positive=True)
    s: tuple[float, float, float] = setting((1.0, 0.0, 1.0))
    shown_duration: float = setting(60.0, unit="s", positive=True)
    duration: float = setting(10.0, unit="s", positive=True)
    coarsest_step: float = setting(0.2, unit="s", positive=True)
    halvings: int = setting(5, positive=True)
    starts: int = setting(256, positive=True)
    seed: int = seed_setting()
    timed_steps: int = setting(20000, positive=True)
    rounds: int = setting(7, positive=True)

    def __post_init__(self):
        across, other, along = self.symmetric_body
        if across != other or across == along:
            raise ValueError("symmetric_body: make the first two moments equal and the third another")
        if len(set(self.general_body)) < 3:
            raise ValueError("general_body: make all three moments different")


@dataclasses.dataclass(frozen=True)
class Form:
    """One of the two forms of the equations of motion.

    Attributes:
        rates: Equation of motion (principal moments, state, moment) -> rates.
        of: Function from a quaternion state to a state of this form.
        quaternion_of: Function from a state of this form to a quaternion state.
        after: Function applied to the state after each step.
    """

    rates: Callable[..., Any]
    of: Callable[[Any], Any]
    quaternion_of: Callable[[Any], attitude.QuaternionState]
    after: Callable[[Any], Any]


def unchanged(state):
    return state


FORMS = {
    "s-parameters": Form(
        attitude.attitude_rates, attitude.from_quaternion_state, attitude.to_quaternion_state, attitude.switch
    ),
    "quaternions": Form(attitude.quaternion_rates, unchanged, unchanged, unchanged),
}
REFERENCE_HALVINGS = 3  # of the finest step; divides the error by 4096
MEDIUM = "symmetric body, resisting medium"
SHOWN_STEP = 2e-3  # s; its error is invisible
SHOWN_EVERY = 10  # steps


@dataclasses.dataclass(frozen=True)
class Case:
    """A body and the resistance of its medium."""

    moments: np.ndarray
    resistance: float


def cases(config: Config) -> dict[str, Case]:
    symmetric, general = np.array(config.symmetric_body), np.array(config.general_body)
    return {
        "symmetric body, no moment": Case(symmetric, 0.0),
        "general body, no moment": Case(general, 0.0),
        MEDIUM: Case(symmetric, config.resistance),
    }


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True):
        steppers = {name: Stepper(form, config) for name, form in FORMS.items()}
        shown = {name: shown_motion(case, config) for name, case in cases(config).items()}
        errors = measured_errors(config, steppers)
        cost = measured_cost(config, steppers)
    draw_surfaces(directory, shown)
    draw_medium(directory, shown[MEDIUM])
    draw_errors(directory, ladder(config), errors, cost)
    for name, motion in shown.items():
        directory.write_arrays(f"trajectory_{label(name)}", **motion)
    for name, of_case in errors.items():
        arrays = {label(form): error for form, error in of_case.items()}
        directory.write_arrays(f"errors_{label(name)}", step=ladder(config), **arrays)
    departure = {name: float(np.max(np.abs(motion["departure"]))) for name, motion in shown.items()}
    for name, value in departure.items():
        print(f"{name:34s} at most {value:.1e} off {'the exact rates, rad/s' if name == MEDIUM else 'the surface'}")
    return {"departure": departure, "cost": cost, **verdict(ladder(config), errors, cost)}


def label(name: str) -> str:
    return name.replace(",", "").replace(" ", "_").replace("-", "_")


def ladder(config: Config) -> np.ndarray:
    """Steps, s; whole fractions of the duration."""
    count = max(1, round(config.duration / config.coarsest_step))
    return config.duration / (count * 2 ** np.arange(config.halvings + 1))


# --- integration ---


def advance(form: Form, moments, resistance, state, dt, steps):
    """State after some Runge-Kutta steps of order 4 under the moment -h w."""

    def rates(state):
        return form.rates(moments, state, lambda state: -resistance * state.body_rates)

    def step(state):
        def moved(k, h):
            return jax.tree.map(lambda x, dx: x + h * dx, state, k)

        k1 = rates(state)
        k2 = rates(moved(k1, 0.5 * dt))
        k3 = rates(moved(k2, 0.5 * dt))
        k4 = rates(moved(k3, dt))
        mean = jax.tree.map(lambda a, b, c, d: (a + 2.0 * b + 2.0 * c + d) / 6.0, k1, k2, k3, k4)
        return form.after(moved(mean, dt))

    return jax.lax.fori_loop(0, steps, lambda _, state: step(state), state)


class Stepper:
    """`advance` of one form, compiled for one body and for all starts; moments, resistance and steps remain arguments.

    Attributes:
        form: Form of the equations.
        starts: Random initial states in this form.
        compile_s: Compilation time for one body, s.
    """

    def __init__(self, form: Form, config: Config):
        self.form = form
        self.starts = jax.jit(jax.vmap(form.of))(starts(config))
        function = jax.jit(lambda *arguments: advance(form, *arguments))
        begin = time.perf_counter()
        self._one = function.lower(*self._arguments(self.first, cases(config)[MEDIUM], 0.1, 1)).compile()
        self.compile_s = time.perf_counter() - begin
        every = jax.vmap(lambda *arguments: advance(form, *arguments), in_axes=(None, None, 0, None, None))
        self._all = jax.jit(every)
        self._quaternions = jax.jit(jax.vmap(lambda state: form.quaternion_of(state).quaternion))

    @property
    def first(self):
        return jax.tree.map(lambda x: x[0], self.starts)

    def one(self, case: Case, dt: float, steps: int):
        """Final state of the first start."""
        return jax.block_until_ready(self._one(*self._arguments(self.first, case, dt, steps)))

    def all(self, case: Case, dt: float, steps: int):
        """Final states of all starts."""
        return jax.block_until_ready(self._all(*self._arguments(self.starts, case, dt, steps)))

    def attitudes(self, case: Case, dt: float, steps: int):
        """Attitude quaternions of `all`."""
        return self._quaternions(self.all(case, dt, steps))

    @staticmethod
    def _arguments(state, case: Case, dt: float, steps: int):
        moments, resistance, step = (jnp.asarray(x, float) for x in (case.moments, case.resistance, dt))
        return moments, resistance, state, step, jnp.asarray(steps, int)


def first_start(config: Config) -> attitude.SParameterState:
    """The start of the pictures."""
    return attitude.SParameterState(*(jnp.asarray(x, float) for x in (config.speed, 0.0, np.pi / 2, config.s)))


def starts(config: Config) -> attitude.QuaternionState:
    """The start of the pictures and random ones, uniform over all attitudes and all directions of the angular velocity."""
    first = attitude.to_quaternion_state(first_start(config))
    rng = np.random.default_rng(config.seed)
    q, w = rng.normal(size=(config.starts, 4)), rng.normal(size=(config.starts, 3))
    q, w = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, w))
    q[0], w[0] = first.quaternion, first.body_rates / config.speed
    return attitude.QuaternionState(jnp.asarray(q), jnp.asarray(config.speed * w))


# --- errors and cost ---


@jax.jit
@jax.vmap
def angle_between(a, b):
    """Angle of the rotation from one attitude to another, rad."""
    return jnp.linalg.norm(quaternion.logarithm(quaternion.multiply(quaternion.conjugate(a), b)))


def measured_errors(config: Config, steppers: dict[str, Stepper]) -> dict[str, dict[str, np.ndarray]]:
    """Error of the attitude at the end, rad: case -> form -> (steps, starts)."""
    errors = {}
    steps = ladder(config)
    for name, case in tqdm(cases(config).items(), unit="case"):
        finest = steps[-1] / 2**REFERENCE_HALVINGS
        reference = steppers["quaternions"].attitudes(case, finest, round(config.duration / finest))
        errors[name] = {
            form: np.array(
                [angle_between(reference, stepper.attitudes(case, dt, round(config.duration / dt))) for dt in steps]
            )
            for form, stepper in steppers.items()
        }
    return errors


def measured_cost(config: Config, steppers: dict[str, Stepper]) -> dict[str, dict[str, float]]:
    """Compile time, s, and time of a step of one body, s, alone and in a batch, per form."""
    case, dt = cases(config)[MEDIUM], 1e-6  # so short that nothing moves, whatever the number of steps
    few = max(1, config.timed_steps // 100)
    alone, batched = ({name: [] for name in steppers} for _ in range(2))
    for _ in range(config.rounds):
        for name, stepper in steppers.items():
            begin = time.perf_counter()
            stepper.one(case, dt, config.timed_steps)
            middle = time.perf_counter()
            stepper.all(case, dt, few)
            alone[name].append((middle - begin) / config.timed_steps)
            batched[name].append((time.perf_counter() - middle) / (few * config.starts))
    return {
        name: {
            "compile_s": stepper.compile_s,
            "step_s": statistics.median(alone[name]),
            "step_in_batch_s": statistics.median(batched[name]),
        }
        for name, stepper in steppers.items()
    }


def verdict(steps: np.ndarray, errors: dict[str, dict[str, np.ndarray]], cost: dict[str, dict[str, float]]):
    """Print and return which form is faster, and which more accurate per step and for the same time.

    Errors are compared at the middle of the ladder, which is neither too coarse for the order nor at the level of rounding.
    """
    for name, of_form in cost.items():
        print(
            f"{name:12s} compile {of_form['compile_s']:.2f} s; a step takes {of_form['step_s'] * 1e9:.0f} ns, "
            f"in a batch {of_form['step_in_batch_s'] * 1e9:.0f} ns per body"
        )
    slower = cost["s-parameters"]["step_s"] / cost["quaternions"]["step_s"]
    slower_in_batch = cost["s-parameters"]["step_in_batch_s"] / cost["quaternions"]["step_in_batch_s"]
    middle = len(steps) // 2
    print(
        f"Faster per step: {preferred(slower)}; s-parameters take {slower:.2g} times as long, {slower_in_batch:.2g} in a batch."
    )
    print(f"Errors at a step of {steps[middle]:g} s, in s-parameters over in quaternions:")
    summary = {}
    for name, of_case in errors.items():
        ratio = of_case["s-parameters"][middle] / of_case["quaternions"][middle]
        typical, same_time = float(np.median(ratio)), float(np.median(ratio) * slower**4)  # both of order 4
        worst = {form: float(np.max(error[middle])) for form, error in of_case.items()}
        print(
            f"  {name}: median {typical:.2g}, first start {ratio[0]:.2g}, smaller in {np.mean(ratio < 1):.0%} of the starts; "
            f"worst {worst['s-parameters']:.1e} rad over {worst['quaternions']:.1e} rad. More accurate per step: "
            f"{preferred(typical)}; for the same time: {preferred(same_time)} ({same_time:.2g})."
        )
        summary[name] = {
            "median_ratio": typical,
            "first_ratio": float(ratio[0]),
            "smaller_in_s_parameters": float(np.mean(ratio < 1)),
            "worst": worst,
            "median_ratio_for_the_same_time": same_time,
            "order": {form: order(steps, np.median(error, axis=1)) for form, error in of_case.items()},
        }
    return {"time_ratio": slower, "time_ratio_in_batch": slower_in_batch, "errors": summary}


def preferred(ratio: float) -> str:
    """The better form, by a quantity of s-parameters over that of quaternions; differences of a quarter decide nothing."""
    return "neither" if 0.8 < ratio < 1.25 else "quaternions" if ratio > 1 else "s-parameters"


def order(steps: np.ndarray, errors: np.ndarray) -> float:
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


# --- trajectories in s-space ---


def shown_motion(case: Case, config: Config) -> dict[str, np.ndarray]:
    """A trajectory of s, not switched so that it is continuous, and the surface of its first integral d.

    Returns:
        time (T,), s (T, 3), body_rates (T, 3), inertia d (T,), surface (n, m, 3), and departure: of s from the surface, or of the
        body rates from the exact ones.
    """
    count = max(1, round(config.shown_duration / (SHOWN_STEP * SHOWN_EVERY)))
    moments, resistance = jnp.asarray(case.moments), jnp.asarray(case.resistance)
    saved = {name: np.asarray(x) for name, x in trajectory(moments, resistance, first_start(config), count).items()}
    departure = {"departure": saved.pop("from_exact_rates" if case.resistance else "from_surface")}
    saved["surface"] = surface(case.moments, saved["body_rates"][0], saved["inertia"][0])
    if case.resistance:
        saved["last_surface"] = surface(case.moments, saved["body_rates"][-1], saved["inertia"][-1])
    return saved | departure


@partial(jax.jit, static_argnums=3)
def trajectory(moments, resistance, start, count: int):
    """Every SHOWN_EVERY-th state and how far it is from the surface of the start and from the rates of a symmetric body."""
    form = dataclasses.replace(FORMS["s-parameters"], after=unchanged)
    inertia = attitude.dynamic_inertia(moments, start)

    def save(state, index):
        t = index * SHOWN_STEP * SHOWN_EVERY
        exact = attitude.resisted_body_rates(moments, start.body_rates, resistance, t)
        views = {
            "time": t,
            "s": state.s,
            "body_rates": state.body_rates,
            "inertia": attitude.dynamic_inertia(moments, state),
            "from_surface": attitude.configuration_surface(moments, inertia, state.s),
            "from_exact_rates": state.body_rates - exact,
        }
        return advance(form, moments, resistance, state, SHOWN_STEP, SHOWN_EVERY), views

    return jax.lax.scan(save, start, jnp.arange(count + 1, dtype=float))[1]


@jax.jit
def torus_grid(moments, body_rates, inertia, turn):
    """Torus of a symmetric body."""
    angle = attitude.torus_angle(moments, inertia, body_rates[2] / jnp.linalg.norm(body_rates))
    return jax.vmap(jax.vmap(attitude.torus, (None, 0, None)), (None, None, 0))(angle, turn, turn)


@jax.jit
def circles_over(directions, half_turn):
    """Attitudes that turn a direction in the body into the third axis, for all directions; s-parameters."""

    def lift(n, half_turn):
        to_third_axis = jnp.stack([1.0 + n[2], n[1], -n[0], jnp.zeros_like(n[0])])
        about = jnp.stack(
            [jnp.cos(half_turn), jnp.zeros_like(half_turn), jnp.zeros_like(half_turn), jnp.sin(half_turn)]
        )
        return maps.from_quaternion(quaternion.multiply(about, to_third_axis))

    return jax.vmap(jax.vmap(lift, (None, 0)), (0, None))(directions, half_turn)


def surface(moments: np.ndarray, body_rates: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """Grid of points of the configuration surface of a balanced body, (n, m, 3).

    The angular velocity of a general body moves in the body on the cone sum Ik (Ik - d) nk^2 = 0, one of whose coefficients has a
    separate sign. Over every direction n on the cone lies a circle of attitudes.
    """
    turn = np.linspace(-np.pi, np.pi, 73)
    if moments[0] == moments[1]:
        arguments = (jnp.asarray(x) for x in (moments, body_rates, inertia, turn))
        return np.asarray(torus_grid(*arguments))
    coefficients = moments * (moments - inertia)
    axis = int(np.argmin(np.sign(coefficients) * np.sign(coefficients).sum()))
    others = [k for k in range(3) if k != axis]
    n = np.empty((len(turn), 3))
    n[:, axis] = np.sign(body_rates[axis]) / np.sqrt(abs(coefficients[axis]))
    n[:, others] = np.stack([np.cos(turn), np.sin(turn)], axis=1) / np.sqrt(np.abs(coefficients[others]))
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    return np.asarray(circles_over(jnp.asarray(n), jnp.asarray(turn)))


# --- pictures ---


def draw_surfaces(directory: RunDirectory, shown: dict[str, dict[str, np.ndarray]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 5.4), layout="constrained")
    points = []
    for index, (name, motion) in enumerate(shown.items()):
        axis: Any = figure.add_subplot(1, len(shown), index + 1, projection="3d")
        axis.plot_surface(
            *np.moveaxis(motion["surface"], -1, 0), color="#9db8d9", alpha=0.22, lw=0, rstride=2, cstride=2
        )
        if "last_surface" in motion:
            axis.plot_surface(
                *np.moveaxis(motion["last_surface"], -1, 0), color="#d9822b", alpha=0.18, lw=0, rstride=2, cstride=2
            )
        points.append(axis.scatter(*motion["s"].T, c=motion["time"], s=1.2, cmap="viridis", depthshade=False))
        axis.set_title(
            name + (": from the blue torus to the orange one" if "last_surface" in motion else ""), fontsize=10
        )
        axis.set_xlabel("$s_1$")
        axis.set_ylabel("$s_2$")
        axis.set_zlabel("$s_3$")
        axis.set_box_aspect(np.ptp(motion["surface"].reshape(-1, 3), axis=0))
    figure.colorbar(points[-1], ax=figure.axes, label="time (s)", shrink=0.7)
    figure.suptitle("Trajectories of the s-parameters on the configuration surface")
    figure.savefig(directory.path("surfaces.png"), dpi=110)


def draw_medium(directory: RunDirectory, motion: dict[str, np.ndarray]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    exact = motion["body_rates"] - motion["departure"]
    for k, color in enumerate(("#1f5fa8", "#d9822b", "#3a8f5c")):
        left.plot(motion["time"], motion["body_rates"][:, k], color=color, label=f"axis {k + 1}, s-parameters")
        left.plot(motion["time"][::50], exact[::50, k], "o", ms=3, mfc="none", color=color)
    left.set_ylabel("body rate (rad/s); circles: exact")
    left.legend(frameon=False)
    right.plot(motion["time"], motion["inertia"], color="#1f5fa8")
    right.set_ylabel("$d = \\Lambda^2/2E$ (kg m$^2$)")
    for axis in (left, right):
        axis.set_xlabel("time (s)")
        axis.grid(alpha=0.3)
    figure.suptitle("Symmetric body in a resisting medium")
    figure.savefig(directory.path("resisting_medium.png"), dpi=110)


def draw_errors(
    directory: RunDirectory,
    steps: np.ndarray,
    errors: dict[str, dict[str, np.ndarray]],
    cost: dict[str, dict[str, float]],
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 7.5), layout="constrained")
    axes = figure.subplots(2, len(errors), sharey=True)
    for (name, of_case), (upper, lower) in zip(errors.items(), axes.T, strict=True):
        for (form, error), color in zip(of_case.items(), ("#d9822b", "#1f5fa8"), strict=True):
            median, worst = np.median(error, axis=1), np.max(error, axis=1)
            for axis, x in ((upper, steps), (lower, cost[form]["step_s"] / steps)):
                axis.loglog(x, median, "o-", color=color, label=f"{form}, median of the starts")
                axis.loglog(x, worst, "x--", color=color, alpha=0.6, label=f"{form}, worst")
        upper.set_title(name, fontsize=10)
        upper.set_xlabel("step (s)")
        lower.set_xlabel("time on this machine per simulated second (s)")
        for axis in (upper, lower):
            axis.grid(alpha=0.3, which="both")
    for axis in axes[:, 0]:
        axis.set_ylabel("attitude error at the end (rad)")
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.savefig(directory.path("errors.png"), dpi=110)


JOB = Job("attitude-s-parameters", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
