"""Systems from models of Pinocchio. Pinocchio is not imported: any object with the attributes of its models can be used."""

import warnings
from typing import Any, Literal

import numpy as np

from jaxdyn.dynamics.drives import drives_of_joints
from jaxdyn.dynamics.forces.friction import HOLDING_SCALE, JointFriction
from jaxdyn.dynamics.system import System
from jaxdyn.errors import one_line
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.xml import IgnoredContent, unused
from jaxdyn.mechanism.builder import MechanismBuilder
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Free, Planar, Prismatic, Revolute, Screw, Spherical, Universal

_LINEAR: dict[type[Joint], int] = {Free: 3, Planar: 1}  # angular velocities, which follow the linear ones in Pinocchio
_LARGEST = 1e30  # of values that are limits
_X, _Y, _Z = np.eye(3)
_CHAINS: dict[str, tuple[Any, ...]] = {  # classes of joints, with their axes
    "FreeFlyer": ((Free,),),
    "Planar": ((Planar,),),
    "Spherical": ((Spherical,),),
    "SphericalZYX": ((Revolute, _Z), (Revolute, _Y), (Revolute, _X)),
    "Translation": ((Prismatic, _X), (Prismatic, _Y), (Prismatic, _Z)),
}


def system_from_pinocchio(pin_model: Any, *, unphysical: Literal["refuse", "repair"] = "refuse") -> System:
    """The system of a model of Pinocchio, a `pinocchio.Model`: joints, inertias, armature, friction, limits, gravity and frames.

    A joint with several parts (composite, translation, spherical ZYX) becomes a chain of joints, called "<joint>/1", "<joint>/2",
    ..., with massless bodies between them; the last one has the name of the joint. Coordinates are in Pinocchio's order;
    `PinocchioOrder` converts states of mechanisms without such chains. `damping` and dry friction become `JointFriction`, which
    Pinocchio's own forward dynamics does not contain. Limits of joints with a quaternion are not read. One
    `IgnoredContent` warning names limits that are zero or do not allow motion, which are left out, and other values that are not
    used. Every joint but those of floating bases has a motor.

    Args:
        pin_model: The model.
        unphysical: "repair" replaces inertias that no body can have by the nearest ones that are physical, see
            `MechanismBuilder.add_body`.

    Raises:
        ConfigError: A joint has no counterpart, such as a mimic joint; the message names it.
        MechanismError: A value is not physically valid.

    Example:
        ```python
        import jaxdyn
        import pinocchio

        pin_model = pinocchio.buildSampleModelManipulator()
        system = jaxdyn.io.system_from_pinocchio(pin_model)
        order = jaxdyn.io.PinocchioOrder(system.model, pin_model)
        ```
    """
    builder, taken = MechanismBuilder(pin_model.name or "mechanism", pin_model.gravity.linear), {"ground"}
    coulomb = getattr(pin_model, "upperDryFrictionLimit", pin_model.friction)
    if not np.array_equal(getattr(pin_model, "lowerDryFrictionLimit", -coulomb), -coulomb):
        raise ConfigError(f"{builder.name}: its dry friction has different limits in both directions; give equal ones")
    unread: list[str] = []
    for key in ("velocity", "effort"):  # Pinocchio 4 has lower limits too, but its own functions give them either sign
        upper = getattr(pin_model, f"{key}Limit")
        lower = np.abs(getattr(pin_model, f"lower{key.title()}Limit", upper))
        if np.any((lower < _LARGEST) & (lower != np.abs(upper))):
            unread.append(f"lower{key.title()}Limit is not used where it differs from the upper limit")
    if not np.all(np.isin(pin_model.rotorInertia * pin_model.rotorGearRatio**2, [0.0, *pin_model.armature])):
        unread.append(
            "rotorInertia is not used, as in the algorithms of Pinocchio; add rotorInertia * rotorGearRatio**2 to armature"
        )
    limits = np.stack([pin_model.lowerPositionLimit, pin_model.upperPositionLimit], axis=1)
    names, columns, still = {0: "ground"}, [], pin_model.jointPlacements[0].Identity()
    for index in range(1, pin_model.njoints):
        given, own, inertia = pin_model.joints[index], pin_model.names[index], pin_model.inertias[index]
        links = [x for x in pin_model.frames if x.parentJoint == index and x.type.name == "BODY"]
        names[index] = unused(next((x.name for x in links if x.placement.isIdentity()), own), taken)
        parent, placement = names[pin_model.parents[index]], pin_model.jointPlacements[index]
        q, v, chain = given.idx_q, given.idx_v, _chain(given, own, pin_model.nq, still)
        for part, (joint, before) in enumerate(chain, 1):
            is_last = part == len(chain)
            name, suffix = (names[index], "") if is_last else (f"{names[index]}/{part}", f"/{part}")
            order = v + np.roll(np.arange(joint.nv), _LINEAR.get(type(joint), 0))
            values = {"mass": inertia.mass, "com": inertia.lever, "inertia": inertia.inertia} if is_last else {}
            for key in ("velocity", "effort"):
                bounds = _bounds(getattr(pin_model, f"{key}Limit")[order])
                if not np.all(bounds):
                    unread.append(f"the {key} limits of 0 of joint {own!r} are ignored")
                values[f"{key}_limit"] = np.where(bounds == 0.0, np.inf, bounds)
            if given.nq == given.nv:
                pairs = _bounds(limits[q : q + joint.nq])
                fixed = pairs[:, :1] == pairs[:, 1:]
                if np.any(fixed):
                    unread.append(f"the position limits of joint {own!r}, which do not allow motion, are ignored")
                values["position_limits"] = np.where(fixed, (-np.inf, np.inf), pairs)
            values |= {"armature": pin_model.armature[order], "joint_name": own + suffix, "unphysical": unphysical}
            builder.add_body(name, joint=joint, parent=parent, **_placed(placement * before), **values)
            taken.add(name)
            columns += order.tolist()
            parent, placement, q, v = name, still, q + joint.nq, v + joint.nv
    for frame in pin_model.frames[1:]:
        is_body = frame.name == names[frame.parentJoint] and frame.placement.isIdentity()
        if frame.type.name != "JOINT" and not is_body:
            name = unused(frame.name, taken)
            taken.add(name)
            builder.add_frame(name, body=names[frame.parentJoint], **_placed(frame.placement))
    if unread:
        warnings.warn(one_line(f"{builder.name}: {'; '.join(unread)}"), IgnoredContent, stacklevel=2)
    model, viscous = builder.build(), pin_model.damping
    friction = JointFriction(viscous[columns], coulomb[columns], np.full(model.nv, HOLDING_SCALE))
    return System(model, (friction,) if np.any(viscous) or np.any(coulomb) else (), drives_of_joints(model))


