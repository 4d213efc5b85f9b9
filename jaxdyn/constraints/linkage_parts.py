"""Joints of a linkage, which refer to bodies by name.

`LinkageBuilder` has checked the values in the parts. Each part can be converted to a constraint of a model; a joint can also be
reversed.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.constraints.kinds import LoopJoint, loop_kind
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
        name: Name of the joint.
        joint: Kind and axes of the joint.
        bodies: Names of A and B.
        frames: Placements of the joint frames in A and B as 4x4 homogeneous matrices.
        drive: Armature and limits that were given, as arguments of `MechanismBuilder.add_body`.
    """

    name: str
    joint: Joint
    bodies: tuple[str, str]
    frames: tuple[np.ndarray, np.ndarray]
    drive: dict[str, np.ndarray]

    @property
    def kind(self) -> str:
        """Kind of the joint, as messages name it."""
        return type(self.joint).__name__.lower()

    def reason_to_stay(self) -> str | None:
        """Reason, for messages, why this joint must not be cut; None if it may be cut."""
        if isinstance(self.joint, Free):
            return "it is free and imposes no constraint"
        if loop_kind(self.joint) is None:
            oblique = isinstance(self.joint, Universal)
            return (
                "loop joints cannot have oblique axes" if oblique else f"there is no loop joint of kind {self.kind!r}"
            )
        if "armature" in self.drive:
            return "it has an armature"
        return "it has limits" if self.drive else None

    def reversed(self) -> "JointPart":
        """Exchange bodies A and B of the joint.

        Raises:
            MechanismError: The kind of joint cannot be reversed, or armature or limits would change their meaning.
        """
        if (back := self.joint.reversed()) is None:
            raise self._cannot_be_reversed(f"joints of kind {self.kind!r} cannot be reversed")
        drive = self.drive
        if self.joint.velocity_is_rate:
            numbered = jnp.arange(self.joint.nq, dtype=float)
            order = np.asarray(self.joint.reversed_coordinates(numbered)).astype(int)
            drive = {name: values[order] for name, values in drive.items()}
        elif drive:
            raise self._cannot_be_reversed(f"its {' and '.join(drive)} would change meaning")
        (body_a, body_b), (frame_a, frame_b) = self.bodies, self.frames
        return JointPart(self.name, back, (body_b, body_a), (frame_b, frame_a), drive)

    def _cannot_be_reversed(self, reason: str) -> MechanismError:
        return MechanismError(
            f"joint {self.name!r}: its parent in the tree is body_b {self.bodies[1]!r}, so it would have to be reversed, but "
            f"{reason}; exchange body_a and body_b, with their positions and orientations"
        )

    def constraint(self, model: Model) -> LoopJoint | None:
        """Loop joint that closes the loop; None for a joint between two parts of one rigid body, if its frames coincide.

        Raises:
            MechanismError: The joint connects two parts of one rigid body, and its frames do not coincide.
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
                f"joint {self.name!r}: {names} are parts of one rigid body, and its frames do not coincide; correct their "
                "positions and orientations, or remove the joint"
            )
        return None


def _ends(model: Model, bodies: Sequence[str], frames: Sequence[np.ndarray]) -> list[tuple[int, RigidTransform]]:
    """Index of the moving body that carries each named body, and the placement of a frame in it."""
    ends = []
    for body, frame in zip(bodies, frames, strict=True):
        turn = rotation_quaternion(frame[:3, :3])
        placement = RigidTransform(jnp.asarray(turn, model.dtype), jnp.asarray(frame[:3, 3], model.dtype))
        ends.append(model.locate_frame(body, placement))
    return ends
