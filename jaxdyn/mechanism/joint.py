"""Base class of joints; the joints that jaxdyn provides are in the module `joints`.

A joint connects a parent body to a child body. It has coordinates q (nq components, on the manifold of the joint) and velocities v
(nv components). v contains the components of the twist of the child relative to the parent along the columns of `motion_subspace`,
on **child axes** at the child origin, angular part first. nq and nv may differ.

Users can define a new kind of joint as a final subclass of `Joint`, without changes in jaxdyn.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, on_device
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.transform import RigidTransform

Scalar = Float[Array, ""]


class Joint(eqx.Module):
    """One joint. In a `Model`, all joints of the same structure are stacked along a leading axis of every field.

    The abstract methods define the joint. The defaults of all other methods follow from the abstract methods; they assume that the
    motion subspace is constant and that the motion is not prescribed. A subclass overrides a default if its assumption is false, or
    if a closed form exists.

    Class attributes:
        nq: Number of coordinates.
        nv: Number of velocities.
        velocity_is_rate: True if v = dq/dt, so that the textbook Christoffel symbols apply.
        kind: Name of the kind in mechanism files; None if files cannot contain it.
        turns: Tuple with an entry per velocity component: True if it rotates the child (rad/s), False if it only translates it
            (m/s). If None, the entries are determined from the motion subspace at the neutral coordinates.
        coordinate_units: Unit "rad", "m" or "1" of each coordinate; None if these are the units of the velocities times s.
        coordinate_labels, velocity_labels: Names of the components, such as "x", in tables and plots of motion; indices if empty.
    """

    nq: eqx.AbstractClassVar[int]
    nv: eqx.AbstractClassVar[int]
    velocity_is_rate: eqx.AbstractClassVar[bool]
    kind: ClassVar[str | None] = None
    turns: ClassVar[tuple[bool, ...] | None] = None
    coordinate_units: ClassVar[tuple[str, ...] | None] = None
    coordinate_labels: ClassVar[tuple[str, ...]] = ()
    velocity_labels: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def transform(self, q: Float[Array, "nq"]) -> RigidTransform:
        """Placement of the child frame in the joint frame, which is fixed in the parent."""

    @abc.abstractmethod
    def motion_subspace(self, q: Float[Array, "nq"]) -> Float[Array, "6 nv"]:
        """Columns of the relative twist, on child axes at the child origin, angular part first."""

    @abc.abstractmethod
    def integrate(self, q: Float[Array, "nq"], step: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Coordinates after a motion for unit time with the constant velocity `step`."""

    def advance(
        self, q: Float[Array, "nq"], v: Float[Array, "nv"], a: Float[Array, "nv"], dt: Scalar
    ) -> tuple[Float[Array, "nq"], Float[Array, "nv"]]:
        """Coordinates and velocities after a semi-implicit Euler step of length dt (s) with the accelerations a.

        A joint whose linear velocity has components on rotating axes overrides this method, so that the axes rotate exactly. Then
        the linear momentum of a free body is constant.

        Source: theory.md (I13).
        """
        later = v + dt * a
        return self.integrate(q, dt * later), later

    @abc.abstractmethod
    def difference(self, q0: Float[Array, "nq"], q1: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """Step from q0 to q1: integrate(q0, step) = q1."""

    @abc.abstractmethod
    def neutral(self) -> Float[Array | np.ndarray, "nq"]:
        """Coordinates at which the child frame coincides with the joint frame."""

    def normalize(self, q: Float[Array, "nq"]) -> Float[Array, "nq"]:
        """Normalize the quaternions in the coordinates; the placement of the child does not change."""
        return q

    def coordinate_rate(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Coordinate rates dq/dt at the velocities v (the q-rate map)."""
        return (
            v if self.velocity_is_rate else jax.jvp(lambda step: self.integrate(q, step), (jnp.zeros_like(v),), (v,))[1]
        )

    def velocity_of_rate(self, q: Float[Array, "nq"], rate: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """Velocity at which dq/dt = rate. A component of `rate` normal to the manifold, such as a change of norm, is ignored."""
        return rate if self.velocity_is_rate else jax.jvp(lambda end: self.difference(q, end), (q,), (rate,))[1]

    def structure_coefficients(self, q: Float[Array, "nq"]) -> Float[Array, "nv nv nv"]:
        """Structure coefficients k[alpha, beta, delta] of the Lie brackets [X_alpha, X_beta] = k^delta X_delta of velocities.

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
        """The acceleration dS/dt v that a changing motion subspace S causes, on child axes; zero if S is constant."""
        return jnp.zeros(6, v.dtype)

    def at(self, t: Scalar) -> "Joint":
        """The joint (or stack of joints) at time t (s); only joints with prescribed motion depend on time."""
        return self

    def later(self, duration: Scalar) -> "Joint":
        """The joint (or stack of joints) after a duration (s); only joints with prescribed motion depend on time."""
        return self

    def drift(self, q: Float[Array, "nq"]) -> Float[Array, "6"]:
        """Twist of the child relative to the parent that prescribed motion causes at v = 0, on child axes."""
        return jnp.zeros(6, q.dtype)

    def drift_rate(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "6"]:
        """Time derivative of `drift` on child axes."""
        return jnp.zeros(6, q.dtype)

    def driven_columns(self, q: Float[Array, "nq"]) -> Float[Array, "6 _"]:
        """Columns of the relative twist, on child axes, along which the motion is prescribed."""
        return jnp.zeros((6, 0), q.dtype)

    def drive_columns(self, q: Float[Array, "nq"]) -> Float[Array, "6 nv"]:
        """Wrench (moment; force) of a drive in the joint per unit of each generalized force, on child axes at the child origin.

        The result is the matrix D with S' D = 1 whose columns are in the span of the columns of the motion subspace S.
        """
        s = self.motion_subspace(q)
        # Most joints have at most one column, which needs no solution of equations.
        return factorizations.solve(dot(s.T, s), s.T).T if self.nv > 1 else s / jnp.sum(s * s)

    def released(self) -> "Joint":
        """The joint without prescribed motion."""
        return self

    def prescribed(self) -> "tuple[Array, Array, Array] | None":
        """Coordinates, velocities and accelerations of the joint `released()` at this time; None without prescribed motion."""
        return None

    def reversed(self) -> "Joint | None":
        """The joint with parent and child exchanged; None if this kind of joint does not support it."""
        return None

    def reversed_coordinates(self, q: Float[Array, "nq"]) -> Float[Array, "nq"]:
        """Coordinates at which the joint `reversed()` has the same relative placement of parent and child as this joint at q.

        If velocities are coordinate rates, this method must only permute the coordinates, because limits and armature are permuted
        in the same way.
        """
        return q

    def primitives(self) -> "tuple[Joint, ...]":
        """Equivalent chain of joints with one degree of freedom each, without mass between them."""
        return (self,)

    def from_primitives(self, c: Float[Array, "nv"]) -> Float[Array, "nq"]:
        """Convert coordinates c of the primitives to coordinates of the joint with the same placement of the child."""
        return c

    def to_primitives(self, q: Float[Array, "nq"]) -> Float[Array, "nv"]:
        """Convert coordinates of the joint to coordinates of the primitives; undefined where the primitives are singular."""
        return q

    def validate(self) -> str | None:
        """Error message with a remedy if a value of this joint is invalid, else None. The builder calls this method once."""
        return None


def stack(joints: list[Joint]) -> Joint:
    """Stack joints of the same structure to one joint object whose fields have a leading axis over the joints."""

    def stacked(*leaves: Any) -> Array:
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return jnp.stack([jnp.asarray(leaf) for leaf in leaves])
        return on_device(np.stack([np.asarray(leaf) for leaf in leaves]))

    return jax.tree.map(stacked, *joints)


def groups(joints: list[Joint]) -> tuple[int, ...]:
    """Index of the stack of each joint; joints of equal class, structure and shapes share a stack."""
    found: list = []
    indices = []
    for joint in joints:
        leaves, structure = jax.tree.flatten(joint)
        signature = (structure, tuple(jnp.shape(leaf) for leaf in leaves))
        if signature not in found:
            found.append(signature)
        indices.append(found.index(signature))
    return tuple(indices)
