"""Every numeric field of a class that files, configs, reports or help describe is declared once, with its meaning."""

import dataclasses
import inspect
import re
from collections.abc import Iterator

import jaxdyn.identify
import jaxdyn.jobs.identify.config
import jaxdyn.jobs.optimize.terms  # these import all classes of solvers, costs, constraints, losses and charts
from jaxdyn.constraints.kinds import Coupling
from jaxdyn.control.constraint_terms import StateBounds
from jaxdyn.control.cost_terms import ConstraintTerm, CostTerm
from jaxdyn.control.solution import Solver
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.contact import GroundContact, SphereContact
from jaxdyn.dynamics.contact.material import ContactMaterial
from jaxdyn.dynamics.contact.surfaces import Surface
from jaxdyn.dynamics.forces import Force
from jaxdyn.dynamics.wrenches import ExternalWrenches
from jaxdyn.identify.charts import Bounded, Chart, PhysicalInertia, Rotation, UnitVector
from jaxdyn.identify.checks import Check
from jaxdyn.identify.losses import Loss
from jaxdyn.identify.measurement import Inputs, Sensors
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.model import Limits, Model
from jaxdyn.mechanism.named_classes import subclasses
from jaxdyn.mechanism.prescribed import PrescribedMotion
from jaxdyn.mechanism.quantity import meanings, quantities
from jaxdyn.simulate import PDControl
from jaxdyn.simulate.integrators import Integrator
from jaxdyn.simulate.projected import Projected

BASES = (
    *(Force, Surface, Constraint, Joint, PrescribedMotion, Integrator),
    *(CostTerm, ConstraintTerm, Solver, jaxdyn.identify.solver.Solver, Loss, Chart, Check),
)
CLASSES = (Model, Limits, Sensors, Inputs, ContactMaterial, PDControl)

# Fields without a unit, a bound or an axis: indices of bodies and components, and values with the units of several components
# or of the array that a chart parametrizes.
UNDECLARED = {
    *((StateBounds, name) for name in ("lower", "upper", "below", "above")),
    *((cls, "reference") for cls in (UnitVector, Rotation)),
    *((Bounded, name) for name in ("lower", "upper")),
    *((SphereContact, name) for name in ("bodies_a", "bodies_b")),
    *((Coupling, name) for name in ("driven", "driver", "coefficients")),
    *((cls, "bodies") for cls in (GroundContact, ExternalWrenches)),
    (Projected, "order"),
    (PhysicalInertia, "factor"),
}


def described() -> Iterator[type]:
    """The concrete classes of jaxdyn with fields."""
    for cls in (*CLASSES, *(cls for base in BASES for cls in subclasses(base))):
        if cls.__module__.startswith("jaxdyn.") and dataclasses.is_dataclass(cls) and not inspect.isabstract(cls):
            yield cls


def is_numeric(annotation: object) -> bool:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return re.search(r"\b(float|int|Float|Int)\b", text) is not None and "Callable" not in text


def test_every_numeric_field_is_declared():
    undeclared = {
        (cls, field.name)
        for cls in described()
        for field in dataclasses.fields(cls)
        if is_numeric(field.type) and field.name not in quantities(cls)
    }
    assert undeclared == UNDECLARED


def test_every_field_has_a_meaning():
    assert not [
        f"{cls.__name__}.{field.name}"
        for cls in described()
        for field in dataclasses.fields(cls)
        if field.name not in meanings(cls)
    ]
