"""A mechanism with the forces and constraints on it, its state, and the checks of functions that take both."""

import collections
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import kernel_function
from jaxdyn.compute.arrays import on_device
from jaxdyn.display import Display, Displayed, array_text, counted, plural
from jaxdyn.dynamics import forward
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.contact import Contact
from jaxdyn.dynamics.doors import check_masses, check_model, check_vectors, with_check
from jaxdyn.dynamics.drives import Drives
from jaxdyn.dynamics.forces import BodyForce, Force, GeneralizedForce
from jaxdyn.dynamics.forces.joint_limits import JointLimits
from jaxdyn.dynamics.forward import check_method
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.messages import MechanismError, check_instance, described
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import plain, quantity

Time = Float[Array, ""] | float


class State(Displayed, eqx.Module):
    """Configuration and velocity of a mechanism, and the states of its drives.

    Attributes:
        q: Generalized coordinates, rad or m.
        v: Generalized velocities, rad/s or m/s.
        z: States of the drives, such as the delayed controls of actuators with a lag; None if no drive has a state.
    """

    q: Float[Array, "*batch nq"]
    v: Float[Array, "*batch nv"]
    z: Float[Array, "*batch nz"] | None = None

    def _display(self) -> Display:
        states = "" if self.z is None else f", z: {array_text(self.z)}"
        return Display(f"State(q: {array_text(self.q)}, v: {array_text(self.v)}{states})", {})


_OF_MODELS = {*dir(Model), *(field.name for field in dataclasses.fields(Model))}


