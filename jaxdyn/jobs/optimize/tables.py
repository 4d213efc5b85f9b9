"""Tables of a config that build objects of the library: solvers, costs and constraints, selected by their key `kind`.

A table is described by the class that it builds. Every concrete class with a class variable `kind` defines a value of the key
`kind`. The fields of the class are the further keys of the table, and `quantity` declares their units, bounds and defaults. A field
that TOML cannot express directly, such as a state or a pose, is built from several keys by a dataclass of `PARTS`.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Self, get_origin, get_type_hints

import jax.numpy as jnp

# Kinds are found among the classes of these modules and of all other imported modules.
from jaxdyn.control import (  # noqa: F401
    auto,
    collocation,
    constraint_terms,
    cost_terms,
    costs,
    frame_costs,
    ilqr,
    multiple_shooting,
    obstacles,
    sampling,
    single_shooting,
)
from jaxdyn.control.solution import Solver
from jaxdyn.dynamics.system import System
from jaxdyn.io.tables import Key, Place, keys_of, read_keys, read_kind
from jaxdyn.io.toml import toml_value
from jaxdyn.jobs.component_values import each
from jaxdyn.jobs.optimize.parts import (
    ConfigurationPart,
    ContactPart,
    FramePart,
    JointBoundsPart,
    PosePart,
    SpheresPart,
    StatePart,
    TargetPart,
)
from jaxdyn.mechanism.named_classes import named_subclasses, subclasses
from jaxdyn.mechanism.quantity import axes_of, first_sentence

# Classes with fields that are built from other keys, and the dataclass with these keys, which builds the fields that it names.
PARTS: dict[type, Any] = {
    costs.Deviation: StatePart,
    costs.AngularDeviation: ConfigurationPart,
    frame_costs.FramePose: PosePart,
    frame_costs.FrameDisplacement: PosePart,
    frame_costs.FrameVelocity: FramePart,
    frame_costs.ContactForce: ContactPart,
    frame_costs.Manipulability: FramePart,
    obstacles.Spheres: SpheresPart,
    constraint_terms.TargetState: TargetPart,
    constraint_terms.JointBounds: JointBoundsPart,
}
# Keys whose name differs from the name of the field, and kinds that stand for another kind with certain values.
KEYS = {(frame_costs.FramePose, "position"): "position_weight", (frame_costs.FramePose, "rotation"): "rotation_weight"}
ALIASES: dict[str, tuple[str, dict[str, Any]]] = {"ddp": ("ilqr", {"second_order": True})}


@dataclasses.dataclass(frozen=True)
class BuiltKey(Key):
    """A key of a table that builds an object.

    Attributes:
        owner: Class with the field: the class that the table builds, or a dataclass of `PARTS`.
        field: Name of the field.
    """

    owner: type
    field: str


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that builds an object of the library; each subclass states the base class of its objects as `base`.

    Attributes:
        kind: Value of the key `kind`.
        values: Values of the other keys, including defaults.
    """

    base: ClassVar[type]

    kind: str
    values: dict[str, Any]

    @classmethod
    def kinds(cls) -> dict[str, tuple[type, dict[str, type], dict[str, Any]]]:
        """Class of the object for each kind, with the classes of its fields that the kind selects, and the defaults of an alias."""
        found: dict[str, tuple[type, dict[str, type], dict[str, Any]]] = {}
        for concrete in subclasses(cls.base):
            if "kind" in vars(concrete):
                found[vars(concrete)["kind"]] = (concrete, {}, {})
            for field, rule in get_type_hints(concrete).items():
                if "kind" in vars(concrete) or not isinstance(rule, type) or issubclass(rule, cls.base):
                    continue
                found |= {kind: (concrete, {field: inner}, {}) for kind, inner in named_subclasses(rule).items()}
            for alias, (kind, defaults) in ALIASES.items():
                if kind in found and alias not in found:
                    found[alias] = (found[kind][0], found[kind][1], defaults)
        return found

    @classmethod
    def summary(cls, kind: str) -> str:
        """Description of a kind from the first sentences of the docstrings of its classes."""
        concrete, inner, _ = cls.kinds()[kind]
        return " ".join(first_sentence(owner) for owner in (*inner.values(), concrete))

    @classmethod
    def keys(cls, kind: str) -> dict[str, BuiltKey]:
        """The keys of a kind except `kind`."""
        concrete, inner, defaults = cls.kinds()[kind]
        return {
            name: dataclasses.replace(key, default=defaults[name]) if name in defaults else key
            for name, key in _keys(concrete, inner)
        }

    @classmethod
    def read_toml(cls, value: Any, place: Place) -> Self:
        """Read a table from its parsed TOML value.

        Raises:
            ConfigError: A key is missing or unknown, or its value has a wrong type or violates a bound.
        """
        kind, given = read_kind(cls.kinds(), value, place)
        keys = cls.keys(kind)
        values = {name: key.default for name, key in keys.items()} | read_keys(keys, given, place)
        table = cls(kind, values)
        try:
            table.check()
        except ValueError as error:
            raise place.error(str(error)) from None
        return table

    def toml_values(self) -> dict[str, Any]:
        """The values of the table as they are written to a file."""
        return {"kind": self.kind, **self.values}

    def check(self) -> None:
        """Check that the keys are consistent with one another.

        Raises:
            ValueError: The keys are inconsistent; the message states the remedy.
        """
        stands_for, fixed = ALIASES.get(self.kind, (self.kind, {}))
        for name, value in fixed.items():
            if self.values[name] != value:
                means = f'kind "{self.kind}" is "{stands_for}" with {name} = {toml_value(value)}'
                raise ValueError(f'{means}; omit {name}, or choose kind = "{stands_for}"')
        for part in {key.owner for key in self.keys(self.kind).values()} & set(PARTS.values()):
            part(**self._fields_of(part))

    def _fields_of(self, owner: type) -> dict[str, Any]:
        """The values that the table gives for the fields of a class."""
        return {key.field: self.values[name] for name, key in self.keys(self.kind).items() if key.owner is owner}

    def build(self, system: System | None, place: str) -> Any:
        """Build the object of the library.

        Args:
            system: Mechanism to which states and weights belong; None for objects without states and weights.
            place: Place of the table in messages, such as "running 1:".

        Raises:
            ConfigError: A value does not fit the mechanism.
        """
        concrete, inner, _ = self.kinds()[self.kind]
        return self._made(concrete, inner, system, place)

    def _made(self, concrete: type, inner: dict[str, type], system: System | None, place: str) -> Any:
        part, hints = PARTS.get(concrete), get_type_hints(concrete)
        values = {} if part is None else part(**self._fields_of(part)).fields(system, place)
        for name, key in self.keys(self.kind).items():
            if key.owner is concrete:
                values[key.field] = _value(hints[key.field], self.values[name], system, f"{place} {name}")
        for field, nested in _nested(concrete, inner).items():
            values[field] = self._made(nested, {}, system, place)
        return concrete(**values)


