"""The part of the config of `jaxdyn identify` that says which numbers a machine has and which of them are free."""

import dataclasses
from typing import Literal

from jaxdyn.io.config import setting


@dataclasses.dataclass(frozen=True)
class ForceConfig:
    """A force in all joints; one number for all, or one per velocity component. What a kind does not have is left out.

    Attributes:
        kind: class of the force.
        viscous, coulomb, velocity_scale, stribeck, stribeck_velocity: its numbers, see there.
        coulomb_difference, viscous_difference, coefficient, load_scale, stiffness, rest: more of its numbers.
    """

    kind: Literal[
        "JointFriction",
        "StribeckFriction",
        "AsymmetricFriction",
        "LoadFriction",
        "BearingFriction",
        "QuadraticDrag",
        "JointSpring",
    ]
    viscous: tuple[float, ...] | None = setting(None, broadcast=True)
    coulomb: tuple[float, ...] | None = setting(None, broadcast=True)
    velocity_scale: tuple[float, ...] | None = setting(None, broadcast=True)
    stribeck: tuple[float, ...] | None = setting(None, broadcast=True)
    stribeck_velocity: tuple[float, ...] | None = setting(None, broadcast=True)
    coulomb_difference: tuple[float, ...] | None = setting(None, broadcast=True)
    viscous_difference: tuple[float, ...] | None = setting(None, broadcast=True)
    coefficient: tuple[float, ...] | None = setting(None, broadcast=True)
    load_scale: tuple[float, ...] | None = setting(None, broadcast=True)
    stiffness: tuple[float, ...] | None = setting(None, broadcast=True)
    rest: tuple[float, ...] | None = setting(None, broadcast=True)


@dataclasses.dataclass(frozen=True)
class FreeConfig:
    """Numbers that are free: the inertia of bodies, or a leaf of the plant.

    Attributes:
        inertia: bodies whose mass, mass centre and inertia are free; ["all"] for all.
        divergence: weight of the log-det divergence of these bodies from their start.
        path: leaf of the plant, "system.model.armature", "system.forces.0.viscous", "inputs.delay", "sensors.offset";
            "sensors.zeros" is an offset for each single recording.
        entries: rows of the leaf, by name of body or joint, or number; all if not given.
        chart: the values that they may take.
        lower, upper: bounds, for chart "bounded".
        start: where to start instead of the mechanism's numbers.
        prior_std, prior_mean: of a Gaussian prior; the mean is the start if not given.
        name, unit: for tables.
    """

    inertia: tuple[str, ...] = ()
    divergence: float = setting(0.0, non_negative=True)
    path: str = ""
    entries: tuple[str, ...] = ()
    chart: Literal["real", "positive", "bounded", "unit_vector", "rotation"] = "real"
    lower: float = 0.0
    upper: float = 1.0
    start: tuple[float, ...] | None = setting(None, broadcast=True)
    prior_std: tuple[float, ...] | None = setting(None, broadcast=True)
    prior_mean: tuple[float, ...] | None = setting(None, broadcast=True)
    name: str | None = None
    unit: str | None = None

    def __post_init__(self):
        if bool(self.inertia) == bool(self.path):
            raise ValueError("give either inertia, the bodies, or path, a leaf")


@dataclasses.dataclass(frozen=True)
class TieConfig:
    """Numbers that follow a free parameter.

    Attributes:
        path, entries: the numbers, as above.
        to: name of the parameter.
        factor, offset: value = factor * parameter + offset.
    """

    path: str
    to: str
    entries: tuple[str, ...] = ()
    factor: float = 1.0
    offset: float = 0.0
