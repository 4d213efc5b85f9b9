"""Errors of energy, forward dynamics and their gradients in float32 and float64, relative to a computation with 50 digits.

The reference is the scalar program of the lane compiler in arithmetic of 50 digits, so the formulas are the same and only rounding
differs. All computations use the same states, which float32 represents exactly, and the parameters of the model in double
precision. The error from rounding these parameters to float32 is a part of the error of float32, and is also reported separately.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

import jaxdyn.compute as compute
from jaxdyn.compute import stored_jit
from jaxdyn.compute.arrays import dot
from jaxdyn.constraints.projection import project_velocity
from jaxdyn.dynamics import energy
from jaxdyn.dynamics.equations_of_motion import acceleration, total_potential_energy
from jaxdyn.dynamics.metric import mass_matrix
from jaxdyn.dynamics.system import State, System
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import as_dtype

# Decimal digits of the reference.
DIGITS = 50
# A gradient that is smaller than this relative to its function, in SI units, counts as zero.
_VANISHES = 1e-12
# Typical acceleration of a joint that the random forces would cause if it moved alone, rad/s^2 or m/s^2.
_ACCELERATION = 10.0


class Samples(NamedTuple):
    """States, forces and weights that are exactly representable in float32.

    Attributes:
        q, v: Configurations and velocities.
        tau: Generalized forces.
        weights: Weights of the accelerations in the sum whose gradient is computed.
    """

    q: Float[Array, "*states nq"]
    v: Float[Array, "*states nv"]
    tau: Float[Array, "*states nv"]
    weights: Float[Array, "*states nv"]


@dataclasses.dataclass(frozen=True)
class Errors:
    """Errors of one quantity at each state: the largest error of a component relative to the largest component of the vector.

    If the largest component is smaller than its median over the states, as at rest, the errors are relative to the median.

    Attributes:
        float32, float64: Errors of the computations in float32 and in float64.
        rounded_model: Errors of exact arithmetic with model parameters rounded to float32; they are included in `float32`.
        exact: Results of the reference, rounded to double precision.
    """

    float32: np.ndarray
    rounded_model: np.ndarray
    float64: np.ndarray
    exact: np.ndarray


class Part(NamedTuple):
    """A function (system, q, v, tau, weights) with the names of its results: a value, followed by the parts of its gradient."""

    names: tuple[str, ...]
    function: Callable[..., tuple[Array, ...]]


def _energies(system: System, q, v, tau, weights):
    time = jnp.zeros((), q.dtype)

    def total(step, v, mass):
        changed = eqx.tree_at(lambda s: s.model.mass, system, mass)
        moved = configuration.integrate(system.model, q, step)
        kinetic = energy.kinetic_energy(changed.model.at(time), moved, v)
        potential = total_potential_energy(changed, changed.at_rest(moved))
        return kinetic + potential, jnp.stack([kinetic, potential])

    gradient, parts = jax.grad(total, (0, 1, 2), has_aux=True)(jnp.zeros_like(v), v, system.model.mass)
    return parts, *gradient


def _accelerations(system: System, q, v, tau, weights):
    def weighted(step, v, tau, mass):
        changed = eqx.tree_at(lambda s: s.model.mass, system, mass)
        a = acceleration(changed, State(configuration.integrate(system.model, q, step), v), tau)
        return dot(weights, a), a

    gradient, a = jax.grad(weighted, (0, 1, 2, 3), has_aux=True)(jnp.zeros_like(v), v, tau, system.model.mass)
    return a, *gradient


# Kinetic and potential energy, and the gradient of their sum.
ENERGIES = Part(("energy", "energy by q", "energy by v", "energy by masses"), _energies)
# Accelerations under generalized forces, and the gradient of a weighted sum of them.
ACCELERATIONS = Part(
    ("accelerations", *(f"accelerations by {name}" for name in ("q", "v", "forces", "masses"))), _accelerations
)


def random_inputs(system: System, rest: Float[Array, "nq"], q: Float[Array, "states nq"], key: PRNGKeyArray) -> Samples:
    """A state at rest without forces, and moving states with random forces; velocities satisfy the constraints.

    Args:
        system: Mechanism with its forces.
        rest, q: Configurations of the state at rest and of the moving states, which satisfy the constraints.
        key: Random key.
    """
    of_velocities, of_forces, of_weights = jax.random.split(key, 3)
    q = jnp.concatenate([rest[None], q])
    shape = (q.shape[0], system.model.nv)
    moving = (jnp.arange(shape[0]) > 0).astype(q.dtype)[:, None]
    v = jax.random.normal(of_velocities, shape, q.dtype) * moving
    v = stored_jit(jax.vmap(lambda q, v: project_velocity(system, State(q, v))))(q, v)
    inertia = jnp.diagonal(_mass_matrices(system, q), axis1=1, axis2=2)
    tau = _ACCELERATION * inertia * jax.random.normal(of_forces, shape, q.dtype) * moving
    weights = jax.random.normal(of_weights, shape, q.dtype)
    return as_dtype(as_dtype(Samples(q, v, tau, weights), jnp.float32), q.dtype)


def errors(system: System, part: Part, inputs: Samples) -> dict[str, Errors]:
    """Errors of the results of a part, by the names of the results, except for gradients that are zero.

    Args:
        system: Mechanism with its forces, in double precision.
        part: Function and names of its results.
        inputs: States and forces.

    Raises:
        CannotCompile: The lane compiler does not support the function, so there is no reference.
        ValueError: A result of the reference is not finite.
    """
    reference = compute.reference(part.function, system, *_state(inputs, 0), digits=DIGITS)

    def exactly(system):
        results = [reference(system, *_state(inputs, k)) for k in range(len(inputs.q))]
        return [np.stack(result) for result in zip(*results, strict=True)]

    def computed(dtype):
        rounded, given = as_dtype((system, inputs), dtype)
        results = compute.batched(lambda *state: part.function(rounded, *state))(*given)
        with np.errstate(invalid="ignore"):  # NaN is kept
            return [np.vectorize(reference.context.mpf, otypes=[object])(np.asarray(x, np.float64)) for x in results]

    exact = exactly(system)
    sizes = [_largest(numbers) for numbers in exact]
    for name, size in zip(part.names, sizes, strict=True):
        if not np.all(np.isfinite(size)):
            raise ValueError(
                f"{name} of state {np.argmin(np.isfinite(size))}: not finite even with {DIGITS} digits, "
                "the mass matrix is singular; give every body that moves alone mass and inertia"
            )
    rounded_system = as_dtype(as_dtype(system, jnp.float32), jnp.float64)
    others = computed(jnp.float32), exactly(rounded_system), computed(jnp.float64)
    found = {}
    for name, size, numbers, *results in zip(part.names, sizes, exact, *others, strict=True):
        if size.max() > _VANISHES * sizes[0].max():
            scale = np.maximum(size, np.median(size))
            single, of_model, double = (_largest(result - numbers) / scale for result in results)
            found[name] = Errors(single, of_model, double, numbers.astype(float))
    return found


class Conditioning(NamedTuple):
    """Amplification of rounding errors in the equations of motion M a + h = tau at each state.

    Attributes:
        mass_matrix: Condition number of M with its diagonal scaled to 1, so that it does not depend on units.
        growth: Ratio of the relative error of a to the relative error of the terms of the equations, computed from |M^-1| (|M| |a|
            + |h| + |tau|) for the largest components. Source: Skeel 1979.
    """

    mass_matrix: np.ndarray
    growth: np.ndarray


def conditioning(system: System, inputs: Samples, accelerations: np.ndarray) -> Conditioning:
    """Conditioning at states with known accelerations; h contains all forces except tau, including the constraint forces of
    loops."""
    matrices, tau = np.asarray(_mass_matrices(system, inputs.q)), np.asarray(inputs.tau)
    scale = 1.0 / np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
    scaled = np.linalg.cond(matrices * scale[:, :, None] * scale[:, None, :])

    def times(matrix, vector):
        return np.einsum("kij,kj->ki", matrix, vector)

    h = tau - times(matrices, accelerations)
    terms = times(np.abs(matrices), np.abs(accelerations)) + np.abs(h) + np.abs(tau)
    grown = times(np.abs(np.linalg.inv(matrices)), terms)
    return Conditioning(scaled, grown.max(axis=1) / np.maximum(np.abs(accelerations).max(axis=1), np.finfo(float).tiny))


def _mass_matrices(system: System, q: Float[Array, "states nq"]) -> Float[Array, "states nv nv"]:
    model = system.model.at(jnp.zeros((), q.dtype))
    return compute.batched(lambda q: mass_matrix(model, q))(q)


def _state(inputs: Samples, k: int) -> Samples:
    return Samples(*(x[k] for x in inputs))


def _largest(numbers: np.ndarray) -> np.ndarray:
    """The largest magnitude in each row in double precision; differences have been computed with 50 digits before."""
    return np.abs(numbers).astype(float).max(axis=1)
