"""Geodesics of the metric tensor: motions of the mechanism without any force."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics.doors import checked_model
from jaxdyn.dynamics.inverse import refuse_prescribed_motion
from jaxdyn.dynamics.system import State, System
from jaxdyn.mechanism.model import Model
from jaxdyn.simulate.integrators import RungeKutta4
from jaxdyn.simulate.trajectory import Trajectory, rollout


@checked_model
def geodesic(
    model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], *, dt: float | Float[Array, ""], steps: int
) -> Trajectory:
    """Geodesic of the metric of the kinetic energy through q with velocity v.

        dv^delta/dt + L^delta_{alpha beta} v^alpha v^beta = 0

    The geodesic is the motion without gravity and other forces. The kinetic energy along a geodesic, and so the speed in this
    metric, is constant. A geodesic is the shortest path between nearby configurations (Jacobi 1837).

    Args:
        model: The mechanism.
        q: Initial coordinates.
        v: Initial velocities, rad/s or m/s.
        dt: Length of a time step, s.
        steps: Number of time steps.

    Raises:
        ValueError: The model has prescribed motions.

    Source: theory.md (I2) with Q = 0, (G14).
    """
    refuse_prescribed_motion(model, "a geodesic")
    weightless = eqx.tree_at(lambda m: m.gravity, model, jnp.zeros_like(model.gravity))
    return rollout(System(weightless), State(q, v), dt=dt, steps=steps, integrator=RungeKutta4())