def _placed(placement: Any) -> dict[str, np.ndarray]:
    return {"position": placement.translation, "orientation": placement.rotation}


def _bounds(values: np.ndarray) -> np.ndarray:
    """Limits, which are infinite where Pinocchio has the largest float."""
    return np.where(np.abs(values) > _LARGEST, np.copysign(np.inf, values), values)


def _chain(given: Any, name: str, nq: int, still: Any) -> list[tuple[Joint, Any]]:
    """The joints of which a joint consists, each with its placement on the one before.

    Args:
        given: Joint of Pinocchio.
        name: Name of the joint, for messages.
        nq: Number of coordinates of the whole model.
        still: Placement without a displacement.
    """
    kind, inner = given.shortname().removeprefix("JointModel"), given.extract() if hasattr(given, "extract") else given
    if kind == "Composite":
        chains = [_chain(part, name, nq, still) for part in inner.joints]
        return [
            (joint, at * before if k == 0 else before)
            for chain, at in zip(chains, inner.jointPlacements, strict=True)
            for k, (joint, before) in enumerate(chain)
        ]
    if kind in _CHAINS:
        return [(joint(*axis), still) for joint, *axis in _CHAINS[kind]]
    if kind == "Universal":
        return [(Universal(inner.axis1, inner.axis2), still)]
    if not kind.startswith(("R", "P", "H")):
        raise ConfigError(f"joint {name!r} is of the kind {kind}, which jaxdyn does not have; replace it")
    data = given.createData()  # its partial velocity has the axis and the pitch, which not all kinds have as attributes
    given.calc(data, np.zeros(nq))
    linear, angular = np.split(np.ravel(data.S), 2)
    pitch = float(np.dot(linear, angular))
    return [(Screw(angular, pitch) if pitch else Revolute(angular) if np.any(angular) else Prismatic(linear), still)]
