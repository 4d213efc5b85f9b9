"""The protocol of a joint; the kinds that come with jaxdyn are in `joints`.

A joint connects a parent body to a child body. It owns coordinates q (nq numbers, on the joint's own manifold) and velocities v (nv
numbers): v holds the components of the twist of the child relative to the parent along the columns of `motion_subspace`,
in **child axes** at the child origin, angular part first. nq and nv may differ.

A new kind of joint is a final subclass of `Joint` in any file, user code included; nothing else in jaxdyn has to change.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import dot
from jaxdyn.spatial.transform import RigidTransform

Scalar = Float[Array, ""]


class Joint(eqx.Module):
    """One joint; in a `Model`, all joints of equal structure stacked along a leading axis of every field.

    The abstract methods are the protocol. The others have defaults that follow from these; a kind overrides them where it has a
    closed form, or where the default, a constant motion subspace or no motion of its own, does not hold.

    Class attributes:
        nq: Number of coordinates.
        nv: Number of velocities.
        velocity_is_rate: True if v = dq/dt, so that the textbook Christoffel symbols apply.
        kind: Name of the kind in mechanism files; None if files have none.
        turns: For each velocity component, whether it turns the child (rad/s) or only shifts it (m/s); if it is None, the motion
            subspace at the neutral coordinates decides.
        coordinate_units: "rad", "m" or "1" for each coordinate; None where these are the units of the velocities times s.
    """

    nq: eqx.AbstractClassVar[int]
    nv: eqx.AbstractClassVar[int]
    velocity_is_rate: eqx.AbstractClassVar[bool]
    kind: ClassVar[str | None] = None
    turns: ClassVar[tuple[bool, ...] | None] = None
    coordinate_units: ClassVar[tuple[str, ...] | None] = None

    @abc.abstractmethod
    def transform(self, q: Float[Array, "nq"]) -> RigidTransform:
        """Placement of the child frame in the joint frame, which is fixed in the parent."""

    @abc.abstractmethod
    def motion_subspace(self, q: Float[Array, "nq"]) -> Float[Array, "6 nv"]:
        """Columns of the relative twist, in child axes at the child origin, angular part first."""

    @abc.abstractmethod
    def integrate(self, q: Float[Array, "nq"], step: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Coordinates after moving for unit time with the constant velocity `step`."""

    @abc.abstractmethod
    def difference(self, q0: Float[Array, "nq"], q1: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """The step with integrate(q0, step) = q1."""

    @abc.abstractmethod
    def neutral(self) -> Float[Array | np.ndarray, "nq"]:
        """Coordinates at which the child frame coincides with the joint frame."""

    def normalize(self, q: Float[Array, "nq"]) -> Float[Array, "nq"]:
        """The same placement in coordinates of standard size: unit quaternions."""
        return q

    def coordinate_rate(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """dq/dt at velocity v (the q-rate map)."""
        return (
            v if self.velocity_is_rate else jax.jvp(lambda step: self.integrate(q, step), (jnp.zeros_like(v),), (v,))[1]
        )

    def velocity_of_rate(self, q: Float[Array, "nq"], rate: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """Velocity at which dq/dt = rate; the part of `rate` that leaves the manifold, such as a change of norm, is ignored."""
        return rate if self.velocity_is_rate else jax.jvp(lambda end: self.difference(q, end), (q,), (rate,))[1]

    def structure_coefficients(self, q: Float[Array, "nq"]) -> Float[Array, "nv nv nv"]:
        """k[alpha, beta, delta] of the brackets [X_alpha, X_beta] = k^delta X_delta of the velocity directions X_alpha.

        Source: theory.md (D3).
        """
        n = self.nv
        if self.velocity_is_rate:
            return jnp.zeros((n, n, n), q.dtype)
        unit = jnp.eye(n, dtype=q.dtype)
        field = jax.vmap(self.coordinate_rate, (None, 0))
        changes = jax.vmap(lambda rate: jax.jvp(lambda at: field(at, unit), (q,), (rate,))[1])(field(q, unit))
        bracket = changes - changes.swapaxes(0, 1)  # [a, b]: change of X_b along X_a minus that of X_a along X_b
        return jax.vmap(jax.vmap(self.velocity_of_rate, (None, 0)), (None, 0))(q, bracket)

    def subspace_rate(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "6"]:
        """dS/dt v in child axes, S the motion subspace: zero whenever S is constant."""
        return jnp.zeros(6, v.dtype)

    def at(self, t: Scalar) -> "Joint":
        """The joint (or stack of joints) at time t; only prescribed motions depend on it."""
        return self

    def later(self, duration: Scalar) -> "Joint":
        """The joint (or stack of joints) a time later."""
        return self

    def drift(self, q: Float[Array, "nq"]) -> Float[Array, "6"]:
        """Twist of the child relative to the parent at v = 0, in child axes: the part that belongs to time."""
        return jnp.zeros(6, q.dtype)

    def drift_rate(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "6"]:
        """Time derivative of `drift` in child axes."""
        return jnp.zeros(6, q.dtype)

    def driven_columns(self, q: Float[Array, "nq"]) -> Float[Array, "6 _"]:
        """Columns of the relative twist, in child axes, along which the motion is prescribed."""
        return jnp.zeros((6, 0), q.dtype)

    def drive_columns(self, q: Float[Array, "nq"]) -> Float[Array, "6 nv"]:
        """(moment; force) that a drive in the joint exerts per unit of each generalized force, in child axes at the child origin:
        the columns D with S' D = 1 that lie in the motion subspace S.
        """
        s = self.motion_subspace(q)
        # Most joints have one column or none, for which there is nothing to solve.
        return factorizations.solve(dot(s.T, s), s.T).T if self.nv > 1 else s / jnp.sum(s * s)

    def released(self) -> "Joint":
        """The joint with its prescribed motion made free."""
        return self

    def prescribed(self) -> "tuple[Array, Array, Array] | None":
        """Coordinates, velocities and accelerations that `released` has at this time, or None if the joint prescribes none."""
        return None

    def reversed(self) -> "Joint | None":
        """The joint with parent and child exchanged, at every motion; None if this kind has no such joint."""
        return None

    def reversed_coordinates(self, q: Float[Array, "nq"]) -> Float[Array, "nq"]:
        """Coordinates of `reversed` where it places the parent in the child as this joint places the child in the parent at q.

        Where velocities are rates it may change the order of the numbers and nothing else, so that limits and armature go along.
        """
        return q

    def to_chart(self, q: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """As many numbers as there are velocities, free to take any value, for one configuration."""
        return q

    def from_chart(self, y: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Coordinates of the numbers of `to_chart`."""
        return y

    def primitives(self) -> "tuple[Joint, ...]":
        """Joints of one degree of freedom that, one after the other without mass between them, do the same."""
        return (self,)

    def from_primitives(self, c: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Coordinates at which the joint places its child as its primitives do at their coordinates c."""
        return c

    def to_primitives(self, q: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """Coordinates of the primitives; undefined where these are singular."""
        return q

    def validate(self) -> str | None:
        """What is wrong with the values of this joint and how to mend it, or None. Called once, by the builder."""
        return None


def stack(joints: list[Joint]) -> Joint:
    """One joint object whose every field has a leading axis over `joints`, all of one structure."""
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *joints)


def groups(joints: list[Joint]) -> tuple[int, ...]:
    """For each joint, the number of the stack that it belongs to: joints of equal class, structure and shapes share one."""
    found: list = []
    numbers = []
    for joint in joints:
        leaves, structure = jax.tree.flatten(joint)
        signature = (structure, tuple(jnp.shape(leaf) for leaf in leaves))
        if signature not in found:
            found.append(signature)
        numbers.append(found.index(signature))
    return tuple(numbers)
