"""Pictures of `jaxdyn rollout`. This module is imported only if matplotlib is installed."""

import numpy as np

from jaxdyn.dynamics.system import System
from jaxdyn.io.runs.directory import RunDirectory
from jaxdyn.jobs.rollout.contacts import labels
from jaxdyn.simulate.outcome import RolloutResult
from jaxdyn.view import plots

_COARSE = "Power balance; the work of impacts is summed coarsely over the steps"


def draw(system: System, arrays: dict[str, np.ndarray], directory: RunDirectory) -> list[str]:
    """Draw coordinates, energy, stick figures and contact forces of the completed samples; returns the names of the files."""
    good = arrays["result"] == RolloutResult.SUCCESSFUL
    shown = good if good.any() else np.ones_like(good)
    time, q, energy, work = arrays["time"], *(arrays[name][shown] for name in ("q", "energy", "work"))
    contacts = labels(system)
    figures = {
        "joint_fans.png": plots.joint_fans(system.model, time, q),
        "energy_balance.png": plots.energy_balance(time, energy, work, title=_COARSE if contacts else ""),
        "stick_figures.png": plots.stick_figure_strip(system, time, q),
    }
    if contacts:
        figures["contact_forces.png"] = plots.normal_forces(contacts, time, arrays["contact_force"][0])
    for name, figure in figures.items():
        plots.save(figure, directory.path(name))
    return list(figures)
