"""Tables of a config of `jaxdyn identify` that build objects of the library: forces in the joints, losses and charts."""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

# Forces are found among the classes of these modules and of all other imported modules.
from jaxdyn.dynamics import friction, joint_limits  # noqa: F401
from jaxdyn.dynamics.forces import JointForce
from jaxdyn.identify.charts import Chart
from jaxdyn.identify.losses import Loss
from jaxdyn.jobs.optimize.tables import BuiltKey, Table
from jaxdyn.mechanism.named_classes import named_subclasses


class ForceTable(Table):
    """A table [[force]]: a force in all joints, with one value for all joints or one per component; `kind` names its class."""

    base = JointForce

    @classmethod
    def kinds(cls) -> dict[str, tuple[type, dict[str, type], dict[str, Any]]]:
        return {force.__name__: (force, {}, {}) for force in named_subclasses(cls.base, "table_name").values()}

    @classmethod
    def keys(cls, kind: str) -> dict[str, BuiltKey]:
        found = {}
        for name, key in super().keys(kind).items():
            # The unit depends on the components of the mechanism, which is not known here; so text with a unit is refused.
            unit = key.rules.unit_text or key.rules.unit
            found[name] = dataclasses.replace(key, rules=dataclasses.replace(key.rules, unit=unit, broadcast=True))
        return found


def made(base: Any, name: str, settings: Any) -> Any:
    """Make an object of the class with this name from the attributes of `settings`.

    Fields without such an attribute, or whose attribute is None, have the default of the class.
    """
    cls = named_subclasses(base)[name]
    given = {field.name: getattr(settings, field.name, None) for field in dataclasses.fields(cls)}
    return cls(**{field: value for field, value in given.items() if value is not None})


ROBUST_LOSSES = tuple(
    name
    for name, cls in named_subclasses(Loss).items()
    if "threshold" in {field.name for field in dataclasses.fields(cls)}
)

if TYPE_CHECKING:
    LossName = ChartName = str
else:
    LossName, ChartName = (Literal[tuple(named_subclasses(base))] for base in (Loss, Chart))
