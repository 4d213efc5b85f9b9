"""Division of a long block into stretches, and the values that are needed several stretches after the one that computes them.

LLVM chooses registers for all operations of a function together, and its time for this grows faster than the number of values that
are alive over a long distance. A long block has far more of them than a processor has registers. Therefore such values are kept in
scratch memory from the stretch that computes them to the last stretch that needs them. LLVM then treats each stretch separately,
which takes about 0.6 of the time for rollouts and gradients, and their code is not slower. Jacobians of large mechanisms, in which
most operations read such a value, take as long as before.
"""

from collections.abc import Callable, Iterable, Sequence

from jaxdyn.lanes.program import Node, Scalar

# A long block has more operations than this.
LONG = 4000


class Stretches:
    """Division of the order of evaluation of a block.

    Attributes:
        parts: The nodes of each stretch.
        needed_later: Values that a stretch needs which does not directly follow their own.
        last_needed: The values in `needed_later` that each stretch is the last one to need.
    """

    def __init__(
        self,
        order: Sequence[Node],
        needed_by: Callable[[Node], Iterable[Node]],
        ending: Iterable[Scalar],
        length: int,
    ):
        """Divide an order.

        Args:
            order: Nodes of the block in their order of evaluation.
            needed_by: Nodes on which a node depends directly.
            ending: Values that are needed after the block.
            length: Number of nodes of a stretch.
        """
        self.parts = [order[k : k + length] for k in range(0, len(order), length)]
        own = {node: number for number, part in enumerate(self.parts) for node in part}
        last: dict[Node, int] = {}
        # A value that only the following stretch needs may still be in a register then.
        for number, part in enumerate(self.parts):
            for node in part:
                last.update((a, number) for a in needed_by(node) if own.get(a, number) < number - 1)
        final = len(self.parts) - 1
        last.update((x, final) for x in ending if type(x) is Node and own.get(x, final) < final - 1)
        self.needed_later = last.keys()
        self.last_needed: list[list[Node]] = [[] for _ in self.parts]
        for node, number in last.items():
            self.last_needed[number].append(node)
