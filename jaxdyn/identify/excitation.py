"""Excitation: periodic motions that maximize the information on the base parameters within the limits of a machine.

Each joint follows a Fourier series, whose velocities and accelerations are exact. The motion is periodic, so that measurements can
be averaged over periods. With noise of standard deviation sigma_j in the force of joint j, the information of samples at t_i is

    A = sum_i Y_i^T diag(1 / sigma^2) Y_i,   Y_i = base columns of the regressor at (q, v, a)(t_i),

which is the inverse of the covariance of the fitted parameters. log det A is maximized within the limits of position, speed and
drive force (D-optimal design). The optimizer Adam starts from many random motions at once; multipliers enforce the limits
(augmented Lagrangian).

Source: Swevers et al. 1997 (Fourier series); Nocedal and Wright 2006, chapter 17 (multipliers).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.compute.announcements import announced_as
from jaxdyn.compute.arrays import einsum, on_device
from jaxdyn.display import Display, Displayed, number_text, plural
from jaxdyn.dynamics import inverse
from jaxdyn.dynamics.equations_of_motion import applied_forces
from jaxdyn.dynamics.system import State, System, checked_system
from jaxdyn.identify.fourier_motion import FourierMotion
from jaxdyn.identify.identifiability import BaseParameters, system_base_parameters
from jaxdyn.identify.regression import regressor
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.messages import check_count
from jaxdyn.mechanism.model import Model
from jaxdyn.results import ResultCode, UnsuccessfulError, raise_unsuccessful
from jaxdyn.spatial import factorizations

_ROUNDS = 5  # rounds of Adam with fixed multipliers
_PENALTY = 10.0  # weight of squared violations, as fractions of a limit; the objective changes by about one per decade of amplitude
_RATE = 0.1  # initial learning rate of Adam, which decreases like a cosine; amplitudes are of order one
_RESERVE = 0.01  # fraction of each limit that the optimizer keeps in reserve between its samples
# Finally, limits are satisfied on a grid this many times finer than the samples, with this fraction in reserve between grid points.
_FINE, _SPARE = 10, 2e-3
_LARGEST, _HALVINGS = 2.0, 14  # bisection for the largest amplitude within the limits, relative to the one found


class Margins(NamedTuple):
    """Smallest relative distances between a motion and the limits of the machine; negative if a limit is exceeded.

    Attributes:
        position: Distance to the nearer limit, in units of half the range; infinite for joints without limits.
        speed, effort: 1 - (largest value) / limit, for velocities and for drive forces.
    """

    position: Float[Array, "*batch nv"]
    speed: Float[Array, "*batch nv"]
    effort: Float[Array, "*batch nv"]


class ExcitationResult(ResultCode):
    """Outcome of a search for exciting motions."""

    SUCCESSFUL = 0, "The search took all its steps; it has no test of convergence.", True
    NOT_HELD = (
        1,
        "Even very small motions exceed the limits of the mechanism; check that the drives can hold it against gravity.",
    )


class ExcitationError(UnsuccessfulError, ValueError):
    """There is no motion within the limits of a mechanism; the message names the `ExcitationResult` and the remedy."""


class ExcitationStats(NamedTuple):
    """Computational effort of the design of a motion.

    Attributes:
        steps: Number of gradient steps from each random motion.
    """

    steps: int


class Excitation(Displayed, eqx.Module):
    """Result of `design_excitation`.

    Attributes:
        value: Most informative motion that was found.
        log_determinant: Log determinant of the information of the motion on the base parameters, in their units.
        margins: Smallest distances from the limits during the motion.
        base: Base parameters that the motion determines.
        random_log_determinants: Log determinants of the information of the random initial motions, which are scaled to the largest
            amplitudes within the limits.
        result: Outcome of the search.
        stats: Computational effort of the search.
        history: Log determinant of each motion before each step, before it is scaled to the limits; None if not requested.
    """

    value: FourierMotion
    log_determinant: Float[Array, ""]
    margins: Margins
    base: BaseParameters = eqx.field(static=True)
    random_log_determinants: Float[Array, "starts"]
    result: ExcitationResult = eqx.field(static=True)
    stats: ExcitationStats = eqx.field(static=True)
    history: Float[Array, "steps starts"] | None = None

    def _display(self) -> Display:
        rows = {"result": self.result.message, "period": number_text(self.value.period, "s")}
        rows |= {"log determinant": number_text(self.log_determinant)}
        rows |= {"of random motions": number_text(self.random_log_determinants), "steps": str(self.stats.steps)}
        rows |= {f"margin of {name}": number_text(margin) for name, margin in self.margins._asdict().items()}
        return Display(f"Excitation({plural(len(self.base.independent), 'base parameter', 'base parameters')})", rows)


@checked_system
@announced_as("the design of motions")
def design_excitation(
    system: System,
    key: PRNGKeyArray,
    *,
    period: float = 10.0,
    harmonics: int = 5,
    samples: int = 100,
    noise: Float[Array, "nv"] | None = None,
    starts: int = 8,
    max_steps: int = 300,
    base: BaseParameters | None = None,
    throw: bool = True,
    history: bool = False,
) -> Excitation:
    """Design a periodic motion, at rest at its ends, whose measured forces determine the base parameters as accurately as possible.

    The motion satisfies the limits of positions, speeds and drive forces in `system.model.limits`, on a grid ten times finer than
    the samples. Finally, all amplitudes are scaled to the largest values within these limits.

    Args:
        system: Mechanism with its forces and drives.
        key: Random key of the initial motions.
        period: Period of the motion, s.
        harmonics: Number of sines and cosines per joint, at least 2; the highest frequency is harmonics / period, Hz.
        samples: Number of equidistant times per period at which forces are measured.
        noise: Standard deviation of the noise of each measured force, N m or N; equal for all forces if not given.
        starts: Number of random motions from which the search starts.
        max_steps: Number of gradient steps from each random motion.
        base: Base parameters to determine; by default all base parameters of the system.
        throw: If true, an error is raised if no motion is within the limits; if false, only the result code states this.
        history: If true, the log determinants of all motions are recorded before each step.

    Raises:
        ExcitationError: `throw` is true, and no motion was found that the drives can hold.
        ValueError: Some joints have quaternions or a prescribed motion, are not driven, are in closed loops, or have limits of
            neither position nor speed.
    """
    check_count("max_steps", max_steps)
    _check(system, harmonics)
    base_key, start_key = jax.random.split(key)
    base = system_base_parameters(system, base_key) if base is None else base
    model = system.model
    noise = jnp.ones(model.nv, model.dtype) if noise is None else noise
    frequency = jnp.asarray(2.0 * np.pi / period, model.dtype)
    chosen = tuple(base.independent.tolist())
    first = _first(start_key, model, starts, harmonics)
    motions, values, margins, random_values, recorded = _search(
        system, first, noise, frequency, independent=chosen, samples=samples, steps=max_steps
    )
    best = int(jnp.argmax(values))
    result = ExcitationResult.SUCCESSFUL if np.isfinite(values[best]) else ExcitationResult.NOT_HELD
    if throw:
        raise_unsuccessful(ExcitationResult, result, ExcitationError)
    motion, margin = jax.tree.map(lambda x: x[best], (motions, margins))
    stats = ExcitationStats(len(recorded))
    return Excitation(motion, values[best], margin, base, random_values, result, stats, recorded if history else None)


@checked_system
def random_motions(
    system: System,
    key: PRNGKeyArray,
    *,
    period: float = 10.0,
    harmonics: int = 5,
    samples: int = 100,
    count: int = 8,
) -> tuple[FourierMotion, Margins]:
    """Random periodic motions, at rest at their ends, with the largest amplitudes within the limits.

    `design_excitation` starts from such motions.

    Args:
        system: Mechanism with its forces and drives.
        key: Random key of the motions.
        period: Period of the motions, s.
        harmonics: Number of sines and cosines per joint, at least 2.
        samples: Number of equidistant times per period at which forces are measured.
        count: Number of motions to draw.

    Returns:
        The motions, with a leading axis, and their distances from the limits. Motions that exceed the limits at every amplitude are
        left out.

    Raises:
        ExcitationError: No motion is within the limits.
        ValueError: See `design_excitation`.
    """
    _check(system, harmonics)
    model = system.model
    frequency = jnp.asarray(2.0 * np.pi / period, model.dtype)
    motions, factors, margins = _random(system, _first(key, model, count, harmonics), frequency, samples=samples)
    held = np.flatnonzero(np.asarray(factors) > 0.0)
    if not held.size:
        raise ExcitationError(ExcitationResult.NOT_HELD.message, ExcitationResult.NOT_HELD)
    # The selection by NumPy is not compiled.
    return jax.tree.map(lambda x: on_device(np.asarray(x)[held]), (motions, margins))


@stored_jit
def _first(key: PRNGKeyArray, model: Model, count: int, harmonics: int) -> Float[Array, "count nv shares"]:
    """Unconstrained parameters of random motions."""

    def draw(key: PRNGKeyArray, k: Array) -> Array:
        return 0.3 * jax.random.normal(jax.random.fold_in(key, k), (model.nv, 2 * harmonics + 1), model.dtype)

    return jax.vmap(per_sample(draw, name="random motion"), (None, 0))(key, jnp.arange(count))


def _check(system: System, harmonics: int) -> None:
    model, limits = system.model, system.model.limits
    topology = model.topology
    if harmonics < 2:
        raise ValueError(f"harmonics is {harmonics}; give at least 2, because one harmonic cannot start at rest")
    if not all(kind.velocity_is_rate for kind in topology.joint_classes) or configuration.is_prescribed(model):
        raise ValueError(
            f"{model.name!r} has joints with quaternions or prescribed motion, which cannot follow a Fourier series"
        )
    if system.constraints or (system.drives is not None and set(system.drives.driven or ()) != set(range(model.nv))):
        raise ValueError(
            f"{model.name!r} has loops or joints without drives, so that its motion cannot be chosen freely"
        )
    bounded = np.isfinite(limits.upper) & np.isfinite(limits.lower) | np.isfinite(limits.velocity)
    if not bounded.all():
        name = topology.joint_names[topology.body_of_column[int(np.argmin(bounded))]]
        raise ValueError(f"joint {name!r} has no limits of position and speed; set position_limits or velocity_limit")


def _motion(model: Model, shares: Float[Array, "nv shares"], frequency: Float[Array, ""]) -> FourierMotion:
    """Motion from dimensionless parameters: fractions of half the range, or of the amplitude at the speed limit."""
    limits = model.limits
    bounded = jnp.isfinite(limits.lower) & jnp.isfinite(limits.upper)
    size = jnp.where(bounded, 0.5 * (limits.upper - limits.lower), limits.velocity / frequency)
    middle = jnp.where(bounded, 0.5 * (limits.upper + limits.lower), 0.0)
    sine, cosine = jnp.split(size[:, None] * shares[:, 1:], 2, axis=1)
    k = jnp.arange(1, sine.shape[1] + 1, dtype=sine.dtype)
    return FourierMotion(middle + size * shares[:, 0], sine / k[None], cosine / k[None], frequency).at_rest()


def _times(motion: FourierMotion, count: int) -> Float[Array, "count"]:
    return motion.period * jnp.arange(count, dtype=motion.offset.dtype) / count


def _excess(system: System, motion: FourierMotion, count: int) -> Float[Array, "count 3 nv"]:
    """Relative excess over the limits of position, speed and drive force, at equidistant times of one period."""
    limits = system.model.limits
    bounded = jnp.isfinite(limits.lower) & jnp.isfinite(limits.upper)
    half = jnp.where(bounded, 0.5 * (limits.upper - limits.lower), 1.0)

    def at(t):
        q, v, a = motion(t)
        force = inverse.recursive_inverse_dynamics(system.model, q, v, a) - applied_forces(system, State(q, v))
        position = jnp.maximum(limits.lower - q, q - limits.upper) / half
        return jnp.stack([position, jnp.abs(v) / limits.velocity - 1.0, jnp.abs(force) / limits.effort - 1.0])

    return jax.vmap(per_sample(at, name="excess over limits"))(_times(motion, count))


def _rows(system: System, motion: FourierMotion, noise, independent, samples: int) -> Float[Array, "samples nv rank"]:
    def at(t):
        q, v, a = motion(t)
        return regressor(system, State(q, v), a)[:, np.array(independent)] / noise[:, None]

    return jax.vmap(per_sample(at, name="rows of the regressor"))(_times(motion, samples))


@stored_jit
def _search(system: System, first, noise, frequency, *, independent, samples: int, steps: int):
    """Optimize all initial motions; returns motions within the limits, their log determinants and margins, the initial log
    determinants, and those before each step.
    """
    model = system.model
    start = jax.vmap(lambda shares: _motion(model, shares, frequency))(first)

    def log_determinant(motion):
        Y = _rows(system, motion, noise, independent, samples)
        return factorizations.log_determinant(einsum("ijp,ijq->pq", Y, Y))

    def loss(shares, multipliers):
        motion = _motion(model, shares, frequency)
        pressed = jnp.maximum(multipliers + _PENALTY * (_excess(system, motion, samples) + _RESERVE), 0.0)
        value = log_determinant(motion)
        return 0.5 * jnp.sum(pressed**2) / _PENALTY - value / len(independent), (pressed, value)

    optimizer = optax.adam(optax.cosine_decay_schedule(_RATE, steps))

    def improved(shares):
        def step(carry, _):
            shares, multipliers, _, memory = carry
            slope, (pressed, value) = jax.grad(loss, has_aux=True)(shares, multipliers)
            with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
                updates, memory = optimizer.update(slope, memory)
            return (optax.apply_updates(shares, updates), multipliers, pressed, memory), value

        def round_(carry, _):
            (shares, _, pressed, memory), values = jax.lax.scan(step, carry, length=steps // _ROUNDS)
            return (shares, pressed, pressed, memory), values

        none = jnp.zeros((samples, 3, model.nv), model.dtype)
        carry = (shares, none, none, optimizer.init(shares))
        (shares, *_), values = jax.lax.scan(round_, carry, length=_ROUNDS)
        return _motion(model, shares, frequency), values.ravel()

    found, recorded = jax.vmap(improved)(first)
    both = jax.tree.map(lambda *x: jnp.concatenate(x), found, start)
    motions, factors, margins = jax.vmap(lambda motion: _within_limits(system, motion, samples))(both)
    values = jnp.where(factors > 0.0, jax.vmap(log_determinant)(motions), -jnp.inf)
    return motions, values, margins, values[len(first) :], recorded.T


@stored_jit
def _random(system: System, first, frequency, *, samples: int):
    """Motions from unconstrained parameters, scaled to the limits."""
    return jax.vmap(lambda x: _within_limits(system, _motion(system.model, x, frequency), samples))(first)


def _within_limits(
    system: System, motion: FourierMotion, samples: int
) -> tuple[FourierMotion, Float[Array, ""], Margins]:
    """The motion with the largest amplitude within the limits, its scale factor (0 if there is none), and margins."""

    def halve(_, carry):
        lower, upper, worst = carry
        factor = 0.5 * (lower + upper)
        excess = jnp.max(_excess(system, motion.scaled(factor), _FINE * samples), axis=0)
        fits = jnp.all(excess < -_SPARE)
        worst = jnp.where(fits, excess, worst)
        return jnp.where(fits, factor, lower), jnp.where(fits, upper, factor), worst

    frequency = motion.frequency
    first = (
        jnp.zeros_like(frequency),
        jnp.full_like(frequency, _LARGEST),
        jnp.full((3, system.model.nv), jnp.inf, frequency.dtype),
    )
    factor, _, worst = jax.lax.fori_loop(0, _HALVINGS, halve, first)
    return motion.scaled(factor), factor, Margins(*-worst)
