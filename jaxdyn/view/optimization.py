"""Figures of optimal control: convergence of searches, local optima, controls and motion of a plan."""

import numpy as np

from jaxdyn.dynamics.system import System
from jaxdyn.mechanism.components import component_names, units_along
from jaxdyn.mechanism.quantity import EFFORT, Quantity
from jaxdyn.view.figure import Figure, draw_limits, panels
from jaxdyn.view.skeleton import Values
from jaxdyn.view.style import BLUE, GRAY, ORANGE

_MOST_CURVES = 200
_LEAST = 1e-16  # smallest violation on a logarithmic axis
_WIDE = 10.0  # ratio of costs above which their axis is logarithmic


def convergence(cost: Values, violation: Values, best: int) -> Figure:
    """Cost and constraint violation of all searches over the iterations.

    Args:
        cost: Costs (initial guesses, iterations + 1); NaN after the end of a search.
        violation: Constraint violations, with the shape of `cost`.
        best: Index of the search that is drawn in color.
    """
    cost, violation = np.asarray(cost), np.asarray(violation)
    title = f"{len(cost)} searches; the best in color, cost {cost[best][np.isfinite(cost[best])][-1]:.6g}"
    figure, ((above, below),) = panels([""], title, size=(9, 5.4), heights=(2, 1), along="iteration")
    order = [*(k for k in range(min(len(cost), _MOST_CURVES)) if k != best), best]
    for k in order:
        style = {"color": BLUE, "lw": 2.0, "zorder": 3} if k == best else {"color": GRAY, "lw": 0.6, "alpha": 0.4}
        above.plot(cost[k], **style)
        below.plot(np.maximum(violation[k], _LEAST), **style)
    least = np.nanmin(np.where(cost > 0, cost, np.nan), initial=np.inf)
    most = np.nanmax(np.where(np.isfinite(cost), cost, 0.0))
    if np.nanmin(cost) >= 0 and most > _WIDE * least:
        above.set_yscale("log", nonpositive="mask")
    below.set_yscale("log")
    above.set_ylabel("cost")
    below.set_ylabel("violation")
    return figure


def optima(cost: Values, count: Values, starts: int) -> Figure:
    """Local optima: percentage of initial guesses that led to each optimum, and cumulative percentage.

    Args:
        cost: Costs of the optima (optima,), ascending.
        count: Number of initial guesses that led to each optimum (optima,).
        starts: Total number of initial guesses.
    """
    cost, share = np.asarray(cost), 100.0 * np.asarray(count) / starts
    title = f"{len(cost)} local optima from {starts} initial guesses; the best costs {cost[0]:.6g}"
    figure, ((axis,),) = panels([""], title, size=(9, 3.4), along="cost")
    axis.vlines(cost, 0.0, share, color=BLUE, lw=2.5, label="led to this optimum")
    axis.plot(cost, share, color=BLUE, marker="o", ls="")
    axis.step(cost, np.cumsum(share), where="post", color=ORANGE, lw=1.5, label="led to this or a lower cost")
    if cost[0] > 0 and cost[-1] > _WIDE * cost[0]:
        axis.set_xscale("log")
    axis.set_ylabel("initial guesses (%)")
    axis.set_ylim(0, 105)
    axis.legend(frameon=False)
    return figure


def controls(system: System, time: Values, values: Values, lower: Values, upper: Values) -> Figure:
    """Controls, which are constant in each time step, and their bounds as dashed lines.

    Args:
        system: System with the drives that the controls act on.
        time: Times of the steps (N + 1,), s.
        values: Controls (N, nu).
        lower, upper: Bounds (nu,), infinite for controls without bounds.
    """
    values, declared = np.asarray(values), Quantity(EFFORT, along="velocity")
    names, units = component_names(system.model, declared), units_along(system.model, declared)
    if system.drives is not None:
        drives = system.drives
        units = [""] * drives.count if drives.driven is None else [units[column] for column in drives.driven]
        names = drives.control_names(system.model)
    figure, axes = panels(names, "Controls; bounds dashed")
    for k, (unit_of, axis) in enumerate(zip(units, axes[:, 0], strict=True)):
        axis.step(time, np.append(values[:, k], values[-1, k]), where="post", color=BLUE, lw=1.5)
        draw_limits(axis, np.asarray(lower)[k], np.asarray(upper)[k])
        axis.set_ylabel(unit_of, fontsize=8)
    return figure
