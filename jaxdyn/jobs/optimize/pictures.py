"""Pictures of `jaxdyn optimize`. This module is imported only if matplotlib is installed."""

import jax
import numpy as np

from jaxdyn.io.runs.directory import RunDirectory
from jaxdyn.jobs.optimize.config import OptimizeConfig
from jaxdyn.jobs.optimize.work import Solutions
from jaxdyn.view import animation, optimization, plots
from jaxdyn.view.figure import Figure
from jaxdyn.view.motion import motion_plot

_MOST_SHOWN = 4  # plans in an animation


def draw(config: OptimizeConfig, solutions: Solutions, directory: RunDirectory) -> list[str]:
    """Draw the pictures and the animation that the config selects; returns the names of the files."""
    figures = _figures(solutions) if config.pictures else {}
    for name, figure in figures.items():
        plots.save(figure, directory.path(name))
    if not config.animation:
        return list(figures)
    q = np.asarray(solutions.found.value.states.q)[solutions.shown[:_MOST_SHOWN]]
    animation.animate(solutions.system, solutions.times, q, directory.path("motion.gif"))
    return [*figures, "motion.gif"]


def _figures(solutions: Solutions) -> dict[str, Figure]:
    """Convergence, optima, controls, motion and stick figures, by the names of their files."""
    problem, found, best = solutions.problem, solutions.found, solutions.best
    system, time = solutions.system, solutions.times
    plan = jax.tree.map(lambda leaf: np.asarray(leaf)[best], found.value)
    q, v = plan.states.q[None], plan.states.v[None]
    moved, drawn = (f"{system.model.name}: {text}" for text in ("motion of the plan; limits dashed", "the best plan"))
    figures = {
        "controls.png": optimization.controls(system, time, plan.controls, problem.lower, problem.upper),
        "motion.png": motion_plot(system.model, time, q, v, title=moved),
        "stick_figures.png": plots.stick_figure_strip(system, time, q, title=drawn),
    }
    if found.history is not None:
        figures["convergence.png"] = optimization.convergence(found.history.cost, found.history.violation, best)
    if len(found.cost) > 1 and solutions.groups:
        costs, counts = (np.array([getattr(group, name) for group in solutions.groups]) for name in ("cost", "starts"))
        figures["optima.png"] = optimization.optima(costs, counts, len(found.cost))
    return figures
