"""Conversion of states to the order and the conventions of Pinocchio and MuJoCo, for a mechanism that exists in both libraries.

    order = MujocoOrder(model, mj_model)
    data.qpos, data.qvel = order.q_to(q), order.v_to(q, v)
    a = order.a_from(q, v, jnp.asarray(data.qacc))

Joints are matched by their names; joints without a name are called "joint 0", "joint 1", ... as in `load_mjcf`. Both models must
have the same joint frames. Neither Pinocchio nor MuJoCo is imported: any object with the attributes of their models can be used.
The conventions differ as follows; jaxdyn's own velocities have the angular part first and are given in child axes:

    joint         Pinocchio                                     MuJoCo
    revolute      q; continuous joints: cos q, sin q            q + the reference angle of the file
    spherical     quaternion (x, y, z, w)                       quaternion (w, x, y, z)
    planar        x, y, cos, sin; v = linear, angular           -
    free          position, (x, y, z, w); v = linear, angular   only on the world: position and orientation in the world;
                                                                v = linear in world axes, angular in body axes
"""

import abc
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import floating
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Free, Planar, Prismatic, Revolute, Screw, Spherical, Universal
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform

Coordinates = Float[Array, "nq"]
Velocities = Float[Array, "nv"]
Theirs = Float[Array, "_"]
_Range = tuple[int, int]
_Q, _V, _THEIR_Q, _THEIR_V = range(4)  # ranges of a joint, see `StateOrder.places`


class _Change(eqx.Module):
    """Conversion of one joint to and from the other library; the maps of velocities are linear in the velocities."""

    @abc.abstractmethod
    def q_to(self, q: Array) -> Array: ...

    @abc.abstractmethod
    def q_from(self, theirs: Array) -> Array: ...

    def v_to(self, q: Array, v: Array) -> Array:
        return v

    def v_from(self, q: Array, theirs: Array) -> Array:
        return theirs


class _Same(_Change):
    """Conversion of a coordinate with an offset: zero in jaxdyn corresponds to `reference` in the other library."""

    reference: Array = eqx.field(converter=floating)

    def q_to(self, q: Array) -> Array:
        return q + self.reference.astype(q.dtype)

    def q_from(self, theirs: Array) -> Array:
        return theirs - self.reference.astype(theirs.dtype)


class _Circle(_Change):
    """Conversion of an angle to cosine and sine, and back to an angle between -pi and pi."""

    def q_to(self, q: Array) -> Array:
        return jnp.concatenate([jnp.cos(q), jnp.sin(q)])

    def q_from(self, theirs: Array) -> Array:
        return jnp.arctan2(theirs[1:], theirs[:1])


class _Ball(_Change):
    """Conversion to a quaternion of norm 1 with the scalar part last or first, and back."""

    scalar_last: bool = eqx.field(static=True)

    def q_to(self, q: Array) -> Array:
        return jnp.roll(quaternion.normalize(q), -1 if self.scalar_last else 0)

    def q_from(self, theirs: Array) -> Array:
        return jnp.roll(theirs, 1 if self.scalar_last else 0)


class _Placed(_Change):
    """Conversion of a joint whose linear coordinates come first in both libraries, and whose angular velocities come last in the
    other one.
    """

    linear: int = eqx.field(static=True)
    orientation: _Change

    def q_to(self, q: Array) -> Array:
        return jnp.concatenate([q[: self.linear], self.orientation.q_to(q[self.linear :])])

    def q_from(self, theirs: Array) -> Array:
        return jnp.concatenate([theirs[: self.linear], self.orientation.q_from(theirs[self.linear :])])

    def v_to(self, q: Array, v: Array) -> Array:
        return jnp.roll(v, self.linear)

    def v_from(self, q: Array, theirs: Array) -> Array:
        return jnp.roll(theirs, -self.linear)


class _FreeOfMujoco(_Change):
    """Conversion of a free joint to its placement in the world, with the velocity of the origin on world axes."""

    joint_frame: RigidTransform

    def _placed(self, q: Array) -> RigidTransform:
        return self.joint_frame.compose(RigidTransform(q[3:], q[:3]))

    def q_to(self, q: Array) -> Array:
        placed = self._placed(q)
        return jnp.concatenate([placed.translation, quaternion.normalize(placed.quaternion)])

    def q_from(self, theirs: Array) -> Array:
        placed = self.joint_frame.inverse().compose(RigidTransform(theirs[3:], theirs[:3]))
        return jnp.concatenate([placed.translation, placed.quaternion])

    def v_to(self, q: Array, v: Array) -> Array:
        return jnp.concatenate([quaternion.rotate(self._placed(q).quaternion, v[3:]), v[:3]])

    def v_from(self, q: Array, theirs: Array) -> Array:
        back = quaternion.inverse(self._placed(q).quaternion)
        return jnp.concatenate([theirs[3:], quaternion.rotate(back, theirs[:3])])


