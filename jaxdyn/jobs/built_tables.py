"""Tables of a config that build objects of the library: solvers, costs and constraints, by their key `kind`.

A table is described by the class that it builds. Every concrete class with a class variable `kind` is a kind, its fields are the
keys, and `quantity` declares their units, bounds and defaults. What a table cannot hold as it is, such as a state or a pose, is
made of several keys by a dataclass of `PARTS`.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

import jax.numpy as jnp
from jaxtyping import AbstractArray

# Kinds are found among the classes of these modules and of all others that are imported.
from jaxdyn.control import collocation, costs, ilqr, multiple_shooting, sampling, single_shooting  # noqa: F401
from jaxdyn.control.solution import Solver
from jaxdyn.dynamics.system import System
from jaxdyn.io.config import Place, read_value, suggestion
from jaxdyn.jobs.job import first_sentence
from jaxdyn.jobs.optimize_parts import ConfigurationPart, JointBoundsPart, PosePart, SpheresPart, StatePart, TargetPart
from jaxdyn.jobs.optimize_values import each
from jaxdyn.mechanism.named_classes import named_subclasses, subclasses
from jaxdyn.mechanism.quantity import Quantity, meanings, quantity_of

# The classes some of whose fields are made of other keys: the dataclass with these keys makes the fields that it names.
PARTS: dict[type, Any] = {
    costs.Deviation: StatePart,
    costs.AngularDeviation: ConfigurationPart,
    costs.FramePose: PosePart,
    costs.Spheres: SpheresPart,
    costs.TargetState: TargetPart,
    costs.JointBounds: JointBoundsPart,
}
# Keys that are named otherwise than their field, and kinds that stand for another one with some keys.
KEYS = {(costs.FramePose, "position"): "position_weight", (costs.FramePose, "rotation"): "rotation_weight"}
ALIASES: dict[str, tuple[str, dict[str, Any]]] = {"ddp": ("ilqr", {"second_order": True})}
GIVEN = ("backend",)  # fields that the config states for all tables at once


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a table.

    Attributes:
        owner: The class that has the field or is made of the key.
        field: The name of the field.
        annotation: The type of the value in TOML.
        rules: Its unit and bounds.
        default: Its default, MISSING for a required key.
        meaning: A sentence for the help.
    """

    owner: type
    field: str
    annotation: Any
    rules: Quantity
    default: Any
    meaning: str


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that builds an object of the library. Subclasses say by `base` of which class.

    Attributes:
        kind: Its key `kind`.
        values: Its other keys with their defaults.
    """

    base: ClassVar[type]

    kind: str
    values: dict[str, Any]

    @classmethod
    def kinds(cls) -> dict[str, tuple[type, dict[str, type], dict[str, Any]]]:
        """Each kind with its class, the classes of fields that are kinds themselves, and the defaults of an alias."""
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
        """What a kind is, by the first sentences of its classes."""
        concrete, inner, _ = cls.kinds()[kind]
        return " ".join(first_sentence(owner) for owner in (*inner.values(), concrete))

    @classmethod
    def keys(cls, kind: str) -> dict[str, Key]:
        """The keys of a kind besides `kind`."""
        concrete, inner, defaults = cls.kinds()[kind]
        return {
            name: dataclasses.replace(key, default=defaults[name]) if name in defaults else key
            for name, key in _keys(concrete, inner)
        }

    @classmethod
    def read_toml(cls, value: Any, place: Place) -> Self:
        """The table at a place of a file.

        Raises:
            ConfigError: A key is missing or unknown, or its value does not fit.
        """
        if not isinstance(value, dict):
            raise place.error("it is no table; write its keys below, the first of which is kind")
        if "kind" not in value:
            raise place.key("kind").error(f"missing; use one of {', '.join(cls.kinds())}")
        kind = read_value(Literal[tuple(cls.kinds())], value["kind"], place.key("kind"))
        keys = cls.keys(kind)
        for name in value:
            if name != "kind" and name not in keys:
                raise place.key(name).error(f"unknown key; {suggestion(name, keys)}")
        values = {}
        for name, key in keys.items():
            if name in value:
                values[name] = read_value(key.annotation, value[name], place.key(name), key.rules)
            elif key.default is dataclasses.MISSING:
                unit = f" (in {key.rules.unit})" if key.rules.unit else ""
                raise place.key(name).error(f"missing; add this key{unit}")
            else:
                values[name] = key.default
        table = cls(kind, values)
        try:
            table.check()
        except ValueError as error:
            raise place.error(str(error)) from None
        return table

    def toml_values(self) -> dict[str, Any]:
        """The table as it is written to a file."""
        return {"kind": self.kind, **self.values}

    def check(self) -> None:
        """Refuse keys that do not fit each other.

        Raises:
            ValueError: The message names the remedy.
        """
        for part in {key.owner for key in self.keys(self.kind).values()} & set(PARTS.values()):
            part(**{key.field: self.values[name] for name, key in self.keys(self.kind).items() if key.owner is part})

    def build(self, system: System | None, place: str, **given: Any) -> Any:
        """The object of the library.

        Args:
            system: The mechanism to which states and weights belong; None for objects without any.
            place: The place of the table in messages, such as "running 1:".
            given: Values of fields that are no keys.

        Raises:
            ConfigError: A value does not fit the mechanism.
        """
        concrete, inner, _ = self.kinds()[self.kind]
        return self._made(concrete, inner, system, place, given)

    def _made(
        self, concrete: type, inner: dict[str, type], system: System | None, place: str, given: dict[str, Any]
    ) -> Any:
        keys, part = self.keys(self.kind), PARTS.get(concrete)
        values: dict[str, Any] = {}
        if part is not None:
            own = {key.field: self.values[name] for name, key in keys.items() if key.owner is part}
            values |= part(**own).fields(system, place)
        hints = get_type_hints(concrete)
        for name, key in keys.items():
            if key.owner is concrete:
                values[key.field] = _value(hints[key.field], self.values[name], system, f"{place} {name}")
        for field in dataclasses.fields(concrete):
            nested = inner.get(field.name, hints[field.name])
            if field.name in given:
                values[field.name] = given[field.name]
            elif field.name not in values and isinstance(nested, type) and (nested in PARTS or field.name in inner):
                values[field.name] = self._made(nested, {}, system, place, {})
        return concrete(**values)


class SolverTable(Table):
    """The table [solver]."""

    base = Solver

    def check(self) -> None:
        self.build(None, "solver:")


class CostTable(Table):
    """A table [[running]] or [[final]]."""

    base = costs.CostTerm


class ConstraintTable(Table):
    """A table [[condition]] or [[final_condition]]."""

    base = costs.ConstraintTerm


def _keys(concrete: type, inner: dict[str, type]) -> Iterator[tuple[str, Key]]:
    """The keys that the fields of a class need, those of its parts included."""
    part, hints, texts = PARTS.get(concrete), get_type_hints(concrete), meanings(concrete)
    if part is not None:
        part_hints, part_texts = get_type_hints(part), meanings(part)
        for field in dataclasses.fields(part):
            rules = quantity_of(field)
            yield (
                field.name,
                Key(part, field.name, part_hints[field.name], rules, field.default, part_texts[field.name]),
            )
    for field in dataclasses.fields(concrete):
        nested = inner.get(field.name, hints[field.name])
        if isinstance(nested, type) and (nested in PARTS or field.name in inner):
            yield from _keys(nested, {})
        elif field.name not in GIVEN and field.name not in (part.makes if part is not None else ()):
            annotation, rules = _in_toml(nested), quantity_of(field)
            default = field.default
            if get_origin(annotation) is tuple and isinstance(default, float | int):
                default = (float(default),)
            name = KEYS.get((concrete, field.name), field.name)
            yield name, Key(concrete, field.name, annotation, rules, default, texts.get(field.name, ""))


def _in_toml(hint: Any) -> Any:
    """The type of a field in TOML: one of numbers for an array, and of several types those that TOML has; `object` for others."""
    arrays = _arrays(hint)
    if arrays:
        return tuple[float, ...] if arrays[0].dim_str else float
    if hint in (int, float, bool, str, type(None)) or get_origin(hint) in (Literal, tuple):
        return hint
    options = [option for option in map(_in_toml, get_args(hint)) if option is not object]
    return Union[tuple(options)] if options else object  # noqa: UP007 (known at run time only)


def _arrays(hint: Any) -> list[Any]:
    """The kinds of arrays that a field may hold."""
    return [a for a in (get_args(hint) or (hint,)) if isinstance(a, type) and issubclass(a, AbstractArray)]


def _value(hint: Any, value: Any, system: System | None, place: str) -> Any:
    """A value of TOML as a field has it: an array if the field is one, of the length that its annotation says."""
    arrays = _arrays(hint)
    if not arrays or value is None or system is None:
        return value
    axis = arrays[0].dim_str
    return jnp.asarray(each(value, axis, system, place) if axis else value, system.model.dtype)
