"""Actuators of a compiled MJCF model, and their ranges, as drives of a system.

MuJoCo computes the force of an actuator from its control u, its length l and the rate of l:

    f = (g0 + g1 l + g2 dl/dt) u + b0 + b1 l + b2 dl/dt

The control is clipped at `ctrlrange`, the force at `forcerange`, and the sum of the forces in a joint at `actuatorfrcrange`. With
dynamics, an activation takes the place of u in f: the integral of the control, or the control with a lag. It is the state of the
actuator here, and `actrange` is its range. Lengths of joints and fixed tendons are zero in the neutral configuration, so the
difference is a part of the constant terms.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from jaxdyn.dynamics.drives import Actuator, Actuators, Drives, JointDrives
from jaxdyn.io.mjcf.tendons import Carriers, TendonReader
from jaxdyn.io.writing import UNLIMITED
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.plain import rotation_matrix

_FREE, _BALL = 0, 1  # mujoco.mjtJoint
_LAGS = ("filter", "filterexact")
_ANY = (-np.inf, np.inf)
LeaveOut = Callable[[str, str, int, str, str], None]


def bounded(pair: Iterable[float]) -> tuple[float, float]:
    """Lower and upper bound of a file, in which huge values stand for infinite ones."""
    low, high = (float(x if abs(x) < UNLIMITED else np.copysign(np.inf, x)) for x in pair)
    return low, high


class ActuatorReader:
    """Reader of the actuators of one compiled model.

    Args:
        mujoco: The `mujoco` package.
        compiled: The compiled model.
        carriers: Name of the body that represents each MuJoCo body, and the origin on it.
        leave_out: Function of (kind, section, index, name, problem) that refuses an element, or notes that it is ignored.
    """

    def __init__(self, mujoco: Any, compiled: Any, carriers: Carriers, leave_out: LeaveOut):
        self.mujoco, self.compiled, self.carriers, self.leave_out = mujoco, compiled, carriers, leave_out
        self.tendons = TendonReader(mujoco, compiled, carriers)
        self.count = int(getattr(compiled, "nactuator", compiled.nu))

    def drives(self, model: Model) -> Drives | None:
        """The drives of all actuators in their order; None if there are none."""
        found = []
        for index in range(self.count):
            problem, name = self._problem(index), self.compiled.actuator(index).name or f"actuator {index}"
            if problem:
                self.leave_out("actuator", "actuator", index, name, problem)
            else:
                found.append(self._actuator(model, index, name))
        if not self.count:
            return None
        compiled, ranges = self.compiled, {}  # of the sums of the forces in joints
        for joint in map(int, np.flatnonzero(compiled.jnt_actfrclimited)):
            name = self._name(model, joint)
            if any(name in actuator.joints for actuator in found):
                ranges[name] = bounded(compiled.jnt_actfrcrange[joint])
        drives = Actuators.of(model, found, ranges)
        joints = [next(iter(actuator.joints), "") for actuator in found]
        unnamed = all(not self.compiled.actuator(k).name for k in range(self.count))
        if not ranges and all(map(_is_motor, found)) and (unnamed or joints == [x.name for x in found]):
            return JointDrives(drives.columns, [next(iter(x.joints.values()))[0] * x.gain for x in found])
        return drives

    def reflected(self, values: str) -> np.ndarray:
        """Armature or damping of the actuators on joints, which the gears scale, for every velocity component."""
        compiled, total = self.compiled, np.zeros(self.compiled.nv)
        for index in range(self.count):
            if self._joint(index) is not None:
                column = compiled.jnt_dofadr[self._joint(index)]
                total[column] += compiled.actuator_gear[index, 0] ** 2 * _given(compiled, values, index)
        return total

    def _actuator(self, model: Model, index: int, name: str) -> Actuator:
        compiled, gear = self.compiled, np.array(self.compiled.actuator_gear[index])
        (g0, g1, g2), (b0, b1, b2) = self._law(index)
        values: dict[str, Any] = {}
        length = 0.0  # in the neutral configuration
        if self._target(index) == "site":
            site = self._index(index)
            carrier, origin = self.carriers[compiled.site_bodyid[site]]
            axes = rotation_matrix(np.array(compiled.site_quat[site]))
            vectors = {"point": compiled.site_pos[site] + origin, "force": axes @ gear[:3], "torque": axes @ gear[3:]}
            values = {"body": carrier} | {key: tuple(map(float, vector)) for key, vector in vectors.items()}
        elif self._target(index) == "tendon" and (line := self.tendons.waypoints(self._index(index), float(gear[0]))):
            values = {"path": line}
        else:
            joints, length = self.arms(model, self._path(index), gear[:3])
            values = {"joints": joints}
        gain = g0 + g1 * length
        if g1 == 0.0 and b1 and g0 == -b1:
            gain, values["position_target"] = 0.0, 1.0
        elif g2 == 0.0 and b2 and g0 == -b2:
            gain, values["velocity_target"] = 0.0, 1.0
        return Actuator(
            name,
            **values,
            gain=float(gain),
            offset=float(b0 + b1 * length),
            stiffness=float(-b1),
            damping=float(-b2),
            controlled_stiffness=float(-g1),
            controlled_damping=float(-g2),
            control_range=self._control_range(index),
            force_range=self._force_range(index),
            **self._state(index),
        )

    def arms(self, model: Model, path: list[tuple[int, float]], gear: np.ndarray) -> tuple[dict[str, Any], float]:
        """Moment arms by the names of joints, and the length in the neutral configuration."""
        joints: dict[str, tuple[float, ...]] = {}
        length, compiled = 0.0, self.compiled
        for joint, coefficient in path:
            key, arm = self._name(model, joint), float(gear[0] * coefficient)
            if compiled.jnt_type[joint] == _BALL:
                joints[key] = tuple(map(float, gear))
                continue
            joints[key] = (joints.get(key, (0.0,))[0] + arm,)
            length += arm * float(compiled.qpos0[compiled.jnt_qposadr[joint]])
        return joints, length

    def _name(self, model: Model, joint: int) -> str:
        return model.topology.joint_names[model.topology.body_of_column[self.compiled.jnt_dofadr[joint]]]

    def _law(self, index: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Coefficients (g0, g1, g2) and (b0, b1, b2)."""
        compiled, affine = self.compiled, self.mujoco.mjtGain.mjGAIN_AFFINE
        gain, bias = np.array(compiled.actuator_gainprm[index, :3]), np.array(compiled.actuator_biasprm[index, :3])
        gain[1:] *= compiled.actuator_gaintype[index] == affine
        bias *= compiled.actuator_biastype[index] != self.mujoco.mjtBias.mjBIAS_NONE
        return tuple(gain.tolist()), tuple(bias.tolist())

    def _dynamics(self, index: int) -> str:
        """Name of the law of the activation, "none" without one."""
        return self.mujoco.mjtDyn(self.compiled.actuator_dyntype[index]).name.removeprefix("mjDYN_").lower()

    def _state(self, index: int) -> dict[str, Any]:
        compiled, dynamics = self.compiled, self._dynamics(index)
        if dynamics == "none":
            return {}
        integrates, bounds = dynamics == "integrator", _ANY
        if compiled.actuator_actlimited[index]:
            bounds = bounded(compiled.actuator_actrange[index])
        time_constant = 1.0 if integrates else float(compiled.actuator_dynprm[index, 0])
        return {"time_constant": time_constant, "integrates": integrates, "state_range": bounds}

    def _target(self, index: int) -> str:
        """Name of the type of the transmission, such as "joint" or "tendon"."""
        return self.mujoco.mjtTrn(self.compiled.actuator_trntype[index]).name.removeprefix("mjTRN_").lower()

    def _joint(self, index: int) -> int | None:
        """The joint on which an actuator acts directly, if it has one degree of freedom."""
        joint = self._index(index)
        on_joint = self._target(index) in ("joint", "jointinparent") and joint >= 0
        return joint if on_joint and self.compiled.jnt_type[joint] not in (_FREE, _BALL) else None

    def _index(self, index: int) -> int:
        """Index of the joint, tendon or site on which an actuator acts."""
        return int(self.compiled.actuator_trnid[index, 0])

    def _path(self, index: int) -> list[tuple[int, float]]:
        """The joints of an actuator, and their coefficients in a fixed tendon."""
        target = self._index(index)
        return self.tendons.joints(target) if self._target(index) == "tendon" else [(target, 1.0)]

    def _control_range(self, index: int) -> tuple[float, float]:
        compiled = self.compiled
        unclipped = compiled.opt.disableflags & self.mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL
        control = int(_given(compiled, "actuator_ctrladr", index, index))
        if not compiled.actuator_ctrllimited[control] or unclipped:
            return _ANY
        return bounded(compiled.actuator_ctrlrange[control])

    def _force_range(self, index: int) -> tuple[float, float]:
        """Bounds of the force of an actuator, and of the tendon that it alone pulls."""
        compiled, (low, high) = self.compiled, _ANY
        if compiled.actuator_forcelimited[index]:
            low, high = compiled.actuator_forcerange[index]
        tendon = self._limited_tendon(index)
        if tendon is not None:
            least, most = compiled.tendon_actfrcrange[tendon]
            low, high = np.clip((low, high), least, most)
        return bounded((low, high))

    def _limited_tendon(self, index: int) -> int | None:
        tendon = self._index(index)
        limited = self._target(index) == "tendon" and bool(self.compiled.tendon_actfrclimited[tendon])
        return tendon if limited else None

    def _problem(self, index: int) -> str:
        """Reason why an actuator has no counterpart; empty if it has one."""
        compiled, mujoco, target = self.compiled, self.mujoco, self._target(index)
        joint = self._joint(index)
        gain = mujoco.mjtGain(compiled.actuator_gaintype[index]).name.removeprefix("mjGAIN_").lower()
        bias = mujoco.mjtBias(compiled.actuator_biastype[index]).name.removeprefix("mjBIAS_").lower()
        group, (g, b) = int(compiled.actuator_group[index]), self._law(index)
        if compiled.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_ACTUATION:
            return "is switched off by the flag actuation"
        if 0 <= group <= 30 and compiled.opt.disableactuator & 1 << group:
            return f"is in group {group}, which actuatorgroupdisable switches off"
        if gain not in ("fixed", "affine") or bias not in ("none", "affine"):
            return f"has the force law {gain if gain not in ('fixed', 'affine') else bias!r}"
        dynamics = self._dynamics(index)
        if dynamics not in ("none", "integrator", *_LAGS) or compiled.actuator_actnum[index] > 1:
            return f"has the dynamics of activation {dynamics!r}"
        if dynamics in _LAGS and not compiled.actuator_dynprm[index, 0] > 0.0:
            return f"has dynamics of activation {dynamics!r} without a time constant"
        if compiled.actuator_actearly[index]:
            return "has an activation at the end of the step, actearly"
        if _given(compiled, "actuator_plugin", index, -1) >= 0:
            return "is a plugin"
        if _given(compiled, "actuator_delay", index):
            return "has a delay"
        if target in ("joint", "jointinparent") and joint is None:
            kind = int(compiled.jnt_type[self._index(index)])
            if kind == _FREE:
                return "acts on a free joint; let it act on a site"
            if target == "jointinparent":
                return "acts on a ball joint along axes of the parent"
            if g[1] or b[1]:
                return "depends on the position of a ball joint"
        elif target == "tendon":
            tendon = self._index(index)
            if self.tendons.problem(tendon):
                return f"pulls a tendon that {self.tendons.problem(tendon)}"
            shared = sum(self._limited_tendon(k) == tendon for k in range(self.count))
            if shared > 1:
                return "shares a tendon whose force is limited with other actuators"
        elif target == "site":
            if compiled.actuator_trnid[index, 1] >= 0:
                return "acts relative to a reference site"
            if self.carriers[compiled.site_bodyid[self._index(index)]][0] == "ground":
                return "acts on the ground"
        elif joint is None:
            return f"acts on a {target}"
        ranges = (self._control_range(index), self._force_range(index), self._state(index).get("state_range", _ANY))
        if not all(low < high for low, high in ranges):
            return "has an empty range"
        if np.any(_given(compiled, "actuator_dampingpoly", index)):
            return "has nonlinear damping"
        if joint is None and (
            _given(compiled, "actuator_armature", index) or _given(compiled, "actuator_damping", index)
        ):
            return "has armature or damping, but does not act on a single hinge or slide"
        return ""


def _given(compiled: Any, name: str, index: int, otherwise: Any = 0.0) -> Any:
    """Value of an actuator; a default for versions of MuJoCo that do not have it."""
    return getattr(compiled, name)[index] if hasattr(compiled, name) else otherwise


def _is_motor(actuator: Actuator) -> bool:
    """Whether the force is proportional to the control and acts on one velocity component."""
    of_one = [len(arms) for arms in actuator.joints.values()] == [1]
    return of_one and dataclasses.replace(actuator, gain=1.0) == Actuator(actuator.name, actuator.joints)
