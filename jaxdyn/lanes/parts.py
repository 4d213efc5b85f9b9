"""Division of a long program into parts, each of which becomes a kernel of a GPU.

A multiprocessor of an H100 keeps some 8000 instructions in its cache. In a longer kernel each instruction comes from far memory,
and all threads wait for the same instruction, which takes several times as long as executing it. The time of NVIDIA's assembler
also grows faster than the length of a kernel. Therefore a long program is divided into parts. Each kernel computes one part for all
samples, and stores the values that later parts need in a buffer. The forward dynamics of a tree of 27 bodies run 2.5 times as fast
in two kernels as in one. Writing and reading the buffers takes time, too, so that there are no more kernels than necessary. Loops
are not divided.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jaxdyn.lanes.liveness import scalars_in
from jaxdyn.lanes.llvm_text import bytes_of
from jaxdyn.lanes.program import Node, Program, Scalar
from jaxdyn.lanes.schedule import Schedule

# Maximum length of a part, in operations in float32.
LONGEST = 10_000
# Operations in float64 and on integers of 64 bits become more instructions.
_LENGTH_OF_64_BITS = 1.5
# A division may be moved by this fraction of a part to a place where fewer values are alive.
_SLACK = 0.15


@dataclass(eq=False)
class Part:
    """A part of a program.

    Attributes:
        number: Index of the part.
        nodes: Operations in their order of evaluation.
        inputs: Indices of the inputs that the part reads.
        outputs: Indices of the outputs that the part writes.
        earlier: Values and regions from earlier parts, each with its part.
        kept: Values and regions that later parts need, each with its position in the buffer of this part, bytes per sample.
        kept_bytes: Size of the buffer of this part, bytes per sample.
    """

    number: int
    nodes: list[Node]
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    earlier: dict[Node, "Part"] = field(default_factory=dict)
    kept: dict[Node, int] = field(default_factory=dict)
    kept_bytes: int = 0

    @property
    def sources(self) -> list["Part"]:
        """Earlier parts from which this part needs values."""
        return sorted(dict.fromkeys(self.earlier.values()), key=lambda part: part.number)


def whole(program: Program, schedule: Schedule) -> Part:
    """A program as its only part."""
    return Part(0, schedule.order[program.block], [*range(len(program.inputs))], [*range(len(program.outputs))])


def is_repeated(node: Node) -> bool:
    """True for inputs, tables and values at known positions in them, which each part loads itself."""
    if node.op == "region":
        return node.data.kind in ("input", "table")
    return node.op == "load" and is_repeated(node.args[0]) and type(node.args[1]) is not Node


def is_of_loop(node: Node) -> bool:
    """True for the results of a loop and the arrays that it collects, which the code of the loop computes."""
    return node.op == "result" or (node.op == "region" and node.data.kind == "loop")


def divided(program: Program, schedule: Schedule, longest: int = LONGEST) -> list[Part]:
    """Parts of a program, of about equal length.

    Args:
        program: Scalar program.
        schedule: Its order of evaluation.
        longest: Length that parts should not exceed, in operations in float32.
    """
    order = schedule.order[program.block]
    own = [node for node in order if not is_repeated(node)]
    lengths = [_length(node, schedule) for node in own]
    part_of = _numbers(program, own, lengths, math.ceil(sum(lengths) / longest), schedule)
    last = max(part_of.values(), default=0)
    if not last:
        return [whole(program, schedule)]
    parts = [Part(k, []) for k in range(last + 1)]
    for node in own:
        parts[part_of[node]].nodes.append(node)
    read: list[set[int]] = [set() for _ in parts]

    def need(number: int, nodes: Iterable[Scalar]) -> None:
        """Note the inputs and the values of earlier parts that a part needs."""
        for a in nodes:
            if type(a) is not Node:
                continue
            if is_repeated(a):
                region = a if a.op == "region" else a.args[0]
                read[number].update([region.data.which] if region.data.kind == "input" else [])
            elif part_of[a] < number and bytes_of_node(a):  # nothing is kept of an empty region
                parts[number].earlier[a] = parts[part_of[a]]

    for number, part in enumerate(parts):
        for node in part.nodes:
            need(number, schedule.needed_by(node))
    for k, output in enumerate(program.outputs):
        needed = [x for x in scalars_in(output) if type(x) is Node]
        number = max((part_of[x] for x in needed if not is_repeated(x)), default=0)
        parts[number].outputs.append(k)
        need(number, needed)
    for part, inputs in zip(parts, read, strict=True):
        part.inputs = sorted(inputs)
        for node, source in part.earlier.items():
            source.kept[node] = 0
    for part in parts:
        part.nodes = schedule.of_part(part.nodes)
        _place_kept(part)
    return parts


def _length(node: Node, schedule: Schedule) -> float:
    """Length of the code of a node, in operations in float32."""
    if node.op == "loop":
        return sum(_length(inner, schedule) for inner in schedule.order[node.data.body])
    if is_of_loop(node):
        return 0.0
    return _LENGTH_OF_64_BITS if node.type in ("f64", "i64", "u64") else 1.0


def _numbers(
    program: Program, own: Sequence[Node], lengths: Sequence[float], count: int, schedule: Schedule
) -> dict[Node, int]:
    """Index of the part of each operation; a loop and its results are in the same part."""
    kept = _kept_at(program, own, schedule)
    ends, done, total = [], list(itertools.accumulate(lengths)), sum(lengths)
    for number in range(1, count):
        near = [k for k, length in enumerate(done) if abs(length * count / total - number) < _SLACK]
        if near:
            ends.append(min(near, key=kept.__getitem__))
    numbers: dict[Node, int] = {}
    for k, node in enumerate(own):
        numbers[node] = numbers[node.args[0]] if is_of_loop(node) else bisect.bisect_left(ends, k)
    return numbers


def _kept_at(program: Program, own: Sequence[Node], schedule: Schedule) -> list[int]:
    """Bytes that operations up to and including each one compute and later operations or outputs need."""
    place: dict[Node, int] = {}
    for k, node in enumerate(own):
        place[node] = place[node.args[0]] if is_of_loop(node) else k
    last = dict(place)
    for k, node in enumerate(own):
        last.update((a, k) for a in schedule.needed_by(node) if a in place)
    for output in program.outputs:
        needed = [x for x in scalars_in(output) if type(x) is Node and x in place]
        end = max((place[x] for x in needed), default=0)
        last.update((x, max(end, last[x])) for x in needed)
    change = [0] * (len(own) + 1)
    for node, k in place.items():
        change[k] += bytes_of_node(node)
        change[last[node]] -= bytes_of_node(node)
    return list(itertools.accumulate(change))


def bytes_of_node(node: Node) -> int:
    """Size of a value or of a region."""
    if node.type == "region":
        return node.data.size * bytes_of(node.data.type)
    return 0 if node.type == "loop" else bytes_of(node.type)


def _place_kept(part: Part) -> None:
    """Positions of kept values, the widest first, so that each is aligned for any number of samples."""
    for node in sorted(part.kept, key=lambda node: -bytes_of(node.data.type if node.type == "region" else node.type)):
        part.kept[node] = part.kept_bytes
        part.kept_bytes += bytes_of_node(node)
