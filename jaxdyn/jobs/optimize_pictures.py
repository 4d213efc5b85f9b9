"""Pictures of `jaxdyn optimize`. This module is imported only if matplotlib is installed."""

import jax
import numpy as np

from jaxdyn.io.runs import RunDirectory
from jaxdyn.jobs.optimize_config import OptimizeConfig
from jaxdyn.jobs.optimize_outcome import Outcome
from jaxdyn.jobs.optimize_rates import with_rates_of
from jaxdyn.mechanism.quantity import EFFORT_RATE
from jaxdyn.view import animation, optimization, plots
from jaxdyn.view.motion import motion_plot

_MOST_SHOWN = 4  # plans in an animation


def draw(config: OptimizeConfig, outcome: Outcome, directory: RunDirectory) -> list[str]:
    """Draw convergence, optima, controls and their rates, motion and stick figures; returns the names of the files."""
    problem, found, best, rates = outcome.problem, outcome.found, outcome.best, outcome.rates
    system, time = outcome.system, outcome.times
    plan = jax.tree.map(lambda leaf: np.asarray(leaf)[best], found.value)
    bounds = (np.asarray(problem.lower), np.asarray(problem.upper))
    figures = {
        "controls": optimization.controls(system, time, plan.controls, *bounds),
        "motion": motion_plot(
            system.model,
            time,
            plan.states.q[None],
            plan.states.v[None],
            title=f"{system.model.name}: motion of the plan; limits dashed",
        ),
        "stick_figures": plots.stick_figure_strip(
            system, time, plan.states.q[None], title=f"{system.model.name}: the best plan"
        ),
    }
    if rates is not None:
        searched = with_rates_of(config, problem)
        values, *limits = (np.asarray(part) for part in (rates.values[best], searched.lower, searched.upper))
        title = "Rates of the controls; bounds dashed"
        figures["rates"] = optimization.controls(system, time, values, *limits, unit=EFFORT_RATE, title=title)
    if found.history is not None:
        figures["convergence"] = optimization.convergence(
            np.asarray(found.history.cost), np.asarray(found.history.violation), best
        )
    if len(found.cost) > 1 and outcome.groups:
        costs, counts = ([getattr(group, name) for group in outcome.groups] for name in ("cost", "starts"))
        figures["optima"] = optimization.optima(np.array(costs), np.array(counts), len(found.cost))
    for name, figure in figures.items():
        plots.save(figure, directory.path(f"{name}.png"))
    return [f"{name}.png" for name in figures]


def animate(outcome: Outcome, directory: RunDirectory) -> list[str]:
    """Animate the best plan together with some other plans; returns the name of the file."""
    q = np.asarray(outcome.found.value.states.q)[outcome.shown[:_MOST_SHOWN]]
    animation.animate(outcome.system, outcome.times, q, directory.path("motion.gif"))
    return ["motion.gif"]
