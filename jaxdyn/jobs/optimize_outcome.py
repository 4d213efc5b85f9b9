"""Results of the searches of `jaxdyn optimize`, which files, pictures and animations show."""

import dataclasses

import numpy as np

from jaxdyn.control.batch import Optimum
from jaxdyn.control.problem import ControlProblem, MultibodyDynamics
from jaxdyn.control.solution import Solution
from jaxdyn.dynamics.system import System


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Solutions of a problem from all initial guesses.

    Attributes:
        problem: Problem of the mechanism, whose controls are forces and not their rates.
        found: Solutions, with a leading axis of initial guesses.
        searched: Problem that the solver solved; if the config has a table [rates], its controls are the rates.
        solved: Solutions of this problem. The last rates (N m/s or N/s) lead to controls after the end of the motion, and the
            feedback gains are those of the rates on the deviation of (x, u), (N, nu, nx + nu).
        groups: Local optima, from the lowest cost.
        best: Index of the selected plan.
    """

    problem: ControlProblem
    found: Solution
    searched: ControlProblem
    solved: Solution
    groups: list[Optimum]
    best: int

    @property
    def system(self) -> System:
        """The mechanism."""
        assert isinstance(self.problem.dynamics, MultibodyDynamics)
        return self.problem.dynamics.system

    @property
    def times(self) -> np.ndarray:
        """Times (N + 1,) of the selected plan, s."""
        placed = self.problem.with_design(self.found.value.design[self.best])
        return np.arange(self.problem.steps + 1) * float(placed.dt)

    @property
    def shown(self) -> list[int]:
        """Indices of the plans in the animation: the selected plan, then the best plan of each other local optimum unless the
        duration is free.
        """
        free = self.problem.design is not None
        return [self.best, *(group.best for group in self.groups if group.best != self.best and not free)]
