"""What the tables of a config of `jaxdyn identify` build, by kind: forces in the joints, losses and charts of the library."""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

# Forces are found among the classes of these modules and of all others that are imported.
from jaxdyn.dynamics import friction, joint_limits  # noqa: F401
from jaxdyn.dynamics.forces import JointForce
from jaxdyn.identify.charts import Chart
from jaxdyn.identify.losses import Loss
from jaxdyn.jobs.built_tables import Key, Table
from jaxdyn.mechanism.named_classes import named_subclasses
from jaxdyn.mechanism.quantity import ComponentUnit


class ForceTable(Table):
    """A table [[force]] builds a force in all joints, from one value for all joints or one per component; its kind is its class."""

    base = JointForce

    @classmethod
    def kinds(cls) -> dict[str, tuple[type, dict[str, type], dict[str, Any]]]:
        return {force.__name__: (force, {}, {}) for force in named_subclasses(cls.base, "table_name").values()}

    @classmethod
    def keys(cls, kind: str) -> dict[str, Key]:
        found = {}
        for name, key in super().keys(kind).items():
            unit = key.rules.unit
            # The components of the mechanism, which is not known here, decide the unit; so text with a unit is refused.
            unit = " or ".join(dict.fromkeys(unit)) if isinstance(unit, ComponentUnit) else unit
            found[name] = dataclasses.replace(key, rules=dataclasses.replace(key.rules, unit=unit, broadcast=True))
        return found


def made(base: Any, name: str, settings: Any) -> Any:
    """The object of a class with that name, whose fields are taken from settings that have them."""
    cls = named_subclasses(base)[name]
    fields = [field.name for field in dataclasses.fields(cls)]
    return cls(**{field: getattr(settings, field) for field in fields if hasattr(settings, field)})


if TYPE_CHECKING:
    LossName = ChartName = str
else:
    LossName, ChartName = (Literal[tuple(named_subclasses(base))] for base in (Loss, Chart))
