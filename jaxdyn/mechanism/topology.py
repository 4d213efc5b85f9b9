"""Structure of a mechanism: the connections between bodies, the classes of the joints, and all names.

A `Topology` contains no physical parameters. It is hashable and compared by value, so it can be static in `jax.jit`, and models
with equal topology share one compilation. Bodies have the indices 0..nb-1 with each parent before its children; the ground is -1.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxdyn.errors import UnknownName, check_name
from jaxdyn.mechanism.messages import MechanismError

if TYPE_CHECKING:
    from jaxdyn.mechanism.joint import Joint

GROUND = -1


@dataclasses.dataclass(frozen=True)
class Topology:
    """Static structure of a tree of bodies.

    Attributes:
        name: Name of the mechanism, for messages.
        body_names: Name of each body.
        joint_names: Name of the joint that connects each body to its parent.
        parents: Index of the parent of each body, -1 for the ground; parents[i] < i.
        joint_classes: Class of the joint between each body and its parent.
        joint_groups: Index of the stack that contains the joint of each body; joints of the same structure share a stack.
        frame_names: Names of additional frames, each fixed in a body or in the ground.
        frame_bodies: Index of the body that carries each frame, -1 for the ground.
    """

    name: str
    body_names: tuple[str, ...]
    joint_names: tuple[str, ...]
    parents: tuple[int, ...]
    joint_classes: "tuple[type[Joint], ...]"
    joint_groups: tuple[int, ...]
    frame_names: tuple[str, ...] = ()
    frame_bodies: tuple[int, ...] = ()

    @property
    def nb(self) -> int:
        """Number of bodies, the ground not counted."""
        return len(self.parents)

    @functools.cached_property
    def nq(self) -> int:
        """Number of coordinates."""
        return sum(joint.nq for joint in self.joint_classes)

    @functools.cached_property
    def nv(self) -> int:
        """Number of velocities (degrees of freedom)."""
        return sum(joint.nv for joint in self.joint_classes)

    @functools.cached_property
    def q_starts(self) -> np.ndarray:
        """Index of the first coordinate of the joint of each body, shape (nb,)."""
        return np.cumsum([0] + [joint.nq for joint in self.joint_classes])[:-1]

    @functools.cached_property
    def v_starts(self) -> np.ndarray:
        """Index of the first velocity component of the joint of each body, shape (nb,)."""
        return np.cumsum([0] + [joint.nv for joint in self.joint_classes])[:-1]

    @functools.cached_property
    def groups(self) -> "tuple[tuple[type[Joint], np.ndarray], ...]":
        """Joint class and indices of the bodies of each stack of joints."""
        groups = np.array(self.joint_groups)
        members = [np.flatnonzero(groups == k) for k in range(max(self.joint_groups) + 1)]
        return tuple((self.joint_classes[bodies[0]], bodies) for bodies in members)

    @functools.cached_property
    def body_of_column(self) -> np.ndarray:
        """Index of the body that each velocity component (column) moves directly, shape (nv,)."""
        return np.repeat(np.arange(self.nb), [joint.nv for joint in self.joint_classes])

    @functools.cached_property
    def longest_chain(self) -> int:
        """Number of velocity components of the longest sequence of bodies, each of which is the parent of the next one."""
        longest = length = 0
        for i, (parent, joint) in enumerate(zip(self.parents, self.joint_classes, strict=True)):
            length = joint.nv + (length if i and parent == i - 1 else 0)
            longest = max(longest, length)
        return longest

    @functools.cached_property
    def last_columns(self) -> np.ndarray:
        """Index of the last velocity component (column) that moves each body, shape (nb,); -1 for none."""
        last = np.full(self.nb, -1)
        for i, (parent, joint) in enumerate(zip(self.parents, self.joint_classes, strict=True)):
            last[i] = self.v_starts[i] + joint.nv - 1 if joint.nv else -1 if parent == GROUND else last[parent]
        return last

    @functools.cached_property
    def column_parents(self) -> tuple[int, ...]:
        """Index of the velocity component (column) before each one on the path from the ground, -1 for none."""
        first = [-1 if parent == GROUND else int(self.last_columns[parent]) for parent in self.parents]
        at_start = np.isin(np.arange(self.nv), self.v_starts)
        of_body = self.body_of_column
        return tuple(first[of_body[k]] if at_start[k] else k - 1 for k in range(self.nv))

    @functools.cached_property
    def body_of_coordinate(self) -> np.ndarray:
        """Index of the body to whose joint each coordinate belongs, shape (nq,)."""
        return np.repeat(np.arange(self.nb), [joint.nq for joint in self.joint_classes])

    @functools.cached_property
    def precedes(self) -> np.ndarray:
        """(nb, nb) incidence matrix eta: [k, i] is True if body k lies on the path from the root to i, k = i included."""
        eta = np.eye(self.nb, dtype=bool)
        for i, parent in enumerate(self.parents):
            if parent != GROUND:
                eta[:, i] |= eta[:, parent]
        return eta

    @functools.cached_property
    def roots(self) -> np.ndarray:
        """Index of the first body on the path from the ground to each body, shape (nb,)."""
        return np.array([int(np.argmax(self.precedes[:, i])) for i in range(self.nb)], dtype=int)

    @functools.cached_property
    def column_moves_body(self) -> np.ndarray:
        """(nv, nb) incidence matrix eta by columns: [alpha, i] is True if velocity component alpha moves body i."""
        return self.precedes[self.body_of_column]

    @functools.cached_property
    def column_precedes(self) -> np.ndarray:
        """(nv, nv) array: [alpha, beta] is True if the joint of alpha precedes or equals the joint of beta."""
        return self.column_moves_body[:, self.body_of_column]

    def body_name(self, body: int) -> str:
        """Name of a body; "ground" for -1."""
        return "ground" if body == GROUND else self.body_names[body]

    def error_with_bodies(self, *bodies: int) -> str | None:
        """Error message with a remedy if an index is not that of a body or of the ground, else None."""
        for body in bodies:
            if isinstance(body, str):
                check_name("body", body, ("ground", *self.body_names))
            if isinstance(body, str) or not GROUND <= body < self.nb:
                known = f"use 0 to {self.nb - 1}, or -1 for the ground (`Model.locate` finds them by name)"
                return f"there is no body {body!r}; {known}"
        return None

    def error_with_columns(self, columns: Any, concept: str = "velocity component") -> str | None:
        """Error message with a remedy if the entries of a tuple are not indices of velocity components, or of coordinates, else
        None.

        Args:
            columns: Argument to check.
            concept: "velocity component" or "coordinate".
        """
        starts, count = (self.q_starts, self.nq) if concept == "coordinate" else (self.v_starts, self.nv)
        if isinstance(columns, int):
            return f"{columns} is an int; give a tuple, ({columns},)"
        for column in (columns,) if isinstance(columns, str) else columns:
            if isinstance(column, str) or not 0 <= column < count:
                if isinstance(column, str):
                    check_name("joint", column, (*self.joint_names, *self.body_names))
                names = next((names for names in (self.joint_names, self.body_names) if column in names), None)
                known = "" if names is None else f", {starts[names.index(column)]} for {column!r}"
                return f"there is no {concept} {column!r}; use 0 to {count - 1}{known}"
        return None

    def check_names(self, *others: str) -> None:
        """Raise an error if a name could manipulate the terminal on which it is printed.

        Args:
            others: Other names to check.

        Raises:
            MechanismError: A name has line breaks or control characters.
        """
        for name in (self.name, *self.body_names, *self.joint_names, *self.frame_names, *others):
            if not name.isprintable():
                raise MechanismError(f"the name {name!r} has line breaks or other invisible characters; remove them")

    def body_index(self, name: str) -> int:
        """Index of the body called `name`; -1 for "ground".

        Raises:
            UnknownName: No body has this name; the message lists the existing names.
        """
        if name == "ground":
            return GROUND
        if name not in self.body_names:
            known = ("ground", *self.body_names, *self.frame_names)
            raise UnknownName("body or frame", name, known, f"mechanism {self.name!r}")
        return self.body_names.index(name)
