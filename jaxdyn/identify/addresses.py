"""Addresses of numbers: dotted paths to the leaves of a pytree, and rows of these by the names of bodies, joints or controls."""

import dataclasses
import difflib
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxdyn.dynamics.system import System
from jaxdyn.identify.measurement import Plant
from jaxdyn.mechanism.model import Model


class ParameterError(ValueError):
    """A choice of parameters that does not fit the subject; one line with the parameter and the remedy."""


INERTIA = ("mass", "com", "inertia")


def leaf_at(tree: PyTree, leaf: tuple[str, ...], name: str) -> Array:
    """The array at a path.

    Raises:
        ParameterError: there is none; the message lists what there is.
    """
    here: Any = tree
    for k, part in enumerate(leaf):
        before = ".".join(leaf[:k]) or "the subject"
        if isinstance(here, tuple | list):
            if not part.isdigit() or int(part) >= len(here):
                raise ParameterError(
                    f"parameter {name!r}: {before} has {len(here)} entries and no {part!r}; count from 0"
                )
            here = here[int(part)]
            continue
        known = [field.name for field in dataclasses.fields(here)] if dataclasses.is_dataclass(here) else []
        if part not in known:
            close = difflib.get_close_matches(part, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known) or 'nothing'}"
            raise ParameterError(f"parameter {name!r}: {before} has no {part!r}; {hint}")
        here = getattr(here, part)
    if not eqx.is_inexact_array(here):
        raise ParameterError(
            f"parameter {name!r}: {'.'.join(leaf)} is a {type(here).__name__} and no array of floating-point numbers; name one"
        )
    return here


def entry_names(subject: PyTree, leaf: tuple[str, ...], length: int) -> list[str]:
    """Names of the rows of a leaf: those of bodies, joints, frames or controls, or numbers."""
    if leaf[-2:] == ("sensors", "zeros"):
        return [f"recording {k}" for k in range(length)]
    path = [subject]
    for part in leaf:
        path.append(path[-1][int(part)] if isinstance(path[-1], tuple | list) else getattr(path[-1], part))
    numbers = [str(k) for k in range(length)]
    plant = next((here for here in reversed(path) if isinstance(here, Plant)), None)
    system = next((here for here in reversed(path) if isinstance(here, System)), None)
    model = next((here for here in reversed(path) if isinstance(here, Model)), None)
    if model is not None:
        return _names_in_model(model, leaf[-len(path) + 1 + path.index(model) :], numbers)
    system = plant.system if system is None and plant is not None else system
    if system is None:
        return numbers
    drives = system.drives
    if (drives is not None and any(here is drives for here in path)) or (
        plant is not None and leaf[-2:-1] == ("inputs",)
    ):
        columns = range(system.model.nv) if drives is None else drives.columns
        known = _column_names(system.model)
        return [known[column] for column in columns]
    return _column_names(system.model) if length == system.model.nv else numbers


def _names_in_model(model: Model, leaf: tuple[str, ...], numbers: list[str]) -> list[str]:
    topology = model.topology
    if leaf[0] in (*INERTIA, "placement"):
        return list(topology.body_names)
    if leaf[0] == "joints":
        return [topology.joint_names[body] for body in topology.groups[int(leaf[1])][1]]
    if leaf[0] == "frames":
        return list(topology.frame_names)
    if leaf[0] == "rotors":
        return list(model.rotors.names)
    if leaf[0] == "gravity":
        return list("xyz")
    return _column_names(model) if len(numbers) == model.nv else numbers


def _column_names(model: Model) -> list[str]:
    """Names of the velocity components: those of the joints, numbered where a joint has several."""
    columns = model.topology.body_of_column.tolist()
    names = model.topology.joint_names
    return [
        names[body] + (f" {columns[:k].count(body)}" if columns.count(body) > 1 else "")
        for k, body in enumerate(columns)
    ]


def rows_of(
    subject: PyTree, leaves: tuple[tuple[str, ...], ...], entries: tuple[str | int, ...] | None, name: str
) -> tuple[int, ...] | None:
    if entries is None:
        for leaf in leaves:
            leaf_at(subject, leaf, name)
        return None
    shapes = {leaf_at(subject, leaf, name).shape[:1] for leaf in leaves}
    if len(shapes) != 1 or shapes == {()}:
        raise ParameterError(f"parameter {name!r}: its leaves have no rows in common to choose from; leave entries out")
    ((length,),) = shapes
    known = entry_names(subject, leaves[0], length)
    rows = []
    for entry in entries:
        if isinstance(entry, str) and entry in known:
            rows.append(known.index(entry))
        elif isinstance(entry, int) and 0 <= entry < length:
            rows.append(entry)
        else:
            raise ParameterError(f"parameter {name!r}: there is no entry {entry!r}; use one of {', '.join(known)}")
    return tuple(rows)


def _walk(tree: PyTree, leaf: tuple[str, ...]) -> Any:
    """What is at a path known to exist."""
    for part in leaf:
        tree = tree[int(part)] if isinstance(tree, tuple | list) else getattr(tree, part)
    return tree


def gather(
    subject: PyTree, leaves: tuple[tuple[str, ...], ...], rows: tuple[int, ...] | None
) -> Float[Array, "values"]:
    parts = [_walk(subject, leaf) for leaf in leaves]
    parts = parts if rows is None else [part[np.array(rows)] for part in parts]
    return jnp.concatenate([part.ravel() for part in parts])


def scatter(
    subject: PyTree, leaves: tuple[tuple[str, ...], ...], rows: tuple[int, ...] | None, values: Float[Array, "values"]
) -> PyTree:
    at = 0
    for leaf in leaves:
        old = _walk(subject, leaf)
        chosen = old if rows is None else old[np.array(rows)]
        part = values[at : at + chosen.size].reshape(chosen.shape)
        at += chosen.size
        new = part if rows is None else old.astype(part.dtype).at[np.array(rows)].set(part)
        subject = eqx.tree_at(lambda tree, leaf=leaf: _walk(tree, leaf), subject, new)
    return subject
