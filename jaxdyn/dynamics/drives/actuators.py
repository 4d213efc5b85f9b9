"""Motors and servos with ranges and lags, on joints, tendons and bodies; theory.md (H16), (H17), (H22)-(H25)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum, floating, floating_or_none
from jaxdyn.dynamics import inverse, kinematics
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.drives import delays
from jaxdyn.dynamics.drives.base import Controls, Coordinates, Drives, States, Velocities
from jaxdyn.dynamics.drives.delays import POINTS
from jaxdyn.dynamics.forces import OverStep, Scalar, on_body
from jaxdyn.dynamics.kinematics import Motion
from jaxdyn.dynamics.paths import (
    Path,
    Waypoint,
    arms_of_joints,
    joints_of_arms,
    moved_along_columns,
)
from jaxdyn.mechanism.components import component_names
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import Quantity, invalid, plain, quantity
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.sixvector import force_at_point
from jaxdyn.spatial.transform import RigidTransform

_ANY = (-np.inf, np.inf)


@dataclasses.dataclass(frozen=True)
class Actuator:
    """A control and its force: f = gain u + stiffness (position_target u - l) + damping (velocity_target u - dl/dt) + offset.

    The length l = sum of (arm * coordinate) is that of a joint behind a gear, or of a fixed tendon, which couples several joints
    linearly. The generalized force of a joint is arm * f. With a path, l is the length of a line through points of bodies, and a
    positive f pushes: it lengthens the line. At a point of a body, f scales a force and a torque, and l is zero. First u is clipped
    at its range, then f; derivatives are zero beyond the bounds.

    An actuator with a time constant T has a state z, which replaces u in f: dz/dt = (u - z) / T for a first-order lag, or
    dz/dt = u / T for an integrator. The state stays within its range. A delay acts before this state: f and z depend on
    u(t - delay), by the Padé approximation [3/4] with four states.

    Attributes:
        name: Name of the control.
        joints: Moment arms by the names of joints: one value, or one per velocity component. Components of spherical and free
            joints have no coordinate and add nothing to the length.
        gain: Force per unit of the control.
        stiffness: Proportional gain of a position servo.
        damping: Derivative gain of a servo, or viscous damping of a motor.
        position_target: Desired length per unit of the control; 1 for a position servo.
        velocity_target: Desired rate of the length per unit of the control; 1 for a velocity servo.
        offset: Force without control at zero length and rate.
        controlled_stiffness: Additional stiffness per unit of the control.
        controlled_damping: Additional damping per unit of the control, as of a magnetic brake.
        control_range: Bounds of the control.
        force_range: Bounds of the force f.
        time_constant: Time constant T of the state, s; 0 for an actuator without a state.
        integrates: Whether the state is the integral of the control instead of the control with a lag.
        state_range: Bounds of the state.
        delay: Time by which the control acts later, s.
        stall_force: Force at rest of a motor whose largest force falls linearly with the speed, by the voltage that it induces;
            no such limit by default.
        no_load_speed: Rate of the length at which the largest force is zero.
        path: Waypoints of the line of a cable or a cylinder, instead of joints.
        body: Body or frame on which the actuator pushes, instead of joints or a path.
        point: Point of action on the axes of this body or frame.
        force: Force per unit of f, on the axes of this body or frame.
        torque: Torque per unit of f, on the axes of this body or frame.

    Example:
        ```python
        import jaxdyn
        from jaxdyn.dynamics import Actuator, Actuators

        model = jaxdyn.library.double_pendulum()
        servo = Actuator.position_servo("shoulder", 80.0, 4.0, force_range=(-20.0, 20.0))
        motor = Actuator("motor", {"elbow": (30.0,)}, control_range=(-1.0, 1.0))
        system = jaxdyn.System(model, drives=Actuators.of(model, (servo, motor)))
        ```

    Source: theory.md (H16), (H22)-(H25).
    """

    name: str
    joints: dict[str, tuple[float, ...]] = dataclasses.field(
        default_factory=dict, metadata=quantity("1", broadcast=True)
    )
    gain: float = 1.0
    stiffness: float = 0.0
    damping: float = 0.0
    position_target: float = 0.0
    velocity_target: float = 0.0
    offset: float = 0.0
    controlled_stiffness: float = 0.0
    controlled_damping: float = 0.0
    control_range: tuple[float, float] = dataclasses.field(default=_ANY, metadata=quantity("1", infinite=True))
    force_range: tuple[float, float] = dataclasses.field(default=_ANY, metadata=quantity("1", infinite=True))
    time_constant: float = dataclasses.field(default=0.0, metadata=quantity("s", minimum=0.0))
    integrates: bool = False
    state_range: tuple[float, float] = dataclasses.field(default=_ANY, metadata=quantity("1", infinite=True))
    delay: float = dataclasses.field(default=0.0, metadata=quantity("s", minimum=0.0))
    stall_force: float = dataclasses.field(default=np.inf, metadata=quantity("1", positive=True, infinite=True))
    no_load_speed: float = dataclasses.field(default=np.inf, metadata=quantity("1", positive=True, infinite=True))
    path: tuple[Waypoint, ...] = ()
    body: str = ""
    point: tuple[float, float, float] = dataclasses.field(default=(0.0, 0.0, 0.0), metadata=quantity("m"))
    force: tuple[float, float, float] = dataclasses.field(default=(0.0, 0.0, 0.0), metadata=quantity("1"))
    torque: tuple[float, float, float] = dataclasses.field(default=(0.0, 0.0, 0.0), metadata=quantity("m"))

    def __post_init__(self):
        for key in ("control_range", "force_range", "state_range"):
            low, high = getattr(self, key)
            if not low < high:
                raise ValueError(f"actuator {self.name!r}: {key} is [{low:g}, {high:g}]; give the lower bound first")
        if bool(self.joints) + bool(self.path) + bool(self.body) != 1:
            raise ValueError(f"actuator {self.name!r}: give either joints, a path or a body")
        if (self.stall_force < np.inf) != (self.no_load_speed < np.inf):
            raise ValueError(f"actuator {self.name!r}: give both stall_force and no_load_speed")
        if not self.time_constant and (self.integrates or self.state_range != _ANY):
            remedy = "give its time_constant, 1 s if its rate is the control"
            raise ValueError(f"actuator {self.name!r}: integrates and state_range are those of a state; {remedy}")

    @staticmethod
    def position_servo(joint: str, stiffness: float, damping: float = 0.0, **options: Any) -> "Actuator":
        """A servo of a joint whose control is the desired coordinate.

        Args:
            joint: Name of the joint, and of the control if `options` does not give a name.
            stiffness: Proportional gain.
            damping: Derivative gain.
            options: Other fields by name, such as `force_range`.
        """
        servo = {"name": joint, "joints": {joint: (1.0,)}, "gain": 0.0, "position_target": 1.0}
        return Actuator(**(servo | options), stiffness=stiffness, damping=damping)

    @staticmethod
    def velocity_servo(joint: str, damping: float, **options: Any) -> "Actuator":
        """A servo of a joint whose control is the desired velocity.

        Args:
            joint: Name of the joint, and of the control if `options` does not give a name.
            damping: Gain of the velocity.
            options: Other fields by name, such as `force_range`.
        """
        servo = {"name": joint, "joints": {joint: (1.0,)}, "gain": 0.0, "velocity_target": 1.0}
        return Actuator(**(servo | options), damping=damping)


def _optional(unit: str = "1", **rules: Any) -> Any:
    return eqx.field(converter=floating_or_none, default=None, metadata=quantity(unit, **rules))


class Actuators(Drives):
    """Actuators with ranges on joints, tendons and bodies; `Actuators.of` makes them from descriptions `Actuator`.

        f = clip(gain u + stiffness (position_target u - l) + damping (velocity_target u - dl/dt) + offset),   tau = clip(B' f)

    The bounds are hard: forces are continuous, and derivatives are zero beyond a bound. The default integrator evaluates stiffness
    and damping of actuators at the end of the step, so that steps are stable with gains of any size. The states are four for each
    delay, and then one for each time constant, in the order of the controls.

    Attributes:
        names: Name of each control.
        controls: Index of the control of each moment arm.
        columns: Index of the velocity component of each moment arm.
        arms: Moment arms.
        thrusters: Index of the control of each actuator on a body.
        bodies: Index of the body on which each of them acts.
        points: Points of action on body axes, relative to the body origin O'.
        pushes: Forces per unit of f, on body axes.
        turns: Torques per unit of f, on body axes.
        gain: Force per unit of control.
        stiffness: Proportional gains; zero if None, as all following values without bounds.
        damping: Derivative gains.
        position_target: Desired length per unit of control.
        velocity_target: Desired rate of the length per unit of control.
        offset: Forces without control at zero length and rate.
        controlled_stiffness: Additional stiffness per unit of control.
        controlled_damping: Additional damping per unit of control.
        stall_force: Largest forces at rest, which fall linearly with the speed; no bounds if None, as all following values.
        no_load_speed: Rates of the lengths at which the largest forces are zero.
        control_range: Lower and upper bounds of the controls.
        force_range: Lower and upper bounds of the forces f.
        stateful: Index of the control of each lag or integral.
        integrates: Whether each of them is an integral.
        time_constant: Their time constants, s.
        state_range: Lower and upper bounds of their states.
        delayed: Index of the control of each delay.
        delay: Delays, s.
        effort_range: Lower and upper bounds of the generalized forces, the sums over all actuators.
        pulling: Index of the control of each actuator along a path.
        paths: Path of each of them.

    Source: theory.md (H16), (H22)-(H25).
    """

    names: tuple[str, ...] = eqx.field(static=True, converter=plain)
    controls: tuple[int, ...] = eqx.field(static=True, converter=plain)
    columns: tuple[int, ...] = eqx.field(static=True, converter=plain)
    arms: Float[Array, "arms"] = eqx.field(converter=floating, metadata=quantity("1"))
    thrusters: tuple[int, ...] = eqx.field(static=True, converter=plain)
    bodies: tuple[int, ...] = eqx.field(static=True, converter=plain)
    points: Float[Array, "nt 3"] = eqx.field(converter=floating, metadata=quantity("m"))
    pushes: Float[Array, "nt 3"] = eqx.field(converter=floating, metadata=quantity("1"))
    turns: Float[Array, "nt 3"] = eqx.field(converter=floating, metadata=quantity("m"))
    gain: Float[Array, "nu"] = eqx.field(converter=floating, metadata=quantity("1"))
    stiffness: Float[Array, "nu"] | None = _optional()
    damping: Float[Array, "nu"] | None = _optional()
    position_target: Float[Array, "nu"] | None = _optional()
    velocity_target: Float[Array, "nu"] | None = _optional()
    offset: Float[Array, "nu"] | None = _optional()
    controlled_stiffness: Float[Array, "nu"] | None = _optional()
    controlled_damping: Float[Array, "nu"] | None = _optional()
    stall_force: Float[Array, "nu"] | None = _optional(positive=True, infinite=True)
    no_load_speed: Float[Array, "nu"] | None = _optional(positive=True, infinite=True)
    control_range: Float[Array, "nu 2"] | None = _optional(infinite=True)
    force_range: Float[Array, "nu 2"] | None = _optional(infinite=True)
    stateful: tuple[int, ...] = eqx.field(static=True, converter=plain, default=())
    integrates: tuple[bool, ...] = eqx.field(static=True, converter=plain, default=())
    time_constant: Float[Array, "lags"] | None = _optional("s", positive=True)
    state_range: Float[Array, "lags 2"] | None = _optional(infinite=True)
    delayed: tuple[int, ...] = eqx.field(static=True, converter=plain, default=())
    delay: Float[Array, "delays"] | None = _optional("s", positive=True)
    effort_range: Float[Array, "nv 2"] | None = _optional(infinite=True)
    pulling: tuple[int, ...] = eqx.field(static=True, converter=plain, default=())
    paths: tuple[Path, ...] = ()

    @staticmethod
    def of(
        model: Model, actuators: Sequence[Actuator], effort_range: Mapping[str, tuple[float, float]] | None = None
    ) -> "Actuators":
        """The drives that some actuators form; their controls are in this order.

        Args:
            model: The mechanism.
            actuators: Actuators.
            effort_range: Bounds of the sum of the generalized forces of all actuators, by the names of joints.

        Raises:
            UnknownName: There is no such joint, body or frame.
            ValueError: A joint has another number of velocity components or a prescribed motion, a path has no length, or two
                actuators have one name.
        """
        names = [actuator.name for actuator in actuators]
        if (repeated := next((name for i, name in enumerate(names) if name in names[:i]), None)) is not None:
            raise ValueError(f"two actuators are named {repeated!r}; give each control its own name")
        arms, thrusters, paths = [], [], {}
        for control, actuator in enumerate(actuators):
            place = f"actuator {actuator.name!r}"
            arms += [(control, *arm) for arm in arms_of_joints(model.topology, actuator.joints, place)]
            if actuator.path:
                paths[control] = Path.of(model, {}, actuator.path, place)
            if actuator.body:
                placed = RigidTransform(jnp.asarray((1.0, 0.0, 0.0, 0.0)), jnp.asarray(actuator.point, float))
                body, frame = model.locate_frame(actuator.body, placed)
                turned = [
                    quaternion.rotate(frame.quaternion, jnp.asarray(x, float))
                    for x in (actuator.force, actuator.torque)
                ]
                thrusters.append((control, body, frame.translation, *turned))
        controls, columns, lengths = zip(*arms, strict=True) if arms else ((), (), ())
        pushing, bodies, *vectors = zip(*thrusters, strict=True) if thrusters else ((), (), (), (), ())
        stateful = [control for control, actuator in enumerate(actuators) if actuator.time_constant]
        of_states = [actuators[control] for control in stateful]
        delayed = [control for control, actuator in enumerate(actuators) if actuator.delay]
        bounds = np.tile(_ANY, (model.nv, 1))
        for joint, pair in (effort_range or {}).items():
            bounds[[column for column, _ in arms_of_joints(model.topology, {joint: (1.0,)}, "effort_range")]] = pair
        return Actuators(
            tuple(names),
            controls,
            columns,
            np.array(lengths, float),
            pushing,
            bodies,
            *(jnp.asarray(np.reshape(x, (-1, 3)), float) for x in vectors),
            **{name: _unless(default, [getattr(x, name) for x in actuators]) for name, default in _OPTIONAL.items()},
            gain=np.array([actuator.gain for actuator in actuators], float),
            stateful=tuple(stateful),
            integrates=tuple(x.integrates for x in of_states),
            time_constant=floating_or_none(_unless(0.0, [x.time_constant for x in of_states])),
            state_range=floating_or_none(_unless(_ANY, [x.state_range for x in of_states])),
            delayed=tuple(delayed),
            delay=floating_or_none(_unless(0.0, [actuators[control].delay for control in delayed])),
            effort_range=jnp.asarray(bounds, float) if effort_range else None,
            pulling=tuple(paths),
            paths=tuple(paths.values()),
        )

    def descriptions(self, model: Model) -> list[Actuator]:
        """The actuators from which `Actuators.of` makes these drives.

        Args:
            model: The mechanism.
        """
        topology, found = model.topology, []
        for control, name in enumerate(self.names):
            values = {
                key: np.asarray(getattr(self, key))[control].tolist()
                for key in ("gain", *_OPTIONAL)
                if getattr(self, key) is not None
            }
            if control in self.stateful:
                k = self.stateful.index(control)
                values["integrates"] = self.integrates[k]
                for key in ("time_constant", "state_range"):
                    if getattr(self, key) is not None:
                        values[key] = np.asarray(getattr(self, key))[k].tolist()
            if control in self.delayed:
                values["delay"] = float(np.asarray(self.delay)[self.delayed.index(control)])
            own = [k for k, owner in enumerate(self.controls) if owner == control]
            joints = joints_of_arms(topology, [self.columns[k] for k in own], np.asarray(self.arms)[own].tolist())
            if control in self.pulling:
                values["path"] = self.paths[self.pulling.index(control)].waypoints(model)
            if control in self.thrusters:
                k = self.thrusters.index(control)
                vectors = {"point": self.points, "force": self.pushes, "torque": self.turns}
                values |= {key: tuple(np.asarray(x)[k].tolist()) for key, x in vectors.items()}
                values["body"] = topology.body_name(self.bodies[k])
            plain_values: dict[str, Any] = {key: tuple(x) if isinstance(x, list) else x for key, x in values.items()}
            found.append(Actuator(name, joints, **plain_values))
        return found

    def effort_ranges(self, model: Model) -> dict[str, tuple[float, float]]:
        """Bounds of the sums of the generalized forces, by the names of the joints that have finite ones.

        Args:
            model: The mechanism.
        """
        bounds = np.tile(_ANY, (model.nv, 1)) if self.effort_range is None else np.asarray(self.effort_range)
        finite = np.flatnonzero(np.isfinite(bounds).any(axis=1))
        names, owners = model.topology.joint_names, model.topology.body_of_column
        return {names[owners[column]]: tuple(bounds[column].tolist()) for column in finite}

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def control_bounds(self) -> tuple[Float[Array, "nu"], Float[Array, "nu"]] | None:
        return None if self.control_range is None else (self.control_range[:, 0], self.control_range[:, 1])

    @property
    def state_count(self) -> int:
        return POINTS * len(self.delayed) + len(self.stateful)

    @property
    def state_bounds(self) -> tuple[States, States] | None:
        if self.state_range is None:
            return None
        low, high = self.state_range[:, 0], self.state_range[:, 1]
        if not self.delayed:
            return low, high
        free = jnp.full(POINTS * len(self.delayed), np.inf, low.dtype)
        return jnp.concatenate([-free, low]), jnp.concatenate([free, high])

    def rates(self, model: Model, q: Coordinates, v: Velocities, z: States, u: Controls) -> States:
        late, z = self._parts(z)
        u, changes = self._commands(u), []
        if self.delay is not None:
            changes.append(jax.vmap(delays.rates)(late, u[np.array(self.delayed)], self.delay).ravel())
            u = self._after_delays(late, u)
        if self.time_constant is not None:
            changes.append(self._drive(z, u) / self.time_constant)  # (H22)
        return jnp.concatenate(changes)

    def states_over_step(
        self, model: Model, q: Coordinates, v: Velocities, z: States, u: Controls, step: Scalar | float
    ) -> tuple[States, States]:
        late, z = self._parts(z)
        u, means, ends = self._commands(u), [], []
        if self.delay is not None:
            move = jax.vmap(delays.over_step, in_axes=(0, 0, 0, None))
            mean, end = move(late, u[np.array(self.delayed)], self.delay, step)
            means, ends, u = [mean.ravel()], [end.ravel()], self._after_delays(mean, u)
        if self.time_constant is not None:
            drive = self._drive(z, u)
            x, integrates = step / self.time_constant, np.array(self.integrates)
            share = jnp.where(integrates, x, -jnp.expm1(-x))
            # The quotient cancels in short steps, and is 0/0 in a step of length zero.
            short = jnp.abs(x) < _SHORT
            series = x * (1 / 2 - x * (1 / 6 - x * (1 / 24 - x * (1 / 120 - x / 720))))
            lag = jnp.where(short, series, 1.0 - share / jnp.where(short, 1.0, x))
            mean = jnp.where(integrates, 0.5 * x, lag)
            means, ends = [*means, z + mean * drive], [*ends, z + share * drive]  # (H23)
        return jnp.concatenate(means), jnp.concatenate(ends)

    def steady_states(self, u: Controls) -> States | None:
        u = self._commands(u)
        steady = [*np.repeat(self.delayed, POINTS), *self.stateful]
        return None if any(self.integrates) else u[np.array(steady, int)]

    def acting(self, z: States, u: Controls) -> Controls:
        late, z = self._parts(z)
        u = self._after_delays(late, u)
        return u.at[np.array(self.stateful, int)].set(z) if self.stateful else u

    def _parts(self, z: States) -> tuple[Float[Array, "delays points"], Float[Array, "lags"]]:
        """States of the delays, and those of lags and integrals."""
        of_delays = POINTS * len(self.delayed)
        return z[:of_delays].reshape(len(self.delayed), POINTS), z[of_delays:]

    def _after_delays(self, late: Float[Array, "delays points"], u: Controls) -> Controls:
        return u.at[np.array(self.delayed)].set(late[:, -1]) if self.delayed else u

    def _drive(self, z: Float[Array, "lags"], u: Controls) -> Float[Array, "lags"]:
        """Rates of lags and integrals times their time constants."""
        return u[np.array(self.stateful, int)] - jnp.where(np.array(self.integrates), 0.0, z)

    def _commands(self, u: Controls) -> Controls:
        """Bounded controls."""
        return u if self.control_range is None else jnp.clip(u, self.control_range[:, 0], self.control_range[:, 1])

    @property
    def unbounded(self) -> "Actuators":
        bounds = ("control_range", "force_range", "state_range", "effort_range", "stall_force", "no_load_speed")
        return dataclasses.replace(self, **dict.fromkeys(bounds))

    def control_names(self, model: Model) -> tuple[str, ...]:
        return self.names

    def row_names(self, model: Model, axis: str) -> tuple[str, ...] | None:
        owners = {"lags": self.stateful, "delays": self.delayed, "nt": self.thrusters}
        if axis in owners:
            return tuple(self.names[control] for control in owners[axis])
        if axis != "arms":
            return super().row_names(model, axis)
        known, owners = (
            component_names(model, Quantity(along="velocity")),
            zip(self.controls, self.columns, strict=True),
        )
        return tuple(f"{self.names[control]} on {known[column]}" for control, column in owners)

    def validate(self, model: Model) -> str | None:
        topology = model.topology
        wrong = topology.error_with_columns(self.columns) or topology.error_with_bodies(*self.bodies)
        if wrong is None and GROUND in self.bodies:
            wrong = "an actuator on the ground has no effect; give a body"
        sizes = {"nu": self.count, "nv": model.nv, "arms": len(self.columns), "nt": len(self.bodies)}
        sizes |= {"lags": len(self.stateful), "delays": len(self.delayed)}
        owners = (*self.controls, *self.thrusters, *self.pulling, *self.stateful, *self.delayed)
        counts = len(self.pulling) == len(self.paths) and len(self.integrates) == len(self.stateful)
        if wrong is None and not (counts and all(0 <= k < self.count for k in owners)):
            wrong = "its paths, states and moment arms do not belong to its controls; make it by Actuators.of"
        timed = ((self.stateful, self.time_constant), (self.delayed, self.delay))
        if wrong is None and any(bool(owners) and times is None for owners, times in timed):
            wrong = "its states have no time constants or delays; make it by Actuators.of"
        wrong = wrong or next((problem for path in self.paths if (problem := path.validate(model))), None)
        return wrong or invalid(self, sizes)

    def forces(self, model: Model, q: Coordinates, v: Velocities, u: Controls) -> Velocities:
        moving = kinematics.motion(model, q, v) if self.bodies or self.paths else None
        arms, length, rate, _ = self._transmission(model, q, v, moving)
        return self._bounded(dot(self._forces(length, rate, u)[0], arms))

    def body_forces(self, model: Model, moving: Motion, u: Controls) -> Float[Array, "nb 6"]:
        _, length, rate, wrenches = self._transmission(model, moving.q, moving.v, moving)
        return einsum("c,cbk->bk", self._forces(length, rate, u)[0], wrenches)

    def over_step(self, model: Model, moving: Motion, u: Float[Array, "nu"], step: Scalar | float) -> OverStep:
        arms, length, rate, _ = self._transmission(model, moving.q, moving.v, moving)
        force, stiffness, damping = self._forces(length, rate, u)
        now = dot(force, arms)
        if all(getattr(self, name) is None for name in _RESISTING):
            return OverStep(self._bounded(now))
        stiffness, damping = jnp.maximum(stiffness, 0.0), jnp.maximum(damping, 0.0)
        if self.effort_range is not None:  # at the bound of a joint, the force is constant
            at_bound = (now < self.effort_range[:, 0]) | (now > self.effort_range[:, 1])
            constant = dot(jnp.abs(arms), at_bound.astype(now.dtype)) > 0.0
            stiffness, damping = jnp.where(constant, 0.0, stiffness), jnp.where(constant, 0.0, damping)
        now = self._bounded(now) - dot(step * stiffness * rate, arms)
        resistance = step * (damping + step * stiffness)  # (I12)
        single = len(set(self.controls)) == len(self.controls) and not self.bodies and not self.paths
        if single:  # no coupling of joints
            return OverStep(now, dot(resistance, arms**2))
        return OverStep(now, AddedInertia(None, dot(arms.T, resistance[:, None] * arms)))

    def _forces(self, length: Controls, rate: Controls, u: Controls) -> tuple[Controls, Controls, Controls]:
        """Bounded forces f, -df/dl and -df/d(dl/dt), which are zero beyond bounds."""
        bounds = self._acting_bounds
        u = u if bounds is None else jnp.clip(u, bounds[:, 0], bounds[:, 1])
        zero = jnp.zeros_like(self.gain)
        stiffness, damping = (zero if x is None else x for x in (self.stiffness, self.damping))
        force = self.gain * u
        for gain, target in ((stiffness, self.position_target), (damping, self.velocity_target)):
            force = force if target is None else force + gain * target * u
        stiffness = stiffness if self.controlled_stiffness is None else stiffness + self.controlled_stiffness * u
        damping = damping if self.controlled_damping is None else damping + self.controlled_damping * u
        force = force - stiffness * length - damping * rate  # (H16)
        force = force if self.offset is None else force + self.offset
        bounds = []
        if self.stall_force is not None and self.no_load_speed is not None:
            slope = jnp.where(jnp.isinf(self.stall_force), 0.0, self.stall_force) / self.no_load_speed
            bounds.append((-self.stall_force - slope * rate, self.stall_force - slope * rate, slope))  # (H17)
        if self.force_range is not None:
            bounds.append((self.force_range[:, 0], self.force_range[:, 1], 0.0))
        for low, high, slope in bounds:
            inside = (low < force) & (force < high)
            stiffness, damping = jnp.where(inside, stiffness, 0.0), jnp.where(inside, damping, slope)
            force = jnp.clip(force, low, high)
        return force, stiffness, damping

    @property
    def _acting_bounds(self) -> Float[Array, "nu 2"] | None:
        """Bounds of the controls, and of the states that replace some of them."""
        if not self.stateful:
            return self.control_range
        unlimited = jnp.asarray(np.tile(_ANY, (self.count, 1)), self.gain.dtype)
        bounds = unlimited if self.control_range is None else self.control_range
        own = unlimited[: len(self.stateful)] if self.state_range is None else self.state_range
        return bounds.at[np.array(self.stateful, int)].set(own)

    def _bounded(self, tau: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return tau if self.effort_range is None else jnp.clip(tau, self.effort_range[:, 0], self.effort_range[:, 1])

    def _transmission(
        self, model: Model, q: Coordinates, v: Velocities, moving: Motion | None
    ) -> tuple[Float[Array, "nu nv"], Controls, Controls, Float[Array, "nu nb 6"]]:
        """The matrix B of all moment arms, the lengths, their rates, and the forces on bodies of a unit of each f; the motion may
        be None if all actuators are on joints."""
        dtype, columns = self.arms.dtype, np.array(self.columns, int)
        owners = np.equal.outer(np.arange(self.count), np.array(self.controls, int)).astype(dtype)
        arms = dot(owners * self.arms[None], np.equal.outer(columns, np.arange(model.nv)).astype(dtype))
        length, rate = dot(arms, moved_along_columns(model.topology, q)), dot(arms, v)
        wrenches = jnp.zeros((self.count, model.nb, 6), dtype)
        if moving is None or not (self.bodies or self.paths):
            return arms, length, rate, wrenches
        placed = moving.placements
        for k, (control, body) in enumerate(zip(self.thrusters, self.bodies, strict=True)):
            _, arm = kinematics.point_on_body(placed, body, self.points[k])
            push, turn = (dot(placed.rotation[body], x[k]) for x in (self.pushes, self.turns))
            wrenches = wrenches.at[control].set(on_body(model, body, force_at_point(arm, push, turn)))
        for control, path in zip(self.pulling, self.paths, strict=True):
            line = path.at(model, moving)
            length, wrenches = length.at[control].set(line.length), wrenches.at[control].set(line.wrench)
        arms = arms + jax.vmap(lambda wrench: inverse.project(model, placed, wrench))(wrenches)
        return arms, length, rate + einsum("cbk,bk->c", wrenches, moving.velocity), wrenches


_RESISTING = ("stiffness", "damping", "controlled_stiffness", "controlled_damping", "stall_force")


_SHORT = 0.05  # step over time constant
_OF_STATE = ("time_constant", "integrates", "state_range", "delay")


_OPTIONAL = {
    field.name: field.default
    for field in dataclasses.fields(Actuator)
    if field.name not in ("name", "joints", "gain", "path", "body", "point", "force", "torque", *_OF_STATE)
}


def _unless(default: Any, values: list[Any]) -> np.ndarray | None:
    """The values of all controls; None if all are the default."""
    return None if all(value == default for value in values) else np.array(values, float)
