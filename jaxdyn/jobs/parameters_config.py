"""The part of the config of `jaxdyn identify` that selects the free parameters of a machine."""

import dataclasses

from jaxdyn.io.config import setting
from jaxdyn.jobs.identify_tables import ChartName


@dataclasses.dataclass(frozen=True)
class FreeConfig:
    """Free parameters: the inertia of bodies, or an array of the plant.

    Attributes:
        inertia: Bodies whose mass, center of mass and inertia are free; ["all"] for all bodies.
        divergence: Weight of the log-det divergence of these bodies from their initial values in the loss.
        path: Path of the free array of the plant, such as "system.model.armature", "system.forces.0.viscous", "inputs.delay" or
            "sensors.offset"; "sensors.zeros" is an offset for each single recording.
        entries: Free rows of the array, by the names of bodies or joints or by index; by default all rows.
        chart: Parametrization of the values: "real" (any), "positive", "bounded", "unit_vector" or "rotation" (a quaternion).
        lower: Lower bound of the chart "bounded".
        upper: Upper bound of the chart "bounded".
        start: Initial values, by default those of the mechanism.
        prior_std: Standard deviation of a Gaussian prior; there is no prior if not given.
        prior_mean: Mean of the Gaussian prior, by default the initial value.
        name: Name that appears in tables, by default the last part of the path.
        unit: Unit that appears in tables, by default the declared unit.
    """

    inertia: tuple[str, ...] = ()
    divergence: float = setting(0.0, non_negative=True)
    path: str = ""
    entries: tuple[str, ...] = ()
    chart: ChartName = "real"
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


@dataclasses.dataclass(frozen=True)
class TieConfig:
    """Values that follow a free parameter: value = factor * parameter + offset.

    Attributes:
        path: Path of the array of the plant that follows the parameter.
        to: Name of the free parameter.
        entries: Rows of the array that follow, by default all rows.
        factor: Factor of the free parameter.
        offset: Offset that is added to the product.
    """

    path: str
    to: str
    entries: tuple[str, ...] = ()
    factor: float = 1.0
    offset: float = 0.0
