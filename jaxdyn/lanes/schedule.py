"""Evaluation order of a program.

The order is depth first from the results: operands of one result are computed together and then discarded, so few values are alive
at a time. In the original order of JAX, all columns of a Jacobian would be alive at once, which is 1.5 times slower on a CPU.

A GPU has many registers, but becomes slow if they do not suffice. Therefore several orders are tried on a GPU, and the one with the
fewest simultaneously alive values is chosen. For the recursions of long chains this is often the order of JAX, with half as many
alive values as in the depth-first order.
"""

import copy
import functools
import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from jaxdyn.lanes.liveness import Liveness, scalars_in
from jaxdyn.lanes.program import Block, Loop, Node, Program, Scalar


class Schedule:
    """Evaluation order of every block of a program.

    Attributes:
        order: The needed nodes of each block; each node comes after its operands.
        live: Nodes of the program on which its outputs depend.
    """

    def __init__(self, program: Program, live: Liveness, early: Collection[str] = (), fewest_alive: bool = False):
        """Plan the order.

        Args:
            program: Scalar program.
            live: Nodes of the program on which its outputs depend.
            early: Operations that are evaluated as early as possible in their block.
            fewest_alive: True to try several orders.
        """
        self.order: dict[Block, list[Node]] = {}
        self.live, self._early, self._fewest_alive = live, early, fewest_alive
        self._needs: dict[Node, list[Node]] = {}
        self._wanted: dict[Loop, list[Scalar]] = {}
        self._plan(program.block, [x for output in program.outputs for x in scalars_in(output)])

    def _plan(self, block: Block, wanted: Iterable[Scalar]) -> None:
        inside = [n for n in block.nodes if n in self.live.nodes]
        for node in inside:
            if node.op == "loop":
                self._plan_loop(node)
        own = _Dependences({n: self.needed_by(n) for n in inside})
        roots = [x for x in wanted if type(x) is Node and x in own.needs]
        order = own.depth_first(roots, own.depth.__getitem__)
        if self._fewest_alive:
            order = own.fewest_alive(roots, order)
        self.order[block] = own.with_first([node for node in order if node.op in self._early], order)

    def of_part(self, nodes: Sequence[Node]) -> list[Node]:
        """Some nodes of a block in the order with the fewest alive values; values of other nodes are loaded when needed."""
        own = set(nodes)
        order = list(dict.fromkeys(x for n in nodes for x in (*self.needed_by(n), n)))
        all_of_them = _Dependences({n: self.needed_by(n) if n in own else [] for n in order})
        roots = [n for n, users in all_of_them.users.items() if not users]
        order = all_of_them.fewest_alive(roots, order)
        return [n for n in all_of_them.with_first([n for n in order if n.op in self._early], order) if n in own]

    def with_order(self, block: Block, order: list[Node]) -> "Schedule":
        """The same schedule, with some nodes only of one of its blocks."""
        other = copy.copy(self)
        other.order = {**self.order, block: order}
        return other

    def needed_by(self, node: Node) -> list[Node]:
        """Nodes on which a node depends directly; for a loop, also the nodes outside on which its body depends."""
        needs = self._needs.get(node)
        if needs is None:
            needs = self._needs[node] = [a for a in node.args if type(a) is Node]
        return needs

    def wanted_of(self, loop: Loop) -> list[Scalar]:
        """Values of the body of a loop that are carried to the next iteration, collected, or that decide whether there is one."""
        return self._wanted[loop]

    def _plan_loop(self, node: Node) -> None:
        """Plan the order of the body, and determine the nodes outside on which the loop depends."""
        loop: Loop = node.data
        wanted: list[Scalar] = [loop.following[i] for i in self.live.carries[loop]]
        for which in self.live.collected[loop]:
            position, values, _, _ = loop.collected[which]
            wanted += [position, *scalars_in(values)]
        if loop.condition is not None:
            wanted.append(loop.condition)
        self._wanted[loop] = wanted
        self._plan(loop.body, wanted)
        needs = [*node.args, *(loop.initial[i] for i in self.live.carries[loop]), *wanted]
        for inner in self.order[loop.body]:
            needs += self.needed_by(inner)
        outside = dict.fromkeys(n for n in needs if type(n) is Node and n.block.depth <= node.block.depth)
        outside.pop(node, None)
        self._needs[node] = list(outside)


