"""Stops at the position limits of joints, theory.md (H15).

`Model.limits` contains limits as data without any effect on the motion. `JointLimits` adds a stop at each limit: a one-sided spring
and damper that acts only beyond the limit and never pulls. Robot descriptions state the position of a limit but not its stiffness,
so default values are derived from the mechanism.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute import kernel_function
from jaxdyn.compute.arrays import floating
from jaxdyn.dynamics import kinematics, rotors
from jaxdyn.dynamics.forces import JointForce, Resistance, Scalar
from jaxdyn.dynamics.forces.unilateral import UnilateralForce, stored_energy, unilateral_force
from jaxdyn.dynamics.kinematics import Placements
from jaxdyn.mechanism import configuration, tree
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import DAMPING, POSITION, STIFFNESS, quantity
from jaxdyn.spatial.inertia import SpatialInertia

Columns = Float[Array, "nv"]

_WIDEST = 0.01  # rad or m
_SHARE_OF_RANGE = 0.01


class JointLimits(JointForce):
    """Stops at the position limits of the joints (`Model.limits`): springs and dampers that act only beyond the limits.

    At the depth x beyond a limit, the magnitude of the force is D + sqrt(S^2 + D^2) with the spring force S = k p(x) and the damper
    force D = d p'(x) dx/dt. The effective depth p increases with the third power of x and equals x - width/2 beyond the width, so
    force and damping vanish at the limit. The force always points back to the limit. The magnitude of the force is S at rest and S
    + 2 D in a fast approach, and decreases to zero if the joint returns faster than the spring would push it. With d = 2 sqrt(k I)
    for the inertia I of the joint, a joint that moves farther than the width beyond the limit returns with one seventh of its
    speed, and a slower joint returns with at most one third.

    The spring force S has a potential energy; the remaining part of the force is dissipative. The force is stiff: the default
    integrator evaluates it at the end of the step, for any step length, while explicit integrators require steps well below d/k and
    I/d.

    Attributes:
        stiffness: Stiffness k of the stop; 0 disables the stop of a joint.
        damping: Damping coefficient d of the stop.
        width: Depth at which the stiffness of the stop reaches k.

    Source: theory.md (H15); a damper that vanishes at first contact: Hunt and Crossley 1975.
    """

    conservative: ClassVar[bool] = False
    table_name: ClassVar[str] = "joint_limits"

    stiffness: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(STIFFNESS, minimum=0.0))
    damping: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(DAMPING, minimum=0.0))
    width: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(POSITION, positive=True))

    @staticmethod
    def of(model: Model, *, time_constant: float | Scalar = 0.01) -> "JointLimits":
        """Stops for all joints with limits, with values that are derived from the inertia and the effort limit of each joint.

        T is the time constant, and I is the inertia (armature included) of all bodies that a joint moves, with the joints in the
        middle of their limits. The stiffness is I/T^2, so light and heavy parts stop within a time of about T. If the effort limit
        F of the joint requires a larger stiffness, the stiffness is F/width, so that the drive alone moves its joint at most 1.5
        width beyond the limit. The damping is 2 T times the stiffness, which is critical damping for the stiffness I/T^2. The width
        is 1 % of the range, at most 0.01 rad or m.

        A load Q on a stop of stiffness k holds the joint at the depth Q/k + width/2 beyond the limit if this is at least the width,
        thus for loads from k width/2; smaller loads hold it within the width, at the depth where p(x) = Q/k, which is less than
        Q/k + width/2. Without other loads, and apart from the error of a step, a joint that reaches its limit with the speed u
        moves at most u T/2 + width beyond the limit.

        Args:
            model: Mechanism with limits.
            time_constant: Time constant T (s).
        """
        lower, upper = (along_columns(model, bound) for bound in (model.limits.lower, model.limits.upper))
        limited = jnp.isfinite(lower) | jnp.isfinite(upper)
        width = jnp.where(limited, jnp.minimum(_WIDEST, _SHARE_OF_RANGE * (upper - lower)), 1.0)
        inertia = _composite_inertia(model)
        effort = jnp.where(jnp.isfinite(model.limits.effort), model.limits.effort, 0.0)
        stiffness = jnp.where(limited, jnp.maximum(inertia / time_constant**2, effort / width), 0.0)
        return JointLimits(stiffness, 2.0 * time_constant * stiffness, width)

    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        depth, outward = _beyond(model, q)
        return -outward * self._stop(depth, outward * v).force

    def resistance(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar) -> Resistance | None:
        depth, outward = _beyond(model, q)
        stop = self._stop(depth, outward * v)
        return Resistance(stop.damping, stop.stiffness)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        depth, _ = _beyond(model, q)
        return jnp.sum(stored_energy(depth, self.stiffness, self.width))

    def validate(self, model: Model) -> str | None:
        return super().validate(model) or _error_with_joints(model)

    def _stop(self, depth: Columns, speed: Columns) -> UnilateralForce:
        return unilateral_force(depth, speed, self.stiffness, self.damping, self.width)


@kernel_function
def _composite_inertia(model: Model) -> Columns:
    """Inertia of all bodies that each joint moves, in the middle of the limits, kg m^2 or kg."""
    middle = configuration.random(model, jax.random.key(0), spread=0.0)
    placed = kinematics.placements(model, middle)
    # Not the diagonal of the mass matrix, whose code grows with the square of the number of bodies.
    composite = jax.tree.map(lambda x: tree.sum_over_descendants(model.topology, x), placed.inertia)
    momentum = jax.vmap(SpatialInertia.momentum)(tree.of_columns(model.topology, composite), placed.columns)
    diagonal = jnp.sum(momentum * placed.columns, axis=1) + rotors.reflected_inertia(model)
    return diagonal + jnp.diagonal(rotors.coupling_metric(model, placed)) if model.rotors.count else diagonal


def _beyond(model: Model, q: Float[Array, "nq"]) -> tuple[Columns, Columns]:
    """Depth of each joint beyond its limits (0 within them), and the outward direction (1 or -1, 0 within the limits)."""
    over = along_columns(model, q - model.limits.upper)
    under = along_columns(model, model.limits.lower - q)
    outward = jnp.where(over > 0.0, 1.0, jnp.where(under > 0.0, -1.0, 0.0))
    return jnp.maximum(over, 0.0) + jnp.maximum(under, 0.0), outward


def along_columns(model: Model, x: Float[Array, "nq"]) -> Columns:
    """For each velocity component, the value of the coordinate whose rate it is; minus infinity for components that are not
    rates."""
    topology = model.topology
    body = np.asarray(topology.body_of_column)
    starts = np.asarray(topology.q_starts)[body] - np.asarray(topology.v_starts)[body]
    is_rate = np.array([topology.joint_classes[i].velocity_is_rate for i in body], bool)
    return jnp.where(is_rate, x[starts + np.arange(model.nv)], -jnp.inf)


def _error_with_joints(model: Model) -> str | None:
    """Error message with a remedy if a joint has limits but its velocities are not coordinate rates, else None."""
    topology, limits = model.topology, model.limits
    if isinstance(limits.lower, Tracer) or isinstance(limits.upper, Tracer):
        return None
    limited = np.isfinite(limits.lower) | np.isfinite(limits.upper)
    for i in np.flatnonzero(np.any(np.reshape(limited, (-1, model.nq)), axis=0)):
        body = topology.body_of_coordinate[i]
        if not topology.joint_classes[body].velocity_is_rate:
            kind = topology.joint_classes[body].__name__.lower()
            return (
                f"the {kind} joint {topology.joint_names[body]!r} has limits, but its velocities are not coordinate rates; "
                "replace it with several joints of one degree of freedom, or remove its limits"
            )
    return None