class StateOrder(eqx.Module):
    """Conversion of states of a mechanism to and from the conventions of another library.

    All arguments q and v are in the conventions of jaxdyn. The functions convert one sample; use `jax.vmap` for batches.

    Attributes:
        model: The mechanism in jaxdyn.
        changes: Conversions of coordinates and velocities, one for each moving joint.
        places: Ranges of the coordinates and the velocities of each moving joint in both libraries: (q and v in jaxdyn, then q and
            v in the other library).
        sizes: Number of coordinates and number of velocities in the other library.
    """

    model: Model
    changes: tuple[_Change, ...]
    places: tuple[tuple[_Range, ...], ...] = eqx.field(static=True)
    sizes: tuple[int, int] = eqx.field(static=True)

    def q_to(self, q: Coordinates) -> Theirs:
        """Coordinates in the other library; quaternions have norm 1."""
        configuration.check_coordinates(self.model, q)
        return self._joined(_THEIR_Q, lambda change, at: change.q_to(q[at[_Q]]))

    def q_from(self, theirs: Theirs) -> Coordinates:
        """Coordinates in jaxdyn; angles that the other library stores as cosine and sine are between -pi and pi."""
        self._check(theirs, self.sizes[0], "coordinates")
        return self._joined(_Q, lambda change, at: change.q_from(theirs[at[_THEIR_Q]]))

    def v_to(self, q: Coordinates, v: Velocities) -> Theirs:
        """Velocities in the other library."""
        configuration.check_coordinates(self.model, q)
        configuration.check_velocities(self.model, v=v)
        return self._joined(_THEIR_V, lambda change, at: change.v_to(q[at[_Q]], v[at[_V]]))

    def v_from(self, q: Coordinates, theirs: Theirs) -> Velocities:
        """Velocities in jaxdyn."""
        configuration.check_coordinates(self.model, q)
        self._check(theirs, self.sizes[1], "velocities")
        return self._joined(_V, lambda change, at: change.v_from(q[at[_Q]], theirs[at[_THEIR_V]]))

    def a_to(self, q: Coordinates, v: Velocities, a: Velocities) -> Theirs:
        """Accelerations in the other library: the rates of its velocities, which contain a term w x v if their axes rotate."""
        rate = configuration.coordinate_rate(self.model, q, v)
        return jax.jvp(self.v_to, (q, v), (rate, a))[1]

    def a_from(self, q: Coordinates, v: Velocities, theirs: Theirs) -> Velocities:
        """Accelerations in jaxdyn."""
        rate = configuration.coordinate_rate(self.model, q, v)
        return jax.jvp(self.v_from, (q, self.v_to(q, v)), (rate, theirs))[1]

    def tau_to(self, q: Coordinates, tau: Velocities) -> Theirs:
        """Generalized forces in the other library, which have the same power."""
        velocities = jax.ShapeDtypeStruct((self.sizes[1],), tau.dtype)
        return jax.linear_transpose(functools.partial(self.v_from, q), velocities)(tau)[0]

    def tau_from(self, q: Coordinates, theirs: Theirs) -> Velocities:
        """Generalized forces in jaxdyn, which have the same power."""
        velocities = jax.ShapeDtypeStruct((self.model.nv,), theirs.dtype)
        return jax.linear_transpose(functools.partial(self.v_to, q), velocities)(theirs)[0]

    def _joined(self, place: int, convert: Callable[[_Change, list[slice]], Array]) -> Array:
        """Convert the values of all joints, in the order that one of the ranges of `places` gives.

        Args:
            place: Position of this range in the entries of `places`.
            convert: Function of the conversion of a joint and of its ranges.
        """
        joints = sorted(zip(self.changes, self.places, strict=True), key=lambda joint: joint[1][place])
        return jnp.concatenate([convert(change, [slice(*one) for one in places]) for change, places in joints])

    def _check(self, theirs: Array, count: int, what: str) -> None:
        if theirs.shape != (count,):
            raise ValueError(
                f"the {what} have shape {theirs.shape}, but the other model of {self.model.name!r} has {count}: "
                f"give shape ({count},); for a batch, use jax.vmap"
            )


class PinocchioOrder(StateOrder):
    """Conversion to and from the conventions of a Pinocchio model (`pinocchio.Model`), see `StateOrder`.

    Raises:
        MechanismError: The models have different joints, or a joint has no counterpart (composite and mimic joints).
    """

    def __init__(self, model: Model, pin_model: Any):
        theirs = {pin_model.names[i]: pin_model.joints[i] for i in range(1, pin_model.njoints)}
        joints = []
        for body, other in _matched(model, theirs, "Pinocchio"):
            kind, name = model.topology.joint_classes[body], other.shortname()
            change = _change_of_pinocchio(kind, name, other.nq)
            joints.append(_joint(model, body, change, name, (other.idx_q, other.nq), (other.idx_v, other.nv)))
        self.model, self.sizes = model, (pin_model.nq, pin_model.nv)
        self.changes, self.places = zip(*joints, strict=True)


