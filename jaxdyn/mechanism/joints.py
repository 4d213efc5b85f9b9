"""Joint kinds. This is the only file that knows them.

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

from jaxdyn.spatial import quaternion
from jaxdyn.spatial.arrays import dot, floating
from jaxdyn.spatial.transform import RigidTransform

_AXIS_TOLERANCE = 1e-6


class Joint(eqx.Module):
    """One joint; in a `Model`, all joints of one class stacked along a leading axis of every field.

    Class attributes:
        nq: number of coordinates.
        nv: number of velocities.
        velocity_is_rate: True if v = dq/dt and the columns commute, so that the textbook Christoffel symbols apply.
    """

    nq: eqx.AbstractClassVar[int]
    nv: eqx.AbstractClassVar[int]
    velocity_is_rate: eqx.AbstractClassVar[bool]

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
    def neutral(self) -> Float[Array, "nq"]:
        """Coordinates at which the child frame coincides with the joint frame."""

    def subspace_rate(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "6"]:
        """dS/dt v in child axes, S the motion subspace: zero whenever S is constant, as it is for every built-in kind."""
        return jnp.zeros(6, v.dtype)

    def problem(self) -> str | None:
        """What is wrong with the numbers of this joint and how to mend it, or None. Called once, by the builder."""
        return None


class _Axial(Joint):
    """A joint with one coordinate along or about an axis."""

    axis: eqx.AbstractVar[Float[Array, "*batch 3"]]

    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1
    velocity_is_rate: ClassVar[bool] = True

    @property
    def direction(self) -> Float[Array, "3"]:
        """The axis divided by its norm: like a quaternion, an axis that an optimizer has stretched still means a direction."""
        return self.axis / jnp.sqrt(dot(self.axis, self.axis))

    def integrate(self, q: Float[Array, "1"], step: Float[Array, "1"]) -> Float[Array, "1"]:
        return q + step

    def difference(self, q0: Float[Array, "1"], q1: Float[Array, "1"]) -> Float[Array, "1"]:
        return q1 - q0

    def neutral(self) -> Float[Array, "1"]:
        return jnp.zeros_like(self.axis[:1])

    def problem(self) -> str | None:
        axis = np.asarray(self.axis, np.float64)
        if axis.shape != (3,) or not np.all(np.isfinite(axis)):
            return f"its axis is {axis.tolist()}; give three finite numbers"
        norm = float(np.linalg.norm(axis))
        if norm == 0.0:
            return "its axis is zero; give a unit vector such as (0, 0, 1)"
        if abs(norm - 1.0) > _AXIS_TOLERANCE:
            unit = tuple(round(float(x), 9) for x in axis / norm)
            return f"its axis has length {norm:.6g}; give the unit vector {unit}"
        return None


class Revolute(_Axial):
    """Rotation about an axis (synonym: hinge). q: angle, rad, unbounded. v: its rate, rad/s. Source: theory.md (A7), (E1).

    Attributes:
        axis: unit vector e, the same components on joint and child axes.
    """

    axis: Float[Array, "*batch 3"] = eqx.field(converter=floating)

    def transform(self, q: Float[Array, "1"]) -> RigidTransform:
        return RigidTransform(quaternion.from_axis_angle(self.direction, q[0]), jnp.zeros_like(self.axis))  # (A7)

    def motion_subspace(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        return jnp.concatenate([self.direction, jnp.zeros_like(self.axis)])[:, None]


class Prismatic(_Axial):
    """Translation along an axis (synonym: slider). q: displacement, m. v: its rate, m/s. Source: theory.md (A7), (E2).

    Attributes:
        axis: unit vector e, the same components on joint and child axes.
    """

    axis: Float[Array, "*batch 3"] = eqx.field(converter=floating)

    def transform(self, q: Float[Array, "1"]) -> RigidTransform:
        return RigidTransform(quaternion.identity(self.axis.dtype), q[0] * self.direction)  # (E2)

    def motion_subspace(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        return jnp.concatenate([jnp.zeros_like(self.axis), self.direction])[:, None]


class Fixed(Joint):
    """No relative motion. The builder merges the child into the parent, mass kept; no model holds a fixed joint."""

    nq: ClassVar[int] = 0
    nv: ClassVar[int] = 0
    velocity_is_rate: ClassVar[bool] = True

    def transform(self, q: Float[Array, "0"]) -> RigidTransform:
        return RigidTransform.identity(q.dtype)

    def motion_subspace(self, q: Float[Array, "0"]) -> Float[Array, "6 0"]:
        return jnp.zeros((6, 0), q.dtype)

    def integrate(self, q: Float[Array, "0"], step: Float[Array, "0"]) -> Float[Array, "0"]:
        return q

    def difference(self, q0: Float[Array, "0"], q1: Float[Array, "0"]) -> Float[Array, "0"]:
        return q1

    def neutral(self) -> Float[Array, "0"]:
        return jnp.zeros(0)


def joint_of_kind(kind: str, axis=None) -> Joint:
    """Joint of the kind named in a file: "revolute", "prismatic" (these need a unit `axis`) or "fixed".

    Raises:
        ValueError: unknown kind, or an axis missing or given in vain.
    """
    axial: dict[str, type[_Axial]] = {"revolute": Revolute, "prismatic": Prismatic}
    if kind == "fixed":
        if axis is not None:
            raise ValueError("a fixed joint has no axis; remove it")
        return Fixed()
    if kind not in axial:
        raise ValueError(f"unknown joint kind {kind!r}; use one of {', '.join([*axial, 'fixed'])}")
    if axis is None:
        raise ValueError(f"a {kind} joint needs an axis; give a unit vector such as (0, 0, 1)")
    return axial[kind](axis)


def stack(joints: list[Joint]) -> Joint:
    """One joint object whose every field has a leading axis over `joints`, all of one class."""
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *joints)
