"""Predefined constraints: bounds of states, target states, and controls that do no work."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.control.cost_terms import ConstraintTerm, multibody
from jaxdyn.control.problem import STATE_FIELD, AnyState, Controls, Dynamics, Inequality, MultibodyDynamics, Time
from jaxdyn.dynamics.equations_of_motion import drive_forces
from jaxdyn.dynamics.system import State
from jaxdyn.mechanism.quantity import plain, quantity


class StateBounds(ConstraintTerm):
    """Bounds lower <= d <= upper of a state, such as joint angles and velocities; infinite bounds are left out.

    The vector d is difference(origin, x) in tangent coordinates. Without an origin, it consists of the coordinates of the state x
    themselves, which are (q, v, z) for a mechanism. `Inequality(StateBounds(origin, lower, upper, nx=nx))` is the constraint.

    Attributes:
        origin: State from which d is measured, or None.
        lower: Lower bounds of d; the constraint is differentiable with respect to finite bounds.
        upper: Upper bounds of d; the constraint is differentiable with respect to finite bounds.
        nx: The length of d.
        below: Indices of finite lower bounds.
        above: Indices of finite upper bounds.
    """

    kind: ClassVar[str] = "state_bounds"
    relation = Inequality

    origin: AnyState | None = eqx.field(metadata=STATE_FIELD)
    lower: Float[Array, "nx"]
    upper: Float[Array, "nx"]
    nx: int = eqx.field(static=True, converter=plain, metadata=quantity(minimum=1.0))
    below: tuple[int, ...] = eqx.field(static=True, init=False)
    above: tuple[int, ...] = eqx.field(static=True, init=False)

    def __init__(self, origin: AnyState | None, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf, *, nx: int):
        self.origin, self.nx = jax.tree.map(floating, origin), nx
        leaves = jax.tree.leaves(self.origin)
        dtype = leaves[0].dtype if leaves else jnp.result_type(float, floating(lower), floating(upper))
        self.lower, self.upper = (jnp.broadcast_to(jnp.asarray(bound, dtype), (nx,)) for bound in (lower, upper))
        self.below, self.above = (
            tuple(np.flatnonzero(np.isfinite(np.broadcast_to(bound, (nx,)))).tolist()) for bound in (lower, upper)
        )

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, "bounds"]:
        if isinstance(x, State) and x.z is not None and isinstance(self.origin, State) and self.origin.z is None:
            raise ValueError("StateBounds: its origin has no states z of the drives; give State(q, v, z)")
        off = jnp.concatenate(jax.tree.leaves(x)) if self.origin is None else dynamics.difference(self.origin, x)
        below, above = np.array(self.below, int), np.array(self.above, int)
        return jnp.concatenate([(self.lower - off)[below], (off - self.upper)[above]])


class TargetState(ConstraintTerm):
    """Constraint difference(target, x) = 0: the configuration, the velocities or both equal those of a target state.

    States of drives are constrained with the velocities if the target has them.

    Attributes:
        target: State to reach.
        of_configuration: If true, the configuration is constrained.
        of_velocities: If true, the velocities are constrained.
    """

    kind: ClassVar[str] = "state"

    target: AnyState = eqx.field(metadata=STATE_FIELD)
    of_configuration: bool = eqx.field(static=True, converter=plain, kw_only=True, default=True)
    of_velocities: bool = eqx.field(static=True, converter=plain, kw_only=True, default=True)

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, "m"]:
        nz = dynamics.system.nz if isinstance(dynamics, MultibodyDynamics) else 0
        half = (dynamics.nx - nz) // 2
        end = 2 * half if nz and self.target.z is None else dynamics.nx
        first, last = 0 if self.of_configuration else half, end if self.of_velocities else half
        return dynamics.difference(self.target, x)[first:last]


class Workless(ConstraintTerm):
    """Constraint that the controls do no work: their power (W) is zero at all times.

    Motions of minimum time under this constraint are brachistochrones: geodesics of the metric M / (E - V), with mass matrix M,
    potential energy V and constant total energy E.
    """

    kind: ClassVar[str] = "workless"

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, "1"]:
        return dot(drive_forces(multibody(dynamics, self).system, x, u), x.v)[None]
