"""Construction of a mechanism with loops from its bodies and joints, of which some form a tree and the remaining ones close loops.

`MechanismBuilder` builds the tree, and each joint outside of the tree becomes a `LoopJoint`; theory.md section (n).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from jaxdyn.constraints.linkage_parts import JointPart
from jaxdyn.constraints.spanning import Tree, chosen_tree, given_tree
from jaxdyn.dynamics.system import System
from jaxdyn.errors import check_name
from jaxdyn.mechanism import checks
from jaxdyn.mechanism.builder import STANDARD_GRAVITY, MechanismBuilder
from jaxdyn.mechanism.checks import Values
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Fixed
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model, as_dtype

_ORIGIN = (0.0, 0.0, 0.0)
_UNTURNED = (1.0, 0.0, 0.0, 0.0)


class LinkageBuilder:
    """Builder of a `System` from bodies and joints, which may form loops.

        builder = LinkageBuilder("slider-crank")
        builder.add_body("crank", mass=0.2, com=(0.05, 0, 0), inertia=(0, 2e-4, 2e-4))
        builder.add_body("rod", mass=0.3, com=(0.2, 0, 0), inertia=(0, 4e-3, 4e-3))
        builder.add_body("piston", mass=0.5)
        builder.add_joint("bearing", Revolute((0, 1, 0)), "ground", "crank")
        builder.add_joint("crankpin", Revolute((0, 1, 0)), "crank", "rod", position_a=(0.1, 0, 0))
        builder.add_joint("wristpin", Revolute((0, 1, 0)), "rod", "piston", position_a=(0.4, 0, 0))
        builder.add_joint("cylinder", Prismatic((1, 0, 0)), "ground", "piston")
        system = builder.build()

    A joint connects a frame on body A with a frame on body B. The coordinates of the joint are zero when the two frames coincide,
    and B moves relative to A. `jaxdyn.assemble` finds a configuration in which the loops are closed. Forces and further
    constraints, such as a `Distance` or a `Coupling`, are added to the system: `dataclasses.replace(system, forces=(...))`. A joint
    that a `Coupling` names must stay in the tree; name the joints to cut with `build(cut=...)`.

    **Names.** In the model, the origin of a body frame is at the joint that connects the body to its parent in the tree. If the
    body was described in another frame, the moving body of the model has the name "<body>/<joint>", and "<body>" is a named frame
    fixed in it. So `Model.locate` and `frame_placement` always interpret the name of the body as the frame in which it was
    described.

    **Reversed joints.** If the parent of a joint in the tree is body B, the joint is reversed (`Joint.reversed`). The reversal does
    not change the coordinates of revolute, prismatic, screw and cylindrical joints, and it exchanges the two coordinates of a
    universal joint. The coordinates of spherical, planar and free joints then describe the placement of A in B
    (`Joint.reversed_coordinates`).

    Args:
        name: Name of the mechanism, for messages.
        gravity: Gravitational acceleration on ground axes, m/s^2.

    Source: theory.md section (n).
    """

    def __init__(self, name: str = "linkage", gravity: Values = STANDARD_GRAVITY):
        self.name = name
        self._gravity = checks.values(gravity, (3,), f"mechanism {name!r}", "gravity")
        self._bodies: dict[str, dict[str, Values]] = {}
        self._frames: dict[str, tuple[str, np.ndarray]] = {}
        self._joints: dict[str, JointPart] = {}

    def add_body(
        self, name: str, *, mass: Values = 0.0, com: Values = _ORIGIN, inertia: Values = (0.0, 0.0, 0.0)
    ) -> None:
        """Add a body, whose data may refer to any frame fixed in it.

        Args:
            name: Unique name of the body; "ground" is the fixed world.
            mass: Mass, kg.
            com: Center of mass, body axes, m.
            inertia: Inertia tensor about the center of mass, body axes, kg m^2, in one of the forms that
                `MechanismBuilder.add_body` accepts.

        Raises:
            MechanismError: The name is already used, or a value is not physically valid.
        """
        checks.check_new_name(name, self._bodies, self._frames)
        checks.checked_inertia(f"body {name!r}", mass, com, inertia)
        self._bodies[name] = {"mass": mass, "com": com, "inertia": inertia}

    def add_frame(self, name: str, *, body: str, position: Values = _ORIGIN, orientation: Values = _UNTURNED) -> None:
        """Add a named frame fixed in a body or in the ground; arguments and errors are those of `MechanismBuilder.add_frame`.

        Args:
            name: Unique name of the frame.
            body: Name of the body that carries the frame, or "ground".
            position: Origin of the frame on body axes, m.
            orientation: Unit quaternion (w, x, y, z) or 3x3 rotation matrix, body axes.
        """
        checks.check_new_name(name, self._bodies, self._frames)
        self._frames[name] = (body, checks.checked_placement(f"frame {name!r}", position, orientation))

    def add_joint(
        self,
        name: str,
        joint: Joint,
        body_a: str,
        body_b: str,
        *,
        position_a: Values = _ORIGIN,
        orientation_a: Values = _UNTURNED,
        position_b: Values = _ORIGIN,
        orientation_b: Values = _UNTURNED,
        armature: Values = 0.0,
        position_limits: Values | None = None,
        velocity_limit: Values = np.inf,
        effort_limit: Values = np.inf,
    ) -> None:
        """Add a joint between two bodies.

        Args:
            name: Unique name of the joint.
            joint: Joint, such as `Revolute(axis)`; the vectors in it are given on the axes of the joint frames.
            body_a, body_b: Names of the bodies, which may be added later, or "ground"; body B moves relative to body A.
            position_a, position_b: Origins of the joint frames on the axes of their bodies, m.
            orientation_a, orientation_b: Rotations of the joint frames in their bodies: unit quaternion (w, x, y, z) or 3x3 matrix.
            armature, position_limits, velocity_limit, effort_limit: Drive data as in `MechanismBuilder.add_body`. These data belong
                to coordinates, so `build` never cuts a joint that has them.

        Raises:
            MechanismError: The name is already used, both bodies are the same, or a value is not valid.
        """
        where = f"joint {name!r}"
        if name in self._joints:
            raise MechanismError(f"there are two joints called {name!r}; rename one")
        if body_a == body_b:
            raise MechanismError(f"{where} connects {body_a!r} with itself; give two different bodies")
        checks.check_joint(where, where, joint)
        frame_a = checks.checked_placement(f"{where} on body_a", position_a, orientation_a)
        frame_b = checks.checked_placement(f"{where} on body_b", position_b, orientation_b)
        values = checks.checked_drive(where, joint, armature, position_limits, velocity_limit, effort_limit)
        unset = {"armature": 0.0, "position_limits": np.inf, "velocity_limit": np.inf, "effort_limit": np.inf}
        drive = {key: x for (key, empty), x in zip(unset.items(), values, strict=True) if np.any(np.abs(x) != empty)}
        self._joints[name] = JointPart(name, joint, (body_a, body_b), (frame_a, frame_b), drive)

    def build(self, *, cut: Sequence[str] | None = None, dtype: DTypeLike | None = None) -> System:
        """System with a tree of joints and a `LoopJoint` for each joint that is cut.

        If `cut` is None, the joints with the most degrees of freedom are cut, so that the fewest coordinates and constraints
        remain; among joints with equally many, the choice keeps the paths from the bodies to the ground short. Joints with an
        armature or limits are never cut, because these data belong to coordinates, and a cut joint has no coordinates.
        Joints without an equivalent `LoopJoint` (screws, prescribed motions, universal joints with oblique axes, user-defined
        joints) and free joints, which impose no constraint, are never cut either.

        A cut joint between parts of one rigid body, for example a weld in a loop, imposes no constraint. Such a joint is omitted if
        its frames coincide, and raises an error otherwise. `System.summary` lists the joints that close loops.

        Args:
            cut: Names of all joints to cut; None for an automatic choice.
            dtype: Floating-point type of the parameters; the default of JAX if None.

        Raises:
            UnknownName: There is no body or joint of a given name.
            MechanismError: A body has no path to the ground; a joint cannot be cut; a loop remains closed; a
                joint cannot be reversed; or `MechanismBuilder` rejects the tree, for example because the last body of a chain has
                no mass.
        """
        self._check_names()
        where = f"mechanism {self.name!r}"
        ends = {name: joint.bodies for name, joint in self._joints.items()}
        if cut is None:
            freedoms = {name: joint.joint.nv for name, joint in self._joints.items()}
            tree = chosen_tree(where, self._bodies, ends, self._staying(), freedoms)
        else:
            tree = given_tree(where, self._bodies, ends, self._staying(), cut)
        model = self._model(tree, dtype)
        carrying = {joint for joint, _ in tree.values()}
        closing = [joint for name, joint in self._joints.items() if name not in carrying]
        constraints = tuple(x for joint in closing if (x := joint.constraint(model)) is not None)
        return System(model, constraints=as_dtype(constraints, model.dtype))

    def _check_names(self) -> None:
        """Raise an error if a part refers to unknown bodies."""
        known = ["ground", *self._bodies]
        attached = [(f"frame {name!r}", "body", body) for name, (body, _) in self._frames.items()]
        for name, joint in self._joints.items():
            attached += [(f"joint {name!r}", f"body_{x}", body) for x, body in zip("ab", joint.bodies, strict=True)]
        for where, role, body in attached:
            check_name("body", body, known, where=f"{where}: its {role}")

    def _staying(self) -> dict[str, str]:
        """Names of the joints that must not be cut, each with the reason for messages."""
        reasons = {name: joint.reason_to_stay() for name, joint in self._joints.items()}
        return {name: reason for name, reason in reasons.items() if reason is not None}

    def _model(self, tree: Tree, dtype: DTypeLike | None) -> Model:
        builder = MechanismBuilder(self.name, self._gravity)
        for body, own in self._bodies.items():
            joint = self._joints[tree[body][0]]
            joint = joint if joint.bodies[1] == body else joint.reversed()
            at_parent, at_child = joint.frames
            carried: dict[str, Any] = {"joint": joint.joint, "joint_name": joint.name, "parent": joint.bodies[0]}
            carried |= joint.drive
            if isinstance(joint.joint, Fixed) or np.array_equal(at_child, np.eye(4)):
                builder.add_body(body, **carried, **_placed(at_parent @ _inverse(at_child)), **own)
            else:  # the described frame is welded to the frame at the joint
                moving = f"{body}/{joint.name}"
                weld = {"joint": Fixed(), "joint_name": moving, "parent": moving} | _placed(_inverse(at_child))
                builder.add_body(moving, **carried, **_placed(at_parent))
                builder.add_body(body, **weld, **own)
        for name, (body, placement) in self._frames.items():
            builder.add_frame(name, body=body, **_placed(placement))
        return builder.build(dtype=dtype)


def _placed(placement: np.ndarray) -> dict[str, Any]:
    return {"position": placement[:3, 3], "orientation": placement[:3, :3]}


def _inverse(placement: np.ndarray) -> np.ndarray:
    back = np.eye(4)
    back[:3, :3] = placement[:3, :3].T
    back[:3, 3] = -back[:3, :3] @ placement[:3, 3]
    return back
