"""The nodes of a program on which its outputs depend, and the nodes whose values are equal for all samples."""

from collections.abc import Iterable

from jaxdyn.lanes.program import Loop, Node, Program, Scalar, Stretch


def scalars_in(value) -> Iterable[Scalar]:
    """Scalars and regions to which an output, a collected result or a piece of a region refers."""
    return (value.region, value.offset) if isinstance(value, Stretch) else value


class Liveness:
    """The nodes on which the outputs depend.

    Attributes:
        nodes: All nodes on which the outputs depend.
        carries: Indices of the carried values that are needed, for each loop.
        collected: Indices of the collected arrays that are read, for each loop.
    """

    def __init__(self, program: Program):
        self.nodes: set[Node] = set()
        self.carries: dict[Loop, list[int]] = {}
        self.collected: dict[Loop, list[int]] = {}
        self._wanted: list[Scalar | None] = []
        for output in program.outputs:
            self._wanted.extend(scalars_in(output))
        while self._wanted:
            node = self._wanted.pop()
            if type(node) is Node and node not in self.nodes:
                self.nodes.add(node)
                self._visit(node)
        for found in (self.carries, self.collected):
            for which in found.values():
                which.sort()

    def _visit(self, node: Node) -> None:
        self._wanted.extend(node.args)
        if node.op == "carry":
            loop, i = node.data
            self._carry(loop, i)
        elif node.op == "result":
            self._carry(node.args[0].data, node.data)
        elif node.op == "loop":
            self.carries.setdefault(node.data, [])
            self.collected.setdefault(node.data, [])
            self.nodes.add(node.data.counter)
            self._wanted.append(node.data.condition)
        elif node.op == "region" and node.data.kind == "loop":
            loop: Loop = node.args[0].data
            self.collected.setdefault(loop, []).append(node.data.which)
            position, values, _, _ = loop.collected[node.data.which]
            self._wanted.append(position)
            self._wanted.extend(scalars_in(values))

    def _carry(self, loop: Loop, i: int) -> None:
        if i not in self.carries.setdefault(loop, []):
            self.carries[loop].append(i)
            self._wanted += [loop.carries[i], loop.initial[i], loop.following[i]]


def uniform_nodes(program: Program, live: Liveness, shared_inputs: list[bool]) -> set[Node]:
    """Nodes whose value is equal for all samples: they depend on shared inputs, tables and counters only.

    Args:
        program: Scalar program.
        live: Nodes of the program on which its outputs depend.
        shared_inputs: True for each input that all samples share.
    """
    varying: set[Node] = set()
    # Carried values are assumed to be uniform until an initial or following value is found that is not.
    while True:
        before = len(varying)
        _mark_varying(program.block.nodes, live, shared_inputs, varying)
        if len(varying) == before:
            return live.nodes - varying


def _mark_varying(nodes: list[Node], live: Liveness, shared_inputs: list[bool], varying: set[Node]) -> None:
    for node in nodes:
        if node not in live.nodes or node in varying:
            if node.op == "loop" and node in live.nodes:
                _mark_varying(node.data.body.nodes, live, shared_inputs, varying)
            continue
        if node.op == "region":
            kind = node.data.kind
            if kind in ("loop", "pieces") or (kind == "input" and not shared_inputs[node.data.which]):
                varying.add(node)
        elif node.op == "loop":
            _mark_varying(node.data.body.nodes, live, shared_inputs, varying)
        elif node.op == "carry":
            loop, i = node.data
            if any(type(s) is Node and s in varying for s in (loop.initial[i], loop.following[i])):
                varying.add(node)
        elif node.op == "result":
            loop = node.args[0].data
            ends = (loop.initial[node.data], loop.following[node.data])
            if any(type(s) is Node and s in varying for s in ends):
                varying.add(node)
        elif any(type(a) is Node and a in varying for a in node.args):
            varying.add(node)


def count_operations(program: Program, live: Liveness) -> int:
    """Scalar operations of one evaluation, with loops counted by their iterations; a `while_loop` counts once."""

    def count(nodes: list[Node]) -> int:
        total = 0
        for node in nodes:
            if node in live.nodes:
                total += 1 if node.op != "loop" else node.data.length * count(node.data.body.nodes)
        return total

    return count(program.block.nodes)
