"""jaxdyn's own functions, of one sample, as the benchmarks measure them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from peers.task import Task

import jaxdyn

_LARGEST_FACTORIZED = 7  # bodies; XLA computes longer chains faster by the recursion of linear cost, on CPUs


def function_of(model: jaxdyn.Model, task: Task, backend: jaxdyn.compute.Backend) -> Callable:
    """The function of a task on (q, v, last)."""
    method = "articulated_body" if backend == "xla" and model.nv > _LARGEST_FACTORIZED else "auto"
    system = jaxdyn.System(model)

    def forward_dynamics(q, v, tau):
        return jaxdyn.forward_dynamics(model, q, v, tau, method=method)

    def derivatives(q, v, tau):
        found = jaxdyn.forward_dynamics_derivatives(model, q, v, tau)
        return found.da_dq, found.da_dv

    def placements(q, v, last):
        placed = jaxdyn.forward_kinematics(model, q)
        return placed.translation, placed.quaternion

    def end(q, v, controls):
        state = jaxdyn.State(q, v)
        options = {"dt": task.dt, "steps": task.steps, "save_every": task.steps, "backend": backend}
        final = jaxdyn.rollout(system, state, controls, **options).final
        return final.q, final.v

    def loss(q, v, controls):
        return jnp.sum(end(q, v, controls)[0] ** 2)

    return {
        "forward dynamics": forward_dynamics,
        "inverse dynamics": lambda q, v, a: jaxdyn.inverse_dynamics(model, q, v, a),
        "forward kinematics": placements,
        "mass matrix": lambda q, v, last: jaxdyn.mass_matrix(model, q),
        "Coriolis matrix": lambda q, v, last: jaxdyn.coriolis_matrix(model, q, v),
        "Christoffel symbols": lambda q, v, last: jaxdyn.christoffel_first_kind(model, q),
        "derivatives of forward dynamics": derivatives,
        "rollout": end,
        "rollout gradient": jax.value_and_grad(loss, (0, 1, 2)),
    }[task.function]
