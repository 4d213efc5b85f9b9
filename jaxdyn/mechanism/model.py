"""Model of a mechanism: its parameters, which are differentiable leaves of a pytree, and its static topology.

Build a model with `jaxdyn.MechanismBuilder`, which checks every value, or read one from a
file (`jaxdyn.io`). Change parameters with `equinox.tree_at`; make a batch of mechanisms with `jax.vmap` over any leaves.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree

from jaxdyn.compute.arrays import floating, on_device
from jaxdyn.display import Display, Displayed, aligned, counted, dtype_text, plural
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.quantity import ARMATURE, EFFORT, POSITION, VELOCITY, quantity
from jaxdyn.mechanism.range import problem_with_range
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.mechanism.topology import Topology
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform

# Attributes of a `jaxdyn.System`, for the message to users who give a Model instead.
_OF_SYSTEMS = ("model", "forces", "constraints", "drives", "nu", "at_rest")


class Limits(eqx.Module):
    """Bounds of joint motion; infinite where a joint has no bound.

    Samplers, controllers and optimizers use these bounds. A simulated joint stops at its limit only in a `System` with
    `JointLimits`.

    Attributes:
        lower, upper: Smallest and largest coordinates.
        velocity: Largest speed.
        effort: Largest drive torque or force.
    """

    lower: Float[Array, "nq"] = eqx.field(metadata=quantity(POSITION, along="coordinate", infinite=True))
    upper: Float[Array, "nq"] = eqx.field(metadata=quantity(POSITION, along="coordinate", infinite=True))
    velocity: Float[Array, "nv"] = eqx.field(metadata=quantity(VELOCITY, infinite=True))
    effort: Float[Array, "nv"] = eqx.field(metadata=quantity(EFFORT, infinite=True))


class Model(Displayed, eqx.Module):
    """A mechanism: topology and parameters in SI units. The origin of a body frame is the joint point O'_i.

    Attributes:
        topology: Static structure and names.
        joints: Stacks of joints of the same structure, in the order of `topology.groups`.
        placement: Placement of each joint frame in its parent body (F_i and l_i of theory.md), leading axis nb.
        mass: Masses m_i.
        com: Vector from the body origin O'_i to the center of mass C_i of each body, on body axes.
        inertia: Inertia tensor J_i of each body about its center of mass on body axes, entries (xx, yy, zz, xy, xz, yz). The
            off-diagonal values are tensor entries, the negatives of the products of inertia.
        armature: Rotor inertia reflected to the joint, added to the diagonal of the mass matrix. Armature causes only the force
            -armature * a along each velocity component with the acceleration a, also in spherical and free joints.
        rotors: Geared rotors, which also rotate with the bodies that carry them.
        gravity: Gravitational acceleration on ground axes.
        limits: Bounds of joint motion.
        frames: Placement of each named frame in the body that carries it, leading axis nf.
    """

    topology: Topology = eqx.field(static=True)
    joints: tuple[Joint, ...]
    placement: RigidTransform
    mass: Float[Array, "nb"] = eqx.field(metadata=quantity("kg", minimum=0.0))
    com: Float[Array, "nb 3"] = eqx.field(metadata=quantity("m"))
    inertia: Float[Array, "nb 6"] = eqx.field(metadata=quantity("kg m^2"))
    armature: Float[Array, "nv"] = eqx.field(metadata=quantity(ARMATURE, minimum=0.0))
    rotors: Rotors
    gravity: Float[Array, "3"] = eqx.field(metadata=quantity("m/s^2"))
    limits: Limits
    frames: RigidTransform

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            remedy = f"; a System has it, System(model).{name}" if name in _OF_SYSTEMS else ""
            raise AttributeError(f"a Model has no attribute {name!r}{remedy}")

    @property
    def name(self) -> str:
        """Name of the mechanism."""
        return self.topology.name

    @property
    def nb(self) -> int:
        """Number of bodies, without the ground."""
        return self.topology.nb

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return self.topology.nq

    @property
    def nv(self) -> int:
        """Number of velocities (degrees of freedom)."""
        return self.topology.nv

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type of the parameters."""
        return self.mass.dtype

    def joint(self, body: int) -> Joint:
        """Joint of the body with a given index."""
        group = self.topology.joint_groups[body]
        row = int(np.searchsorted(self.topology.groups[group][1], body))
        return jax.tree.map(lambda x: on_device(np.asarray(x)[row]) if _is_known(x) else x[row], self.joints[group])

    def at(self, t: Float[Array, ""]) -> "Model":
        """The mechanism at time t (s): sets the time of joints with prescribed motion.

        The functions of a `System` take the time as an argument. Functions of a `Model` have no such argument: pass `model.at(t)`
        to them.
        """
        if all(type(joint).at is Joint.at for joint in self.joints):
            return self
        return eqx.tree_at(lambda model: model.joints, self, tuple(joint.at(t) for joint in self.joints))

    def later(self, duration: Float[Array, ""]) -> "Model":
        """The mechanism after a duration (s), for derivatives with respect to time."""
        if all(type(joint).later is Joint.later for joint in self.joints):
            return self
        return eqx.tree_at(lambda model: model.joints, self, tuple(joint.later(duration) for joint in self.joints))

    def _display(self) -> Display:
        size = f"{plural(self.nb, 'body', 'bodies')}, nq = {self.nq}, nv = {self.nv}"
        rows = {"joints": counted(kind.__name__.lower() for kind in self.topology.joint_classes)}
        if self.topology.frame_names:
            rows["frames"] = ", ".join(self.topology.frame_names)
        if self.rotors.names:
            rows["rotors"] = ", ".join(self.rotors.names)
        rows["dtype"] = dtype_text(self)
        if batch := self._batch_shape():
            rows["batch"] = f"shape {batch}"
        return Display(f"Model({self.name!r}, {size})", rows)

    def _batch_shape(self) -> tuple[int, ...]:
        """Shape of a batch of models, whose leaves may also be common to all of them; () for a single model."""
        single = {"mass": 1, "com": 2, "inertia": 2, "armature": 1, "gravity": 1}
        leading = [np.shape(getattr(self, name))[:-count] for name, count in single.items()]
        return np.broadcast_shapes(*leading, np.shape(self.placement.translation)[:-2])

    def summary(self) -> str:
        """Text description: size, mass and degrees of freedom, and a table of bodies and joints."""
        topology = self.topology
        total = float(np.sum(self.mass))
        header = f"{self.name}: {self.nb} bodies, {total:.6g} kg, nq = {self.nq}, nv = {self.nv}"
        rows: list[tuple[str, ...]] = [("", "body", "parent", "joint", "kind", "nq", "nv", "mass (kg)")]
        joints = zip(topology.parents, topology.joint_names, topology.joint_classes, strict=True)
        for i, (parent, joint, kind) in enumerate(joints):
            numbers = str(kind.nq), str(kind.nv), f"{float(self.mass[i]):.6g}"
            names = topology.body_names[i], topology.body_name(parent), joint, kind.__name__.lower()
            rows.append((str(i), *names, *numbers))
        rows.insert(1, tuple("-" * max(map(len, column)) for column in zip(*rows, strict=True)))
        rotors = self.rotors
        of_rotors = [""] if rotors.count else []
        for name, carrier, column, ratio in zip(
            rotors.names, rotors.carriers, rotors.columns, rotors.ratio, strict=True
        ):
            joint = topology.joint_names[topology.body_of_column[column]]
            of_rotors.append(
                f"rotor {name}: carried by {topology.body_name(carrier)}, {float(ratio):.6g} times the rate of {joint}"
            )
        return "\n".join([header, "", aligned(rows, left=(1, 2, 3, 4)), *of_rotors])

    def locate(self, name: str, point: Any) -> tuple[int, Float[Array, "3"]]:
        """Index of the moving body (-1: the ground) that carries the body or frame `name`, and a point on the axes of this body.

        Args:
            name: Name of a body or frame.
            point: Position of the point on the axes of the named body or frame, relative to its origin, m.

        Raises:
            UnknownName: No body or frame has this name.
        """
        point = floating(point)
        body, frame = self.locate_frame(name, RigidTransform(quaternion.identity(point.dtype), point))
        return body, frame.translation

    def locate_frame(self, name: str, frame: RigidTransform) -> tuple[int, RigidTransform]:
        """Index of the moving body (-1: the ground) that carries the body or frame `name`, and placement of a frame in this body.

        Args:
            name: Name of a body or frame.
            frame: Placement relative to the body or frame `name`.

        Raises:
            UnknownName: No body or frame has this name.
        """
        if name in self.topology.frame_names:
            index = self.topology.frame_names.index(name)
            placement = jax.tree.map(lambda x: x[index], self.frames)
            return self.topology.frame_bodies[index], placement.compose(frame)
        return self.topology.body_index(name), frame


def as_dtype(tree: PyTree, dtype: DTypeLike) -> PyTree:
    """The same model, system or state with every floating-point leaf in another precision.

    jaxdyn computes in the type of its inputs, so model and states must have the same type.

    Raises:
        MechanismError: Inertias of a model underflow or overflow in this precision, see `range`. The range is not checked under
            `jax.jit` and for batches of models.
    """
    for part in jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, Model)):
        if isinstance(part, Model) and part.mass.ndim == 1 and not _is_traced(part):
            _check_range(part, dtype)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype) if eqx.is_inexact_array(x) else x, tree)


def _is_traced(model: Model) -> bool:
    return not all(_is_known(x) for x in jax.tree.leaves(model))


def _is_known(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, Tracer)


def _check_range(model: Model, dtype: DTypeLike) -> None:
    numbers = model.placement.translation, model.mass, model.com, model.inertia, model.armature
    problem = problem_with_range(
        model.topology, *(np.asarray(x, np.float64) for x in numbers), rotors=model.rotors, dtype=dtype
    )
    if problem is not None:
        raise MechanismError(problem)
