"""What a linkage is made of besides bodies: joints, rods and couplings between things that are known by name.

Their values are checked. Each can say which constraint of a model it is; a joint can also be reversed.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.constraints.kinds import Coupling, Distance, LoopJoint, loop_kind
from jaxdyn.dynamics import kinematics
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Free, Universal
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.plain import rotation_quaternion
from jaxdyn.spatial.transform import RigidTransform


@dataclasses.dataclass(frozen=True)
class JointPart:
    """A joint between a frame on body A and a frame on body B.

    Attributes:
        name: Of the joint.
        joint: Its kind and axes.
        bodies: Names of A and B.
        frames: Placements of the joint frames in A and B as 4x4 homogeneous matrices.
        drive: Armature and limits as `MechanismBuilder.add_body` takes them, only those that there are.
    """

    name: str
    joint: Joint
    bodies: tuple[str, str]
    frames: tuple[np.ndarray, np.ndarray]
    drive: dict[str, np.ndarray]

    @property
    def kind(self) -> str:
        """What the kind of joint is called in messages."""
        return type(self.joint).__name__.lower()

    def reason_to_stay(self) -> str | None:
        """Why this joint must not be cut, as messages say it, or None."""
        if isinstance(self.joint, Free):
            return "it is free and constrains nothing"
        if loop_kind(self.joint) is None:
            oblique = isinstance(self.joint, Universal)
            return "no loop joint has oblique axes" if oblique else f"no loop joint is of kind {self.kind!r}"
        if "armature" in self.drive:
            return "it has an armature"
        return "it has limits" if self.drive else None

    def reversed(self) -> "JointPart":
        """The same joint, of which B is body A.

        Raises:
            MechanismError: There is no joint that is the reverse, or armature or limits would change their meaning.
        """
        if (back := self.joint.reversed()) is None:
            raise self._cannot_be_reversed(f"kind {self.kind!r} has no reverse")
        drive = self.drive
        if self.joint.velocity_is_rate:
            numbered = jnp.arange(self.joint.nq, dtype=float)
            order = np.asarray(self.joint.reversed_coordinates(numbered)).astype(int)
            drive = {name: numbers[order] for name, numbers in drive.items()}
        elif drive:
            raise self._cannot_be_reversed(f"its {' and '.join(drive)} would change meaning")
        (body_a, body_b), (frame_a, frame_b) = self.bodies, self.frames
        return JointPart(self.name, back, (body_b, body_a), (frame_b, frame_a), drive)

    def _cannot_be_reversed(self, reason: str) -> MechanismError:
        return MechanismError(
            f"joint {self.name!r}: the tree reaches it at body_b {self.bodies[1]!r} and would have to reverse it, but {reason}; "
            "swap body_a and body_b, with their positions and orientations"
        )

    def constraint(self, model: Model) -> LoopJoint | None:
        """The joint as one that closes a loop; None if it fits between parts of one rigid body, from which it takes no freedom.

        Raises:
            MechanismError: It does not fit there.
        """
        found = loop_kind(self.joint)
        assert found is not None, "such joints stay in the tree"
        kind, axes = found
        turn = np.eye(4)
        turn[:3, :3] = axes
        (a, frame_a), (b, frame_b) = _ends(model, self.bodies, [frame @ turn for frame in self.frames])
        loop = LoopJoint(self.name, kind, a, frame_a, b, frame_b)
        if a != b:
            return loop

        @jax.jit
        def errors(q):
            poses = kinematics.placements(model, q).poses
            branches = loop.branches(model, q, poses)
            return loop.residual(model, q, poses), jnp.ones(1) if branches is None else branches

        residual, branches = errors(configuration.neutral(model))
        if np.any(np.abs(residual) > np.sqrt(np.finfo(model.dtype).eps)) or np.any(branches < 0):
            names = " and ".join(map(repr, self.bodies))
            raise MechanismError(
                f"joint {self.name!r}: {names} are parts of one rigid body, where its frames do not fit together; correct their "
                "positions and orientations, or leave the joint out"
            )
        return None


@dataclasses.dataclass(frozen=True)
class RodPart:
    """A rod without mass between a point on body A and a point on body B.

    Attributes:
        name: Of the rod.
        bodies: Names of A and B.
        ends: Its ends on the axes of A and B as 4x4 homogeneous matrices.
        length: m.
    """

    name: str
    bodies: tuple[str, str]
    ends: tuple[np.ndarray, np.ndarray]
    length: np.ndarray

    def constraint(self, model: Model) -> Distance:
        """The rod between moving bodies.

        Raises:
            MechanismError: Both ends are on one rigid body.
        """
        (a, end_a), (b, end_b) = _ends(model, self.bodies, self.ends)
        if a == b:
            raise MechanismError(f"rod {self.name!r} connects two points of one rigid body; leave it out")
        return Distance(self.name, a, end_a.translation, b, end_b.translation, self.length)


@dataclasses.dataclass(frozen=True)
class CouplingPart:
    """The coordinate of one joint as a polynomial of that of another.

    Attributes:
        name: Of the coupling.
        joints: Names of the driven one and the driver.
        coefficients: c0, c1, ...
    """

    name: str
    joints: tuple[str, str]
    coefficients: np.ndarray

    def constraint(self, model: Model) -> Coupling:
        """The coupling of the numbers of these coordinates."""
        bodies = [model.topology.joint_names.index(joint) for joint in self.joints]
        driven, driver = (int(model.topology.q_starts[body]) for body in bodies)
        return Coupling(self.name, driven, driver, self.coefficients)


def _ends(model: Model, bodies: Sequence[str], frames: Sequence[np.ndarray]) -> list[tuple[int, RigidTransform]]:
    """For each of some named bodies, the moving body that carries it and the placement there of a frame on it."""
    ends = []
    for body, frame in zip(bodies, frames, strict=True):
        turn = rotation_quaternion(frame[:3, :3])
        placement = RigidTransform(jnp.asarray(turn, model.dtype), jnp.asarray(frame[:3, 3], model.dtype))
        ends.append(model.locate_frame(body, placement))
    return ends
