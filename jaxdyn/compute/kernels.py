"""Kernels: compiled functions of one sample that Python calls directly, with NumPy arrays, without JAX in between."""

import functools
import inspect
import operator
import threading
from collections.abc import Callable
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdyn.compute.constant import Argument, combined
from jaxdyn.compute.forked import check_not_forked
from jaxdyn.compute.keys import without_keys
from jaxdyn.compute.programs import compiler, within_jit
from jaxdyn.compute.switch import CannotCompile, chosen_backend

_ONE = jax.tree.structure(0)


class Frame(Protocol):
    """The memory of one thread for the calls of a kernel.

    Attributes:
        inputs: One array for each input; a call reads them.
        outputs: One array for each result; a call writes them.
        run: Function that computes the results.
    """

    inputs: list[np.ndarray]
    outputs: list[np.ndarray]
    run: Callable[[], Any]


def kernel(function: Callable, *example: Any) -> "Kernel":
    """Compile a function of one sample for calls from Python, with NumPy arrays and at most some microseconds of overhead.

    Control loops, drivers of hardware and methods of SciPy call a function once per step. A call of a function of JAX takes ten
    times as long as the dynamics of a robot, because arrays change hands and the program is looked up. A kernel copies its
    arguments to its own memory and calls the machine code. Each thread has its own memory, so a kernel must not be called by a
    handler of signals that may interrupt a call of it.

    Args:
        function: Pure function of one sample, as for `per_sample`. Values in its closure become constants of the code.
        example: Arguments of the shapes, types and structures of later calls: arrays, floats, or pytrees with these, and
            `jax.ShapeDtypeStruct` in place of arrays. All that is neither an array nor a float is a constant. The kernel
            computes in the types of the example, to which later arguments are converted: give float64 to a method of SciPy.

    Returns:
        Function of the same arguments. It returns new NumPy arrays, in the structure of the results of the function. It is
        compiled, and cannot be traced or differentiated by JAX; compile the derivative instead, `kernel(jax.jacfwd(f), x)`.

    Raises:
        CannotCompile: The backend is "lanes", and the lane compiler does not support the function. With "auto" XLA compiles it,
            and a call takes some ten microseconds more.

    Example:
        ```python
        import numpy as np, jaxdyn

        model = jaxdyn.library.panda()
        q = np.zeros(7, np.float32)
        torque = jaxdyn.kernel(lambda q, v, a: jaxdyn.inverse_dynamics(model, q, v, a), q, q, q)
        print(torque(q, q, q))
        ```
    """
    return Kernel(function, example)


class Kernel:
    """A compiled function of one sample, see `kernel`.

    Attributes:
        backend: Compiler of the code, "lanes" or "xla".
    """

    def __init__(self, function: Callable, example: tuple):
        if within_jit():
            raise TypeError("a kernel is made outside of jit; within it, call the function itself")
        name = getattr(function, "__name__", type(function).__name__)
        self.__name__ = self.__qualname__ = name
        paths, self._tree = jax.tree_util.tree_flatten_with_path(example)
        given = [_of_specification(x, function, path) for path, x in paths]
        self._rest = tuple(Argument if _is_input(x) else x for x in given)
        inputs, with_keys = without_keys([jnp.asarray(x) for x in given if _is_input(x)])
        self._labels = [_label(function, path) for (path, _), x in zip(paths, given, strict=True) if _is_input(x)]
        # Arguments of a call are then its inputs, in their order.
        self._is_flat = self._tree == jax.tree.structure((0,) * len(example)) and len(inputs) == len(example)
        structure: list = []

        def flat(*inputs):
            found = function(*jax.tree.unflatten(self._tree, combined(self._rest, with_keys(inputs))))
            leaves, tree = jax.tree.flatten(found)
            arrays, with_keys_again = without_keys([x for x in leaves if eqx.is_array_like(x)])
            rest = [Argument if eqx.is_array_like(x) else x for x in leaves]
            are_plain = len(arrays) == len(leaves) and all(map(operator.is_, arrays, leaves))
            structure[:] = [tree, rest, with_keys_again, are_plain]
            return arrays

        flat.__name__ = name
        self.backend, self._frame = _compiled(flat, tuple(inputs), name)
        self._results = _restoring(*structure)
        self._types = [(x.shape, x.dtype) for x in self._frame().inputs]
        self._thread = threading.local()

    def __repr__(self) -> str:
        types = ", ".join(f"{a}: {b[1]}{list(b[0])}" for a, b in zip(self._labels, self._types, strict=True))
        return f"Kernel {self.__name__}({types})"

    def __call__(self, *args: Any) -> Any:
        try:
            frame, places = self._thread.own
        except AttributeError:
            frame = self._frame()
            places = [(x, x.shape, x.dtype, label) for x, label in zip(frame.inputs, self._labels, strict=True)]
            self._thread.own = frame, places
        inputs = args if self._is_flat and len(args) == len(places) else self._inputs(args)
        for x, (buffer, shape, dtype, label) in zip(inputs, places, strict=True):
            # Most arrays of a type share one object for it, and to compare two of them takes longer than the copy.
            if type(x) is np.ndarray and x.dtype is dtype and x.shape == shape:
                buffer[...] = x
            elif type(x) is float and not shape and dtype.kind == "f":
                buffer[()] = x
            else:
                self._fill(buffer, x, label)
        frame.run()
        return self._results([y.copy() for y in frame.outputs])

    def _inputs(self, args: tuple) -> list:
        """The inputs among the leaves of the arguments.

        Raises:
            TypeError: The arguments have another structure, or other constants.
        """
        leaves, tree = jax.tree.flatten(args)
        if tree != self._tree:
            raise TypeError(f"{self.__name__} was compiled for arguments {self._tree}; it got {tree}")
        pairs = list(zip(leaves, self._rest, strict=True))
        for x, known in pairs:
            if known is not Argument and not (x is known or (type(x) is type(known) and x == known)):
                raise TypeError(f"{self.__name__} was compiled for the constant {known!r}; it got {x!r}")
        return [x for x, known in pairs if known is Argument]

    def _fill(self, buffer: np.ndarray, x: Any, label: str) -> None:
        """Copy an argument of another class or type to the memory of the kernel.

        Raises:
            ValueError: Its shape is wrong.
            TypeError: Its type cannot be converted.
        """
        if isinstance(x, Tracer):
            raise TypeError(f"{self.__name__} is a kernel, which JAX cannot trace; call the function it was made of")
        (plain,), _ = without_keys([x])
        value = np.asarray(plain)
        if value.shape != buffer.shape:
            raise ValueError(f"{label} has shape {value.shape}; {self.__name__} was compiled for {buffer.shape}")
        if not np.can_cast(value.dtype, buffer.dtype, "same_kind"):
            raise TypeError(f"{label} has type {value.dtype}; {self.__name__} was compiled for {buffer.dtype}")
        buffer[...] = value
        if buffer.dtype.kind in "iu" and not np.array_equal(buffer, value):
            raise TypeError(f"{label} has values outside of the range of {buffer.dtype}")


