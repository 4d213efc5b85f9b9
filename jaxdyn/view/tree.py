"""The tree of a mechanism as text. This module needs no optional package, so that it is available without matplotlib."""

from jaxdyn.display import aligned
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.view.skeleton import joint_kind


def children_of(model: Model) -> dict[int, list[int]]:
    """Children of the ground (-1) and of every body: the bodies whose joints it carries."""
    parents = model.topology.parents
    return {body: [i for i, parent in enumerate(parents) if parent == body] for body in range(GROUND, model.nb)}


def tree_text(model: Model) -> str:
    """The tree with one body per line, the joint that carries it, the kind of the joint and the mass.

    ground       joint     kind      mass
    └─ upper     shoulder  revolute  1 kg
       └─ lower  elbow     revolute  0.5 kg
    """
    children, topology = children_of(model), model.topology
    masses = [float(mass) for mass in model.mass]
    rows = [("ground", "joint", "kind", "mass")]

    # This is not a recursion, because a chain may have more bodies than the recursion limit of Python.
    waiting = [(child, "", child == children[GROUND][-1]) for child in reversed(children[GROUND])]
    while waiting:
        body, indent, is_last = waiting.pop()
        name = f"{indent}{'└─ ' if is_last else '├─ '}{topology.body_names[body]}"
        rows.append((name, topology.joint_names[body], joint_kind(model, body), f"{masses[body]:.4g} kg"))
        deeper = indent + ("   " if is_last else "│  ")
        waiting += [(child, deeper, child == children[body][-1]) for child in reversed(children[body])]
    return aligned(rows, left=(0, 1, 2, 3))
