"""Old public names, which remain for one release: each refers to the object with the new name and issues a warning.

`refuse_renamed` rejects a renamed argument and states its new name; `renamed_argument` still accepts it, with a warning;
`renamed_property` defines a renamed attribute.
"""

import functools
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from typing import Any

# Old name: new name. Both are full dotted names; `jaxdyn.lazy` looks here for a name that a package does not have.
RENAMED: dict[str, str] = {
    "jaxdyn.control.Condition": "jaxdyn.deprecated.equality_or_inequality",
    "jaxdyn.control.Flow": "jaxdyn.control.ContinuousDynamics",
    "jaxdyn.control.Mechanics": "jaxdyn.control.MultibodyDynamics",
    "jaxdyn.control.RecordedSolution": "jaxdyn.control.Solution",
    "jaxdyn.control.StepFunction": "jaxdyn.control.DiscreteDynamics",
    "jaxdyn.control.planned": "jaxdyn.control.rollout_controls",
    "jaxdyn.identify.descend": "jaxdyn.deprecated.fit_by_gradient_descent",
    "jaxdyn.identify.predicted_readings": "jaxdyn.identify.predicted_measurements",
}


def equality_or_inequality(function: Any, kind: str = "zero", name: str = "constraint") -> Any:
    """Replacement of `control.Condition`: `control.Equality` for the kind "zero", `control.Inequality` for "negative".

    Args:
        function: Residual of the constraint.
        kind: Kind of constraint, "zero" or "negative".
        name: Name of the constraint, for messages.
    """
    classes = {"zero": "Equality", "negative": "Inequality"}
    if kind not in classes:
        raise ValueError(f'condition {name!r}: kind is {kind!r}; use "zero" or "negative"')
    return pkgutil.resolve_name(f"jaxdyn.control.{classes[kind]}")(function, name)


def fit_by_gradient_descent(
    problem: Any, optimizer: Any, *, steps: int, batch: int, key: Any, unknowns: Any = None, progress: bool = True
) -> Any:
    """Replacement of `identify.descend`: the unknowns after `steps` steps of gradient descent, and the loss of each batch.

    Args:
        problem: Identification problem.
        optimizer: Optimizer of optax.
        steps: Number of steps.
        batch: Number of samples per step.
        key: Random key.
        unknowns: Initial guess; by default the initial guess of the problem.
        progress: Show a progress bar.
    """
    warnings.warn(
        "write identify.fit(problem, identify.GradientDescent(optimizer, batch=..., key=...), max_steps=...)",
        FutureWarning,
        stacklevel=2,
    )
    identify = pkgutil.resolve_name("jaxdyn.identify")
    solver = identify.GradientDescent(optimizer, batch=batch, key=key)
    found = identify.fit(problem, solver, unknowns, max_steps=steps, throw=False, progress=progress, history=True)
    return found.unknowns, found.history


def refuse_renamed(function: str, given: dict[str, Any], **names: str) -> None:
    """Raise an error for unknown arguments of a function; the message states the new names of renamed arguments.

    Args:
        function: Name of the function, for the message.
        given: Unknown arguments with their values, or an empty dictionary.
        names: New name of each renamed argument.

    Raises:
        TypeError: An unknown argument is given.
    """
    for name in given:
        remedy = f"is now {names[name]}" if name in names else "is unknown"
        raise TypeError(f"{function}: the argument {name!r} {remedy}")


# Names that moved from the top level of jaxdyn to one of its packages.
_MOVED = {
    "formulations": """
        acceleration_energy acceleration_energy_from_kinetic acceleration_energy_of_velocity acceleration_energy_terms
        canonical_rates generalized_momentum gibbs_appell_accelerations gibbs_appell_forces hamiltonian kane_forces
        lagrange_forces lagrange_terms screw_accelerations screw_displacements screw_exponential screw_poses
        screw_velocities screws
    """,
    "constraints": """
        Assembly Constraint ConstraintErrors ConstraintForces LoopReaction MinimalMotion Mobility Projection
        constraint_errors constraint_jacobian describe_mobility independent_velocities minimal_acceleration minimal_motion
        mobility project_position
    """,
    "dynamics": """
        Force Resistance covariant_derivative driving_power forward_dynamics_hessian_product
        inverse_dynamics_hessian_product stabilizing_correction
    """,
    "mechanism": """
        Joint Limits PrescribedMotion Rotors Topology model_from_arrays
    """,
    "simulate": """
        DivergenceWarning Integrator geodesic power_balance_error rollout_adaptive work_of_step
    """,
}
RENAMED["jaxdyn.dynamics.attitude"] = "jaxdyn.formulations.attitude"
RENAMED["jaxdyn.io.markers"] = "jaxdyn.identify.markers"
RENAMED["jaxdyn.Reactions"] = "jaxdyn.dynamics.JointReaction"
RENAMED["jaxdyn.Result"] = "jaxdyn.simulate.RolloutResult"
RENAMED |= {f"jaxdyn.{name}": f"jaxdyn.{home}.{name}" for home, names in _MOVED.items() for name in names.split()}


def renamed(name: str, stacklevel: int = 4) -> Any:
    """Return the object to which an old name refers and issue a warning; None if the name is not an old one.

    Args:
        name: Full dotted name, such as "jaxdyn.control.Condition".
        stacklevel: Number of calls between the warning and the user's code.
    """
    if name not in RENAMED:
        return None
    warnings.warn(
        f"{name} is now {RENAMED[name]}; the old name will be removed in the next release",
        FutureWarning,
        stacklevel=stacklevel,
    )
    package, _, attribute = RENAMED[name].rpartition(".")
    return getattr(pkgutil.resolve_name(package), attribute)


def unpacked(owner: Any, *names: str) -> Iterator[Any]:
    """Iterate over attributes of an object that was a tuple in earlier releases, and issue a warning.

    Args:
        owner: Object with the attributes.
        names: Names of the attributes, in the order of the former tuple.
    """
    warnings.warn(
        f"{type(owner).__name__} is no longer a tuple; use its attributes {', '.join(names)}",
        FutureWarning,
        stacklevel=3,
    )
    return iter([getattr(owner, name) for name in names])


def renamed_argument(old: str, new: str) -> Callable[[Any], Any]:
    """Decorator of a function that still accepts the old name of a keyword argument, and issues a warning.

    Args:
        old: Old name of the argument.
        new: New name of the argument.
    """

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if old in options:
                name = function.__qualname__.removesuffix(".__init__")
                warnings.warn(
                    f"{name}: the argument {old!r} is now {new!r}; the old name will be removed in the next release",
                    FutureWarning,
                    stacklevel=2,
                )
                options[new] = options.pop(old)
            return function(*args, **options)

        return call

    return decorate


def renamed_property(old: str, new: str) -> property:
    """Property for the old name of an attribute: it issues a warning and returns the attribute with the new name."""

    def get(self: Any) -> Any:
        warnings.warn(
            f"{type(self).__name__}.{old} is now {new}; the old name will be removed in the next release",
            FutureWarning,
            stacklevel=2,
        )
        return getattr(self, new)

    return property(get)
