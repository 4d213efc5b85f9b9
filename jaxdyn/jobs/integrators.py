"""Integrators by their names in configs."""

from jaxdyn.jobs.choices import IntegratorName
from jaxdyn.simulate.integrators import ExplicitEuler, ImplicitMidpoint, Integrator, RungeKutta4, SemiImplicitEuler
from jaxdyn.simulate.projected import Projected
from jaxdyn.simulate.variational import Variational

INTEGRATORS: dict[IntegratorName, Integrator] = {
    "explicit_euler": ExplicitEuler(),
    "semi_implicit_euler": SemiImplicitEuler(),
    "semi_implicit_euler_explicit_damping": SemiImplicitEuler(damping="explicit"),
    "runge_kutta_4": RungeKutta4(),
    "implicit_midpoint": ImplicitMidpoint(),
    "variational": Variational(),
    "projected": Projected(),
}
