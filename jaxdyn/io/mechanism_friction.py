"""How mechanism files write friction: a table for each term, and in it a table for each number, by the names of joints.

[joint_friction]
coulomb = {elbow = "0.3 N m"}
velocity_scale = {elbow = 0.05}

[joint_load_friction]
coefficient = {elbow = 0.02}
velocity_scale = {elbow = 0.05}
load_scale = {elbow = "0.1 N m"}
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxdyn.dynamics.forces import JointForce
from jaxdyn.dynamics.friction import (
    AsymmetricFriction,
    BearingFriction,
    JointFriction,
    LoadFriction,
    QuadraticDrag,
    StribeckFriction,
)
from jaxdyn.io.config import Place
from jaxdyn.io.mechanism_joints import numbers_per_joint
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import Quantity


@dataclasses.dataclass(frozen=True)
class FrictionTerm:
    """A class of friction, the quantity that each of its numbers is, and which rules they follow.

    Attributes:
        coefficients: 0 for joints that the file does not name; not negative unless `signed`.
        scales: positive; needed wherever there is a coefficient, those in `without_scale` excepted.
    """

    kind: Callable[..., JointForce]
    coefficients: dict[str, str]
    scales: dict[str, str]
    signed: bool = False
    without_scale: tuple[str, ...] = ()


FRICTION_TERMS = {
    "joint_friction": FrictionTerm(
        JointFriction,
        {"viscous": "viscous", "coulomb": "effort"},
        {"velocity_scale": "velocity"},
        without_scale=("viscous",),
    ),
    "joint_stribeck_friction": FrictionTerm(
        StribeckFriction, {"stribeck": "effort"}, {"stribeck_velocity": "velocity", "velocity_scale": "velocity"}
    ),
    "joint_asymmetric_friction": FrictionTerm(
        AsymmetricFriction,
        {"coulomb_difference": "effort", "viscous_difference": "viscous"},
        {"velocity_scale": "velocity"},
        signed=True,
    ),
    "joint_load_friction": FrictionTerm(
        LoadFriction, {"coefficient": "ratio"}, {"velocity_scale": "velocity", "load_scale": "effort"}
    ),
    "joint_bearing_friction": FrictionTerm(
        BearingFriction, {"coefficient": "lever"}, {"velocity_scale": "velocity", "load_scale": "load"}
    ),
    "joint_quadratic_drag": FrictionTerm(QuadraticDrag, {"coefficient": "drag"}, {}),
}


def friction_force(model: Model, term: FrictionTerm, entry: Any, place: Place) -> JointForce:
    """The friction that an entry of `mechanism_entries` describes.

    Raises:
        ConfigError: an unknown joint, a number that does not fit, or a scale that is missing.
    """
    for coefficient in (name for name in term.coefficients if name not in term.without_scale):
        for scale in term.scales:
            for joint in getattr(entry, coefficient):
                if joint not in getattr(entry, scale):
                    raise place.key(scale).error(f"missing for {joint!r}, which has {coefficient}; add it")

    def numbers(name: str, quantity: str, default: float, bounds: Quantity) -> np.ndarray:
        defaults = np.full(model.nv, default)
        return numbers_per_joint(model, getattr(entry, name), quantity, defaults, place.key(name), bounds)

    coefficients = {
        name: numbers(name, quantity, 0.0, Quantity(minimum=None if term.signed else 0.0))
        for name, quantity in term.coefficients.items()
    }
    scales = {
        name: numbers(name, quantity, 1.0, Quantity(minimum=0.0, exclusive=True))
        for name, quantity in term.scales.items()
    }
    return term.kind(**coefficients, **scales)
