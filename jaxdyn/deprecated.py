"""Old public names, which stay for one release: each gives the object of its new name with a warning.

A renamed argument or attribute is not listed here; its function or class says in its error what took its place.
"""

import pkgutil
import warnings
from typing import Any

# Old name: new name. Both are full dotted names; `jaxdyn.lazy` looks here for a name that a package does not have.
RENAMED: dict[str, str] = {}

# Names that left the top level of jaxdyn for one of its packages.
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
        Force Reactions Resistance covariant_derivative driving_power forward_dynamics_hessian_product
        inverse_dynamics_hessian_product stabilizing_correction
    """,
    "mechanism": """
        Joint Limits PrescribedMotion Rotors Topology model_from_arrays
    """,
    "simulate": """
        DivergenceWarning Integrator geodesic power_balance_error rollout_adaptive work_of_step
    """,
}
RENAMED["jaxdyn.Result"] = "jaxdyn.simulate.RolloutResult"
RENAMED |= {f"jaxdyn.{name}": f"jaxdyn.{home}.{name}" for home, names in _MOVED.items() for name in names.split()}


def renamed(name: str) -> Any:
    """The object that an old name stood for, with a warning; None if the name is not an old one.

    Args:
        name: full dotted name, such as "jaxdyn.control.Condition".
    """
    if name not in RENAMED:
        return None
    warnings.warn(
        f"{name} is now {RENAMED[name]}; the old name goes with the next release", FutureWarning, stacklevel=4
    )
    package, _, attribute = RENAMED[name].rpartition(".")
    return getattr(pkgutil.resolve_name(package), attribute)
