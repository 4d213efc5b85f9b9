"""Motion over time: integrators, controls, rollouts and their diagnostics."""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.simulate.adaptive import rollout_adaptive as rollout_adaptive
    from jaxdyn.simulate.controllers import PDControl as PDControl
    from jaxdyn.simulate.controllers import random_knots as random_knots
    from jaxdyn.simulate.controls import Controller as Controller
    from jaxdyn.simulate.controls import Knots as Knots
    from jaxdyn.simulate.diagnostics import deepest_penetration as deepest_penetration
    from jaxdyn.simulate.diagnostics import save_contacts_and_frames as save_contacts_and_frames
    from jaxdyn.simulate.diagnostics import work_of_step as work_of_step
    from jaxdyn.simulate.geodesics import geodesic as geodesic
    from jaxdyn.simulate.integrators import ExplicitEuler as ExplicitEuler
    from jaxdyn.simulate.integrators import ImplicitMidpoint as ImplicitMidpoint
    from jaxdyn.simulate.integrators import Integrator as Integrator
    from jaxdyn.simulate.integrators import RungeKutta4 as RungeKutta4
    from jaxdyn.simulate.integrators import SemiImplicitEuler as SemiImplicitEuler
    from jaxdyn.simulate.outcome import DivergenceWarning as DivergenceWarning
    from jaxdyn.simulate.outcome import RolloutError as RolloutError
    from jaxdyn.simulate.outcome import RolloutResult as RolloutResult
    from jaxdyn.simulate.projected import Projected as Projected
    from jaxdyn.simulate.single_step import stepper as stepper
    from jaxdyn.simulate.trajectory import Trajectory as Trajectory
    from jaxdyn.simulate.trajectory import rollout as rollout
    from jaxdyn.simulate.variational import Variational as Variational
    from jaxdyn.simulate.violations import ConstraintWarning as ConstraintWarning
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
