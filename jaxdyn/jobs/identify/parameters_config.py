"""The part of the config of `jaxdyn identify` that selects the free parameters of a machine."""

import dataclasses

from jaxdyn.identify.parameters import Tie
from jaxdyn.io.config import setting, setting_of
from jaxdyn.jobs.identify.tables import ChartName


@dataclasses.dataclass(frozen=True)
class FreeConfig:
    """Free parameters: the inertia of bodies, or an array of the plant.

    Attributes:
        inertia: Names of the bodies whose mass, center of mass and inertia tensor are free; ["all"] for all bodies.
        divergence: Weight of the log-det divergence of the inertial parameters from their initial values, a regularization; 0 for
            no regularization.
        path: Path of the free array of the plant, such as "system.model.armature", "system.forces.0.viscous", "inputs.delay" or
            "sensors.offset"; "sensors.zeros" is a separate offset for each recording.
        entries: Rows of the array that are free, by the names of bodies or joints or by index; by default all rows.
        chart: Parametrization of the values: "real" (any), "positive", "bounded", "unit_vector" or "rotation" (a quaternion); by
            default, the values stay within the bounds that the class of the array declares if the initial values are inside them.
        lower: Lower bound of the chart "bounded".
        upper: Upper bound of the chart "bounded".
        start: Initial guess of the values; by default the values of the mechanism.
        prior_std: Standard deviation of a Gaussian prior; without this key there is no prior.
        prior_mean: Mean of the Gaussian prior; by default the initial guess.
        name: Name that appears in tables; by default the last part of the path.
        unit: Unit that appears in tables; by default the unit that the class of the array declares.
    """

    inertia: tuple[str, ...] = ()
    divergence: float = setting(0.0, minimum=0.0)
    path: str = ""
    entries: tuple[str, ...] = ()
    chart: ChartName | None = None
    lower: float = 0.0
    upper: float = 1.0
    start: tuple[float, ...] | None = setting(None, broadcast=True)
    prior_std: tuple[float, ...] | None = setting(None, positive=True, broadcast=True)
    prior_mean: tuple[float, ...] | None = setting(None, broadcast=True)
    name: str | None = None
    unit: str | None = None

    def __post_init__(self):
        if bool(self.inertia) == bool(self.path):
            raise ValueError("give either inertia (names of bodies) or path (an array of the plant)")
        if self.chart != "bounded" and (self.lower, self.upper) != (FreeConfig.lower, FreeConfig.upper):
            raise ValueError('lower and upper are the bounds of chart = "bounded"; add this key, or remove the bounds')


@dataclasses.dataclass(frozen=True)
class TieConfig:
    """Parameters that depend linearly on a free parameter: value = factor * parameter + offset.

    Attributes:
        path: Path, in the plant, of the array whose values depend on the parameter.
        to: Name of the free parameter.
        entries: Rows of the array that depend on the parameter, by names or by index; by default all rows.
        factor: Factor of the free parameter.
        offset: Constant term.
    """

    path: str
    to: str
    entries: tuple[str, ...] = ()
    factor: float = setting_of(Tie, "factor")
    offset: float = setting_of(Tie, "offset")
