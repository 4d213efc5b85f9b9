"""The part of the config of `jaxdyn identify` that selects the free parameters of a machine."""

import dataclasses

from jaxdyn.io.config import setting
from jaxdyn.jobs.identify_tables import ChartName


@dataclasses.dataclass(frozen=True)
class FreeConfig:
    """Free parameters: the inertia of bodies, or a leaf of the plant.

    Attributes:
        inertia: The mass, center of mass and inertia of these bodies are free; ["all"] for all bodies.
        divergence: The log-det divergence of these bodies from their initial values has this weight in the loss.
        path: This leaf of the plant is free, such as "system.model.armature", "system.forces.0.viscous", "inputs.delay" or
            "sensors.offset"; "sensors.zeros" is an offset for each single recording.
        entries: These rows of the leaf are free, by the names of bodies or joints, or by index; all if not given.
        chart: The values are "real" (any), "positive", "bounded", a "unit_vector" or a "rotation" (a quaternion).
        lower: This is the lower bound of the chart "bounded".
        upper: This is the upper bound of the chart "bounded".
        start: The initial values are these in place of those of the mechanism.
        prior_std: A Gaussian prior has this standard deviation; no prior if not given.
        prior_mean: The Gaussian prior has this mean; the initial value if not given.
        name: This name appears in tables; the last part of the path if not given.
        unit: This unit appears in tables; the declared one if not given.
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
            raise ValueError("give either inertia, the bodies, or path, a leaf")


@dataclasses.dataclass(frozen=True)
class TieConfig:
    """Values that follow a free parameter: value = factor * parameter + offset.

    Attributes:
        path: This leaf of the plant follows.
        to: It follows the parameter of this name.
        entries: These rows of the leaf follow; all if not given.
        factor: This is the factor of the parameter.
        offset: This is added to the product.
    """

    path: str
    to: str
    entries: tuple[str, ...] = ()
    factor: float = 1.0
    offset: float = 0.0
