"""A scalar program as a Pallas kernel: one sample per thread, every number in a register of that thread.

The grid runs over blocks of samples. Arrays stand in memory number by number, all samples of a number together, so that
neighboring threads read and write neighboring places. Collected results of loops go to memory of the same kind.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.typing import ArrayLike

from jaxdyn.lanes.liveness import Liveness
from jaxdyn.lanes.program import Block, Loop, Node, Program, Scalar, Stretch
from jaxdyn.lanes.scalar_types import dtype_of_type
from jaxdyn.lanes.schedule import Schedule

_OPERATIONS: dict[str, Callable] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jax.lax.div,
    "rem": jax.lax.rem,
    "neg": jnp.negative,
    "abs": jnp.abs,
    "sqrt": jnp.sqrt,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round_even": jnp.rint,
    "min": jnp.minimum,
    "max": jnp.maximum,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "eq": jnp.equal,
    "not": jnp.invert,
    "and": jnp.bitwise_and,
    "or": jnp.bitwise_or,
    "xor": jnp.bitwise_xor,
    "shift_left": jax.lax.shift_left,
    "shift_right_logical": jax.lax.shift_right_logical,
    "shift_right_arithmetic": jax.lax.shift_right_arithmetic,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "tanh": jnp.tanh,
    "atan": jnp.arctan,
    "asin": jnp.arcsin,
    "acos": jnp.arccos,
    "atan2": jnp.arctan2,
    "pow": jnp.power,
}


class _Kernel:
    """Evaluates a program on one block of samples.

    Attributes:
        places: where each region lies: (reference, position of its first number, whether all samples share it).
        samples: the samples of this block, as a slice of the last axis.
    """

    def __init__(self, schedule: Schedule, live: Liveness, places: dict[Node, tuple], samples, block: int):
        self.schedule, self.live, self.places, self.samples, self.block = schedule, live, places, samples, block
        self.values: dict[Node, jax.Array] = {}

    def number(self, x: Scalar, kind: str) -> ArrayLike:
        """A number, of its own type; constants are NumPy scalars, which fold into the operation."""
        return self.values[x] if type(x) is Node else dtype_of_type(kind).type(x)

    def lanes(self, x: Scalar, kind: str) -> jax.Array:
        """A number as one value per thread."""
        return jnp.broadcast_to(jnp.asarray(self.number(x, kind), dtype_of_type(kind)), (self.block,))

    def run(self, block: Block) -> None:
        for node in self.schedule.order[block]:
            if node.op == "loop":
                self.loop(node.data)
            elif node.op == "region":
                if node.data.kind == "pieces":
                    self.pieces(node)
            elif node.op == "load":
                self.values[node] = self.load(*node.args)
            elif node.op not in ("carry", "counter", "result"):
                self.values[node] = self.operation(node)

    def operation(self, node: Node) -> jax.Array:
        if node.op == "select":
            condition, if_true, if_false = node.args
            cases = self.number(if_true, node.type), self.number(if_false, node.type)
            return jnp.where(self.number(condition, "bool"), cases[0], cases[1])
        if node.op == "convert":
            return jnp.asarray(self.number(node.args[0], node.data)).astype(dtype_of_type(node.type))
        if node.op == "bitcast":
            return jax.lax.bitcast_convert_type(self.number(node.args[0], node.data), dtype_of_type(node.type))
        kind = node.type
        if node.op in ("lt", "le", "eq"):
            kind = next(a.type for a in node.args if type(a) is Node)
        operands = [self.number(x, kind) for x in node.args]
        if node.op in ("div", "rem"):
            operands = jnp.broadcast_arrays(*operands)
        return _OPERATIONS[node.op](*operands)

    def load(self, region: Node, index: Scalar) -> jax.Array:
        return self.load_at(region, self.index(index))

    def index(self, x: Scalar):
        return self.values[x].astype(jnp.int32) if type(x) is Node else int(x)

    def store(self, region: Node, index, value: jax.Array) -> None:
        reference, start, _ = self.places[region]
        reference[start + index, self.samples] = value

    def put(self, region: Node, first, numbers) -> None:
        """Numbers, or those of a stretch, from position `first` of a region on."""
        kind = region.data.type
        if not isinstance(numbers, Stretch):
            for k, x in enumerate(numbers):
                self.store(region, first + k, self.lanes(x, kind))
            return
        offset = self.index(numbers.offset)

        def copy(k, _):
            self.store(region, first + k, jnp.broadcast_to(self.load_at(numbers.region, offset + k), (self.block,)))
            return 0

        jax.lax.fori_loop(np.int32(0), np.int32(numbers.size), copy, 0)

    def load_at(self, region: Node, at) -> jax.Array:
        reference, start, shared = self.places[region]
        if shared:
            return reference[start + at]
        if jnp.ndim(at):
            return reference[start + at, self.samples.start + jnp.arange(self.block, dtype=np.int32)]
        return reference[start + at, self.samples]

    def pieces(self, node: Node) -> None:
        start = 0
        for part in node.data.pieces:
            self.put(node, start, part)
            start += part.size if isinstance(part, Stretch) else len(part)

    def loop(self, loop: Loop) -> None:
        carries = self.live.carries[loop]
        kinds = [loop.carries[i].type for i in carries]

        def turn(k, carried):
            self.values[loop.counter] = k.astype(jax.dtypes.canonicalize_dtype(np.int64))
            for i, x in zip(carries, carried, strict=True):
                self.values[loop.carries[i]] = x
            self.run(loop.body)
            for which in self.live.collected[loop]:
                position, numbers, _, _ = loop.collected[which]
                self.put(self.regions[loop, which], self.index(position), numbers)
            return tuple(self.lanes(loop.following[i], kind) for i, kind in zip(carries, kinds, strict=True))

        initial = tuple(self.lanes(loop.initial[i], kind) for i, kind in zip(carries, kinds, strict=True))
        final = jax.lax.fori_loop(np.int32(0), np.int32(loop.length), turn, initial)
        for node in self.live.nodes:
            if node.op == "result" and node.args[0].data is loop:
                self.values[node] = final[carries.index(node.data)]

    @functools.cached_property
    def regions(self) -> dict[tuple[Loop, int], Node]:
        return {
            (n.args[0].data, n.data.which): n for n in self.live.nodes if n.op == "region" and n.data.kind == "loop"
        }


def pallas_call(program: Program, shared: Sequence[bool], *, block: int = 128, interpret: bool = False) -> Callable:
    """A function of arrays (numbers, samples), or (numbers,) for shared ones, that returns arrays (numbers, samples).

    Args:
        shared: whether all samples share an input.
        block: samples per block of the grid, a power of two.
        interpret: run the kernel in JAX's interpreter, for tests without a device.
    """
    live = Liveness(program)
    schedule = Schedule(program, live)
    made = [n for n in live.nodes if n.op == "region" and n.data.kind in ("loop", "pieces")]
    made.sort(key=lambda n: n.serial)
    tables = sorted((n for n in live.nodes if n.op == "region" and n.data.kind == "table"), key=lambda n: n.serial)
    inputs = [n for n in program.block.nodes if n.op == "region" and n.data.kind == "input"]
    output_sizes = [o.size if isinstance(o, Stretch) else len(o) for o in program.outputs]

    def kernel(*references):
        given = references[: len(inputs)]
        constants = references[len(inputs) : len(inputs) + len(tables)]
        results = references[len(inputs) + len(tables) :]
        outputs, memory = results[: len(output_sizes)], results[len(output_sizes) :]
        places = {n: (r, 0, shared[n.data.which]) for n, r in zip(inputs, given, strict=True)}
        places |= {n: (r, 0, True) for n, r in zip(tables, constants, strict=True)}
        places |= {n: (r, 0, False) for n, r in zip(made, memory, strict=True)}
        samples = pl.ds(pl.program_id(0) * block, block)
        run = _Kernel(schedule, live, places, samples, block)
        run.run(program.block)
        for reference, numbers, kind in zip(outputs, program.outputs, program.output_types, strict=True):
            if isinstance(numbers, Stretch):
                offset = run.index(numbers.offset)

                def copy(k, _, reference=reference, numbers=numbers, offset=offset):
                    value = run.load_at(numbers.region, offset + k)
                    reference[k, samples] = jnp.broadcast_to(value, (block,))
                    return 0

                jax.lax.fori_loop(np.int32(0), np.int32(numbers.size), copy, 0)
            else:
                for k, x in enumerate(numbers):
                    reference[k, samples] = run.lanes(x, kind)

    def call(*arrays: jax.Array) -> list[jax.Array]:
        (batch,) = {a.shape[1] for a, s in zip(arrays, shared, strict=True) if not s}
        whole = -(-batch // block) * block
        padded = [a if s else jnp.pad(a, ((0, 0), (0, whole - batch))) for a, s in zip(arrays, shared, strict=True)]
        shapes = [
            jax.ShapeDtypeStruct((n, whole), dtype_of_type(kind))
            for n, kind in zip(output_sizes, program.output_types, strict=True)
        ]
        shapes += [jax.ShapeDtypeStruct((n.data.size, whole), dtype_of_type(n.data.type)) for n in made]
        constants = [jnp.asarray(n.data.values, dtype_of_type(n.data.type)) for n in tables]
        results = pl.pallas_call(kernel, out_shape=shapes, grid=(whole // block,), interpret=interpret)(
            *padded, *constants
        )
        return [r[:, :batch] for r in results[: len(output_sizes)]]

    return call