class SolverTable(Table):
    """The table [solver] of a config."""

    base = Solver

    def check(self) -> None:
        super().check()
        self.build(None, "solver:")


class CostTable(Table):
    """A table [[running]] or [[final]] of a config, which builds a cost."""

    base = cost_terms.CostTerm


class ConstraintTable(Table):
    """A table [[constraint]] or [[final_constraint]] of a config, which builds a constraint."""

    base = cost_terms.ConstraintTerm


def _keys(concrete: type, inner: dict[str, type]) -> Iterator[tuple[str, BuiltKey]]:
    """The keys for the fields of a class, including the keys of its parts."""
    part, nested = PARTS.get(concrete), _nested(concrete, inner)
    if part is not None:
        for name, key in keys_of(part).items():
            yield name, BuiltKey(**vars(key), owner=part, field=name)
    for name, key in keys_of(concrete).items():
        if name in nested:
            yield from _keys(nested[name], {})
        elif name not in (part.makes if part is not None else ()):
            built = BuiltKey(**vars(key), owner=concrete, field=name)
            if get_origin(key.annotation) is tuple and isinstance(key.default, float | int):
                built = dataclasses.replace(built, default=(float(key.default),))
            yield KEYS.get((concrete, name), name), built


def _nested(concrete: type, inner: dict[str, type]) -> dict[str, type]:
    """Classes of the fields that a table builds from further keys: those that its kind selects, and those with a part."""
    return inner | {field: hint for field, hint in get_type_hints(concrete).items() if hint in PARTS}


def _value(hint: Any, value: Any, system: System | None, place: str) -> Any:
    """Convert a value of TOML to the type of a field; values of an array field become an array of the annotated length."""
    axes = axes_of(hint)
    if axes is None or value is None or system is None:
        return value
    return jnp.asarray(each(value, " ".join(axes), system, place) if axes else value, system.model.dtype)
