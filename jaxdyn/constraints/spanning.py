"""Spanning trees of the graph of bodies and joints, which select the joints to cut in a mechanism with loops.

Bodies and joints are identified by name; `ends` are the two bodies of each joint. A tree is a dict whose keys are the bodies except
the ground. The value of a body is a pair of names: the joint that connects it to its parent, and the parent.
"""

from collections.abc import Iterable, Mapping, Sequence

from jaxdyn.errors import check_name
from jaxdyn.mechanism.messages import MechanismError

Tree = dict[str, tuple[str, str]]
Ends = Mapping[str, tuple[str, str]]


def spanning_tree(ends: Ends, ranks: Mapping[str, tuple[int, ...]]) -> Tree:
    """Minimum spanning tree of the graph, in which the rank of a joint is its weight.

    The tree grows from the ground: each step adds the joint of lowest rank that reaches a new body (Prim's algorithm). Among joints
    of equal rank, the joint with the shortest path from the new body to the ground is added; the order of `ends` decides further
    ties. Bodies without a path to the ground are omitted.
    """
    depths = {"ground": 0}
    tree: Tree = {}
    while True:
        reached = [
            (ranks[joint], depths[inner], k, joint, inner, outer)
            for k, (joint, bodies) in enumerate(ends.items())
            for inner, outer in (bodies, bodies[::-1])
            if inner in depths and outer not in depths
        ]
        if not reached:
            return tree
        _, depth, _, joint, inner, outer = min(reached)
        tree[outer] = (joint, inner)
        depths[outer] = depth + 1


def path(tree: Tree, start: str, end: str) -> list[str]:
    """Joints of the tree on the path from one body to another.

    Args:
        tree: Spanning tree.
        start, end: Names of the bodies.
    """
    up, down = _to_ground(tree, start), _to_ground(tree, end)
    while up and down and up[-1] == down[-1]:
        up.pop()
        down.pop()
    return up + down[::-1]


def _to_ground(tree: Tree, body: str) -> list[str]:
    joints = []
    while body in tree:
        joint, body = tree[body]
        joints.append(joint)
    return joints


def chosen_tree(
    where: str, bodies: Iterable[str], ends: Ends, staying: Mapping[str, str], freedoms: Mapping[str, int]
) -> Tree:
    """Tree with the fewest coordinates: joints with the most degrees of freedom are cut first.

    Args:
        where: Name of the mechanism, for messages.
        bodies: Names of the bodies.
        ends: Names of the two bodies of each joint.
        staying: Names of the joints that must not be cut, each with the reason that messages state.
        freedoms: Number of velocity components of each joint.

    Raises:
        MechanismError: A body has no path to the ground, or no joint of some loop may be cut.
    """
    tree = spanning_tree(ends, {joint: (joint not in staying, freedoms[joint]) for joint in ends})
    loose = [body for body in bodies if body not in tree]
    if loose:
        raise MechanismError(
            f"{where}: no joints connect {_quoted(loose)} to the ground; add a joint, for a floating body "
            f'Free() between "ground" and {loose[0]!r}'
        )
    for loop in _loops(tree, ends):
        if loop[-1] in staying:
            # Then all joints of the loop must stay; otherwise a lower rank would have put this joint into the tree.
            reasons = "; ".join(f"{joint!r}: {staying[joint]}" for joint in loop)
            raise MechanismError(
                f"{where}: no joint of the loop {_quoted(loop)} can be cut ({reasons}); change one of them to a kind that can be "
                "cut, without armature and limits"
            )
    return tree


def given_tree(where: str, bodies: Iterable[str], ends: Ends, staying: Mapping[str, str], cut: Sequence[str]) -> Tree:
    """Tree that remains after the joints `cut` are removed.

    Args:
        where: Name of the mechanism, for messages.
        bodies: Names of the bodies.
        ends: Names of the two bodies of each joint.
        staying: Names of the joints that must not be cut, each with the reason that messages state.
        cut: Names of the joints to cut.

    Raises:
        UnknownName: There is no joint of a given name.
        MechanismError: A joint cannot be cut, a loop remains closed, or a body has no path to the ground.
    """
    if isinstance(cut, str):
        raise MechanismError(f"{where}: cut is {cut!r}; give a tuple of names, ({cut!r},)")
    for joint in cut:
        check_name("joint", joint, ends, where=f"{where}: cut")
        if joint in staying:
            raise MechanismError(
                f"{where}: joint {joint!r} cannot be cut: {staying[joint]}; cut another joint of its loop"
            )
    remaining = {joint: pair for joint, pair in ends.items() if joint not in cut}
    tree = spanning_tree(remaining, dict.fromkeys(remaining, ()))
    loose = [body for body in bodies if body not in tree]
    if loose:
        raise MechanismError(
            f"{where}: with {_quoted(cut) or 'no joints'} cut, no joints connect {_quoted(loose)} to the ground; "
            "cut fewer joints or add some"
        )
    for loop in _loops(tree, remaining):
        raise MechanismError(f"{where}: the loop {_quoted(loop)} is still closed; cut one of its joints")
    return tree


def _loops(tree: Tree, ends: Ends) -> list[list[str]]:
    """The joints of the loop that each joint outside the tree closes; this joint is the last one."""
    carrying = {joint for joint, _ in tree.values()}
    return [[*path(tree, *pair), joint] for joint, pair in ends.items() if joint not in carrying]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