class MujocoOrder(StateOrder):
    """Conversion to and from the conventions of a MuJoCo model (`mujoco.MjModel`), see `StateOrder`.

    A MuJoCo body with several joints corresponds to one body per joint in jaxdyn.

    Raises:
        MechanismError: The models have different joints, or a joint has no counterpart.
    """

    def __init__(self, model: Model, mj_model: Any):
        theirs = {mj_model.joint(i).name or f"joint {i}": mj_model.joint(i) for i in range(mj_model.njnt)}
        joints = []
        for body, other in _matched(model, theirs, "MuJoCo"):
            ours, kind, at = model.topology.joint_classes[body], int(other.type[0]), int(other.qposadr[0])
            change = _change_of_mujoco(model, body, kind, mj_model.qpos0[at : at + 1])
            name = ("free joint", "ball", "slide", "hinge")[kind]
            joints.append(_joint(model, body, change, name, (at, ours.nq), (int(other.dofadr[0]), ours.nv)))
        self.model, self.sizes = model, (int(mj_model.nq), int(mj_model.nv))
        self.changes, self.places = zip(*joints, strict=True)


def _matched(model: Model, theirs: Mapping[str, Any], library: str) -> list[tuple[int, Any]]:
    """Match each moving body with the joint of the same name in the other library.

    The names of the free joint of a base may differ, because each library has its own, as "root_joint" in Pinocchio.
    """
    topology = model.topology
    moving = [i for i, kind in enumerate(topology.joint_classes) if kind.nv]
    names = {i: topology.joint_names[i] for i in moving}
    unmatched = [i for i in moving if names[i] not in theirs]
    left = [name for name in theirs if name not in names.values()]
    if len(left) == 1 and [(topology.joint_classes[i], topology.parents[i]) for i in unmatched] == [(Free, GROUND)]:
        names[unmatched[0]] = left[0]
    ours = list(names.values())
    missing, surplus = [n for n in ours if n not in theirs], [n for n in theirs if n not in ours]
    problems = [f"it does not have joint {', '.join(missing)}"] * bool(missing)
    problems += [f"its joint {', '.join(surplus)} is not in {model.name!r}"] * bool(surplus)
    if problems:
        raise MechanismError(
            f"the {library} model of {model.name!r}: {'; '.join(problems)}; give the joints equal names"
        )
    return [(i, theirs[names[i]]) for i in moving]


def _joint(
    model: Model, body: int, change: _Change | None, name: str, *theirs: tuple[int, int]
) -> tuple[_Change, tuple[_Range, ...]]:
    """Conversion of a joint, and its ranges of q and v in both libraries.

    Args:
        model: The mechanism.
        body: Index of the body that the joint moves.
        change: The conversion; None if there is none, which is refused.
        name: Kind of the joint in the other library, for messages.
        theirs: Starts and counts of q and v in the other library.
    """
    topology = model.topology
    kind = topology.joint_classes[body]
    if change is None:
        raise MechanismError(
            f"joint {topology.joint_names[body]!r} is a {kind.__name__.lower()} joint in jaxdyn and a {name} in the other library, "
            "which cannot be converted; use the same kind in both, or several joints of one degree of freedom with massless bodies "
            "between them"
        )
    ours = (topology.q_starts[body], kind.nq), (topology.v_starts[body], kind.nv)
    return change, tuple((int(first), int(first) + count) for first, count in (*ours, *theirs))


def _change_of_pinocchio(kind: type[Joint], name: str, nq: int) -> _Change | None:
    name = name.removeprefix("JointModel")
    same = _Same(np.zeros(kind.nq))
    counterparts: dict[type[Joint], tuple[str, _Change]] = {
        Revolute: ("R.*", _Circle() if nq == 2 else same),  # with two coordinates, it is continuous
        Prismatic: ("P(?!lanar).*", same),
        Screw: ("H.*", same),
        Universal: ("Universal", same),
        Spherical: ("Spherical", _Ball(True)),
        Planar: ("Planar", _Placed(2, _Circle())),
        Free: ("FreeFlyer", _Placed(3, _Ball(True))),
    }
    pattern, change = counterparts.get(kind, ("", same))
    return change if re.fullmatch(pattern, name) else None


def _change_of_mujoco(model: Model, body: int, kind: int, reference: np.ndarray) -> _Change | None:
    ours = model.topology.joint_classes[body]
    free, ball, slide, hinge = range(4)  # mujoco.mjtJoint
    if (ours, kind) in ((Revolute, hinge), (Prismatic, slide)):
        return _Same(reference)
    if (ours, kind) == (Spherical, ball):
        return _Ball(False)
    if (ours, kind) == (Free, free) and model.topology.parents[body] == GROUND:
        return _FreeOfMujoco(jax.tree.map(lambda x: x[body], model.placement))
    return None