class _Dependences:
    """Dependences between the nodes of a block, and orders that respect them."""

    def __init__(self, needed: Mapping[Node, Sequence[Node]]):
        """Select the dependences within the block.

        Args:
            needed: The nodes of the block, each with all nodes on which it depends directly, in their original order.
        """
        self.needs = {n: [a for a in dict.fromkeys(needs) if a in needed] for n, needs in needed.items()}

    @functools.cached_property
    def users(self) -> dict[Node, list[Node]]:
        """The nodes that depend on each node."""
        users: dict[Node, list[Node]] = {n: [] for n in self.needs}
        for node, needs in self.needs.items():
            for a in needs:
                users[a].append(node)
        return users

    @functools.cached_property
    def depth(self) -> dict[Node, int]:
        """Length of the longest chain of operations that ends in each node."""
        depth: dict[Node, int] = {}
        for node, needs in self.needs.items():
            depth[node] = 1 + max([depth[a] for a in needs]) if needs else 1
        return depth

    def fewest_alive(self, roots: Sequence[Node], order: Sequence[Node]) -> list[Node]:
        """The given order, or another one with fewer simultaneously alive values."""
        keys = (self.depth.__getitem__, lambda a: -self.depth[a], lambda a: a.serial)
        others = [self.depth_first(roots, key) for key in keys]
        return min((list(order), *others, self.fewest_from_the_end()), key=self.most_alive)

    def depth_first(self, roots: Sequence[Node], key: Callable[[Node], int]) -> list[Node]:
        """Order in which the operands of a node directly precede it, the operand with the largest key first."""
        order: list[Node] = []
        done: set[Node] = set()
        stack = [(x, False) for x in reversed(roots)]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            if ready:
                done.add(node)
                order.append(node)
                continue
            stack.append((node, True))
            missing = [a for a in self.needs[node] if a not in done]
            if len(missing) > 1:
                missing.sort(key=key)
            stack += [(a, False) for a in missing]
        return order + [n for n in self.needs if n not in done]  # needed by inner blocks only

    def fewest_from_the_end(self) -> list[Node]:
        """Order from the last node to the first; the next node is the one whose operands add the fewest alive values."""
        waiting = {n: len(users) for n, users in self.users.items()}
        added = {n: sum(_registers(a) for a in needs) - _registers(n) for n, needs in self.needs.items()}
        # Ties are resolved in favor of the node created last. An entry whose cost has decreased is entered again.
        ready = [(added[n], -n.serial, n) for n, count in waiting.items() if not count]
        heapq.heapify(ready)
        alive: set[Node] = set()
        taken: set[Node] = set()
        backward = []
        while ready:
            _, _, node = heapq.heappop(ready)
            if node in taken:
                continue
            taken.add(node)
            backward.append(node)
            for a in self.needs[node]:
                waiting[a] -= 1
                if not waiting[a]:
                    heapq.heappush(ready, (added[a], -a.serial, a))
                if a not in alive:
                    alive.add(a)
                    for user in self.users[a]:
                        added[user] -= _registers(a)
                        if not waiting[user] and user not in taken:
                            heapq.heappush(ready, (added[user], -user.serial, user))
        return backward[::-1]

    def most_alive(self, order: Sequence[Node]) -> int:
        """Maximum number of registers of simultaneously alive values."""
        left = {n: len(users) for n, users in self.users.items()}
        alive = most = 0
        for node in order:
            alive += _registers(node) if left[node] else 0
            most = max(most, alive)
            for a in self.needs[node]:
                left[a] -= 1
                alive -= 0 if left[a] else _registers(a)
        return most

    def with_first(self, first: Sequence[Node], order: Sequence[Node]) -> list[Node]:
        """The order, changed so that some nodes and their operands come first."""
        wanted, stack = set(), list(first)
        while stack:
            node = stack.pop()
            if node not in wanted:
                wanted.add(node)
                stack += self.needs[node]
        return [n for n in order if n in wanted] + [n for n in order if n not in wanted]


def _registers(node: Node) -> int:
    """Number of 32-bit registers of a value."""
    return {"f64": 2, "i64": 2, "u64": 2, "region": 0, "loop": 0, "bool": 0}.get(node.type, 1)