class System(Displayed, eqx.Module):
    """A mechanism and all forces and constraints on it. Results can be differentiated with respect to all parameters of the system.

    Attributes:
        model: Mechanism, including gravity.
        forces: Springs, dampers, friction, applied forces.
        drives: Map from controls to generalized forces. If None, each control is the generalized force of one velocity component.
        method: Algorithm of the forward dynamics, see `forward_dynamics`.
        constraints: Constraints that close loops or couple coordinates.
        stabilization: Rate w at which errors of the constraints decay, 1/s (critically damped). If None, w is 1/2 divided by the
            step of the integrator.
        unused_colliders: Number of colliders (collision shapes) in the file of the mechanism that are not simulated.

    Raises:
        MechanismError: A force, drive or constraint refers to a body or velocity component that the model does not have, two
            constraints have the same name, or `stabilization` is not a valid rate.

    Example:
        ```python
        import jaxdyn

        model = jaxdyn.library.double_pendulum()
        friction = jaxdyn.JointFriction(viscous=[0.1, 0.1], coulomb=[0.0, 0.0], velocity_scale=[1.0, 1.0])
        system = jaxdyn.System(model, forces=(friction,))
        print(system.summary())
        ```
    """

    model: Model
    forces: tuple[Force, ...] = ()
    drives: Drives | None = None
    method: forward.ForwardMethod = eqx.field(static=True, default="auto", kw_only=True)
    constraints: tuple[Constraint, ...] = ()
    stabilization: float | None = eqx.field(
        static=True, converter=plain, default=None, kw_only=True, metadata=quantity("1/s", minimum=0.0)
    )
    unused_colliders: int = eqx.field(static=True, converter=plain, default=0, kw_only=True)

    def __check_init__(self):
        self._check_types()
        counted = collections.Counter(constraint.name for constraint in self.constraints)
        twice = [name for name, count in counted.items() if count > 1]
        if twice:
            raise MechanismError(
                f"mechanism {self.model.name!r} has several constraints {twice[0]!r}; give each constraint a different name"
            )
        self.model.topology.check_names(*self.model.rotors.names, *counted)
        check_method(self.method)
        check_instance("stabilization", self.stabilization, int | float | np.number | None, "a rate in 1/s, or None")
        if self.stabilization is not None and not 0.0 <= self.stabilization < float("inf"):
            raise MechanismError(f"stabilization is {self.stabilization} 1/s; give a rate of at least 0, or None")
        for part in (*self.forces, *([] if self.drives is None else [self.drives]), *self.constraints):
            problem = part.validate(self.model)
            if problem is not None:
                raise MechanismError(f"{type(part).__name__} on mechanism {self.model.name!r}: {problem}")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            remedy = f"; a Model has it, system.model.{name}" if name in _OF_MODELS else ""
            raise AttributeError(f"a System has no attribute {name!r}{remedy}")

    def changed(self, **parts: Any) -> "System":
        """Copy of the system in which some fields are replaced. Values are not checked again, so that an identified system may have
        estimates outside of the bounds that hold in files, such as a negative stiffness.

        Args:
            parts: Fields by name, such as `forces` or `method`.
        """
        other = object.__new__(System)
        for field in dataclasses.fields(self):
            object.__setattr__(other, field.name, parts.get(field.name, getattr(self, field.name)))
        return other

    def _check_types(self) -> None:
        check_model(self.model, "System")
        for name, kinds in (("forces", (BodyForce, GeneralizedForce)), ("constraints", (Constraint,))):
            parts = getattr(self, name)
            if isinstance(parts, str):
                raise TypeError(f"{name} is {parts!r}; write method={parts!r}, by name, if this is the method")
            check_instance(name, parts, tuple | list, f"a tuple, ({name.removesuffix('s')},)")
            for part in parts:
                if not isinstance(part, kinds):
                    wanted = f"a {' or a '.join(kind.__name__ for kind in kinds)}"
                    remedy = f"give {f'an instance, {part.__name__}(...)' if isinstance(part, type) else wanted}"
                    raise TypeError(f"one of the {name} is {described(part)}; {remedy}")
        check_instance("drives", self.drives, Drives | None, "JointDrives(columns, gear)")

    @property
    def nu(self) -> int:
        """Number of controls."""
        return self.model.nv if self.drives is None else self.drives.count

    @property
    def nz(self) -> int:
        """Number of states of the drives."""
        return 0 if self.drives is None else self.drives.state_count

    @property
    def left_out(self) -> str:
        """Kinds of the constraints, forces and drives, which functions of the model leave out; empty if there are none."""
        parts = [*self.constraints, *self.forces, *([] if self.drives is None else [self.drives])]
        return counted(type(part).__name__ for part in parts)

    def at_rest(self, q: Float[Array, "nq"]) -> State:
        """State at rest at the coordinates q; the states of the drives are zero."""
        v, z = (on_device(np.zeros(size, q.dtype)) for size in (self.model.nv, self.nz))
        return State(q, v, z if self.nz else None)

    def _use_of_limits(self) -> str:
        """Number of joints with position limits, and whether the limits are enforced."""
        limits = self.model.limits
        count = int(np.sum(np.isfinite(limits.lower) | np.isfinite(limits.upper)))
        enforced = any(isinstance(force, JointLimits) for force in self.forces)
        return f"{count}, {'enforced' if enforced else 'data only'}" if count else "none"

    def contact_text(self) -> str:
        """Description of the contacts, or the number of colliders that are not simulated; empty without both."""
        contacts = [force.describe() for force in self.forces if isinstance(force, Contact)]
        if contacts or not self.unused_colliders:
            return "; ".join(contacts)
        count = plural(self.unused_colliders, "collider", "colliders")
        return f'{count} not simulated; read the file with contact="ground" for contacts'

    def _display(self) -> Display:
        title, of_model = self.model._display()
        rows = {"joints": of_model.pop("joints"), "forces": counted(type(force).__name__ for force in self.forces)}
        if self.contact_text():
            rows["contacts"] = self.contact_text()
        rows["controls"] = str(self.nu)
        rows["constraints"] = ", ".join(constraint.name for constraint in self.constraints) or "none"
        return Display(f"System{title.removeprefix('Model')}", rows | of_model)

    def summary(self) -> str:
        """Text description: `Model.summary`, and the forces, drives and constraints."""
        lines = [self.model.summary(), ""]
        kinds = collections.Counter(type(force).__name__ for force in self.forces)
        lines.append("forces       " + (", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "gravity only"))
        lines.append(f"limits       {self._use_of_limits()}")
        if self.contact_text():
            lines.append(f"contacts     {self.contact_text()}")
        lines.append(
            f"drives       {self.nu}"
            + ("" if self.drives is None else f": {', '.join(self.drives.control_names(self.model))}")
            + (f"; {plural(self.nz, 'state', 'states')}" if self.nz else "")
        )
        lines.append(f"constraints  {len(self.constraints)}")
        lines += [f"  {constraint.name}: {constraint.describe(self.model)}" for constraint in self.constraints]
        return "\n".join(lines)


def check_system(system: Any, name: str) -> None:
    """Raise an error unless the argument is a `System`.

    Args:
        system: Argument to check.
        name: Name of the called function, for the message.

    Raises:
        TypeError: The argument has another type; the message states the required type.
    """
    if not isinstance(system, System):
        remedy = "use System(model)" if isinstance(system, Model) else "give a System, System(model, forces)"
        raise TypeError(f"you passed {described(system)}; {name} works on a System: {remedy}")


def check_state(system: System, state: Any, name: str) -> None:
    """Raise an error unless the argument is a `State` that fits the system.

    Args:
        system: System that the state must fit.
        state: Argument to check.
        name: Name of the called function, for the message.

    Raises:
        TypeError: The argument has another type; the message states the required type.
        ValueError: The state has the wrong shape.
    """
    if not isinstance(state, State):
        raise TypeError(
            f"{name} got {described(state)} as the state; give State(q, v), with arrays q and v, or system.at_rest(q)"
        )
    check_vectors(system.model, {"q": state.q, "v": state.v})
    if state.z is not None:
        check_instance("z", state.z, jax.Array | np.ndarray, "an array, jnp.asarray(z)")
        if not np.issubdtype(state.z.dtype, np.floating):
            raise ValueError(f"z has the type {state.z.dtype}; give floating-point numbers")
    if state.z is not None and state.z.shape != (system.nz,):
        raise ValueError(
            f"{name}: z has shape {state.z.shape}, but the drives of the system on {system.model.name!r} have "
            + (f"{system.nz} states: give shape ({system.nz},)" if system.nz else "no states: give State(q, v)")
        )


def check_drive_states(system: System, z: Any) -> None:
    """Raise an error if a state lacks the states of the drives.

    Args:
        system: System with the drives.
        z: States of the drives, or None.

    Raises:
        ValueError: The state has no z; the message states the remedy.
    """
    if system.nz and z is None:
        raise ValueError(
            f"the drives of the system on {system.model.name!r} have {system.nz} states, but the state has no z; give "
            "State(q, v, z), or system.at_rest(q), whose z is zero"
        )


def check_controls(system: System, u: Any) -> None:
    """Raise an error unless the argument is an array with one value per control, or None.

    Args:
        system: System with the controls.
        u: Argument to check.

    Raises:
        TypeError: The argument is not an array.
        ValueError: The array has the wrong shape; the message states the required shape.
    """
    if u is None:
        return
    check_instance("control u", u, jax.Array | np.ndarray, "an array, jnp.asarray(u)")
    if u.shape != (system.nu,):
        raise ValueError(
            f"control u has shape {u.shape}, but the system on {system.model.name!r} has {system.nu} controls: "
            f"give shape ({system.nu},)"
        )


def system_function(function: Callable) -> Callable:
    """Decorator that checks the arguments of a public function (system, state, ...) and, outside of `jit`, compiles the
    function."""
    return kernel_function(function, check=_check_of(function))


def dynamic_function(function: Callable) -> Callable:
    """Decorator like `system_function`, for functions that need masses."""
    return kernel_function(function, check=_check_of(function, needs_masses=True))


def checked_system(function: Callable) -> Callable:
    """Decorator that checks the arguments of a public function (system, state, ...)."""
    return with_check(function, _check_of(function))


def _check_of(function: Callable, *, needs_masses: bool = False) -> Callable[[tuple, dict], None]:
    """Check of the arguments and the options of a call."""
    names = tuple(inspect.signature(function).parameters)

    def check(args: tuple, options: dict) -> None:
        given = dict(zip(names, args, strict=False)) | options
        if "system" in given:  # otherwise Python reports the missing argument
            check_system(given["system"], function.__name__)
            if needs_masses:
                check_masses(given["system"].model, function.__name__)
        if {"system", "state"} <= given.keys():
            check_state(given["system"], given["state"], function.__name__)
            check_vectors(given["system"].model, {"a": given.get("a")})
            check_controls(given["system"], given.get("u"))
        if given.get("key") is not None:
            configuration.check_key(given["key"])

    return check


def or_system(of_system: Callable) -> Callable:
    """Decorator of a public function of a model that also takes a `System`, for which it calls `of_system`.

    Args:
        of_system: Function of (system, state, ...), with checks.
    """

    def decorate(function: Callable) -> Callable:
        inner = of_system
        while inner is not None:  # messages of its checks name the public function
            inner.__name__ = function.__name__
            inner = getattr(inner, "__wrapped__", None)

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            first = args[0] if args else options.get("system")
            if isinstance(first, System) and "q" in options:
                raise TypeError(
                    f"{function.__name__} of a System takes a state, not q: State(q, v) or system.at_rest(q)"
                )
            return (of_system if isinstance(first, System) else function)(*args, **options)

        return call

    return decorate


@system_function
def neutral_state(system: System) -> State:
    """State at rest in the neutral configuration."""
    return system.at_rest(configuration.neutral(system.model))