def _is_input(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray | np.generic | float)


def _restoring(tree: Any, rest: list, with_keys: Callable, are_plain: bool) -> Callable[[list], Any]:
    """Function that gives the arrays of a call the structure of the results.

    Most functions return arrays alone. The general way takes longer than the dynamics of a robot.
    """
    if are_plain:
        return operator.itemgetter(0) if tree == _ONE else functools.partial(jax.tree.unflatten, tree)
    return lambda found: jax.tree.unflatten(tree, combined(rest, with_keys(found)))


def _of_specification(x: Any, function: Callable, path: tuple) -> Any:
    """A leaf of the example.

    Raises:
        TypeError: Its type is not admitted by the settings of JAX, so that the kernel would compute in another one.
    """
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, np.dtype) and jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise TypeError(
            f"{_label(function, path)} has type {dtype}, while jax_enable_x64 is off; set it, or give an example of "
            f"{jax.dtypes.canonicalize_dtype(dtype)}"
        )
    return jnp.zeros(x.shape, dtype) if isinstance(x, jax.ShapeDtypeStruct) else x


def _label(function: Callable, path: tuple) -> str:
    """Name of an input: that of the parameter, and the path within it."""
    number, within = path[0].idx, jax.tree_util.keystr(path[1:])
    try:
        return list(inspect.signature(function).parameters)[number] + within
    except (ValueError, IndexError):  # no signature, or parameters like *args
        return f"argument {number}{within}"


def _compiled(function: Callable, inputs: tuple, name: str) -> tuple[str, Callable[[], Frame]]:
    """Backend of a function of arrays, whose results are a list of arrays, and a function that makes the memory of a thread."""
    guest = None if chosen_backend() == "xla" else compiler()
    required = chosen_backend() == "lanes"
    try:
        if guest is not None:
            return "lanes", guest.direct(function, inputs, name=name, backend=chosen_backend())
        if required:
            raise CannotCompile(
                f'backend "lanes" of {name}: the lane compiler cannot be used here; use "auto" or "xla"'
            )
    except CannotCompile:
        if required:
            raise
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        program = jax.jit(function).lower(*inputs).compile()
    return "xla", functools.partial(_FrameOfXla, program, inputs)


class _FrameOfXla:
    """The memory of a thread for a program of XLA."""

    def __init__(self, program: Callable, inputs: tuple):
        self._program, self._has_doubles = program, any(x.dtype.itemsize == 8 for x in inputs)
        self.inputs = [np.array(x) for x in inputs]
        self.outputs: list[np.ndarray] = []

    def run(self) -> None:
        check_not_forked()
        with jax.enable_x64(self._has_doubles):
            self.outputs = [np.asarray(y) for y in self._program(*self.inputs)]
