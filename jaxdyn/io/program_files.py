"""Functions as files for programs without jaxdyn: StableHLO for JAX and XLA, ONNX for its runtimes. `export_c` is for C."""

import inspect
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from jaxdyn.compute import backend, within_jit
from jaxdyn.io.c_export import arrays_of
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_content, writing

_PLATFORMS = ("cpu", "cuda")


def export(function: Callable, specs: tuple, path: str | Path) -> Path:
    """Write a function to a file that other programs run without jaxdyn.

    A file `.stablehlo` contains operations of XLA for CPUs and NVIDIA GPUs. JAX runs it, also without jaxdyn:
    `jax.export.deserialize(bytearray(Path(path).read_bytes())).call(*arguments)`. A dimension may be left open, as in
    `jax.ShapeDtypeStruct(jax.export.symbolic_shape("rows, 7"), float)`, so that a function from `jax.vmap` takes batches of any
    size.

    A file `.onnx` is for onnxruntime and its relatives. Its inputs have the names of the arguments, with paths in pytrees
    (`state.q` is `state_q`), and its outputs are `result`, or `result_` with the path. The converter jax2onnx does not support all
    functions; derivatives, batches and rollouts are among those that it refuses. It replaces functions of JAX while it works, so
    all compiled functions of the process are compiled again afterwards.

    Args:
        function: Pure function. Values in its closure, such as a model, become constants of the file.
        specs: An example of each argument: arrays, or `jax.ShapeDtypeStruct` in place of arrays.
        path: File with the suffix .stablehlo or .onnx.

    Returns:
        Path of the file.

    Raises:
        ConfigError: The suffix is another one, or the file cannot be written, or ONNX has no operation for one of the function.
        ModuleNotFoundError: jax2onnx is not installed.
        TypeError: `export` is called within `jit`.

    Example:
        ```python
        import jax, jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        pair = jax.ShapeDtypeStruct((2,), jnp.float32)
        jaxdyn.io.export(lambda q: jaxdyn.mass_matrix(model, q), (pair,), "mass_matrix.stablehlo")
        ```
    """
    path = Path(path)
    contents = {".stablehlo": _stablehlo, ".onnx": _onnx}
    if path.suffix not in contents:
        raise ConfigError(f"{path}: export writes files with the suffix {' or '.join(contents)}; export_c is for C")
    if within_jit():
        raise TypeError("export writes a file, so it cannot be a part of a compiled function; call it outside of jit")
    with backend("xla"):
        content = contents[path.suffix](function, specs, path)
    with writing(path):
        write_content(path, content)
    return path


def _stablehlo(function: Callable, specs: tuple, path: Path) -> bytes:
    return bytes(jax.export.export(jax.jit(function), platforms=_PLATFORMS)(*specs).serialize())


def _onnx(function: Callable, specs: tuple, path: Path) -> bytes:
    try:
        from jax2onnx import to_onnx  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        remedy = "install it with pip install jax2onnx"
        raise ModuleNotFoundError(f"files of ONNX need {error.name}; {remedy}", name=error.name) from None
    leaves, tree = jax.tree.flatten(specs)
    results = jax.eval_shape(function, *specs)
    names = [name for name, _ in arrays_of(inspect.signature(function).bind(*specs).arguments)]
    options = {
        "input_names": names,
        "output_names": [name for name, _ in arrays_of({"result": results})],
        "enable_double_precision": any(leaf.dtype == jnp.float64 for leaf in leaves),
    }
    # The converter changes functions of JAX; a function that was traced before or meanwhile would mix both.
    jax.clear_caches()
    try:
        model = to_onnx(
            lambda *given: tuple(jax.tree.leaves(function(*jax.tree.unflatten(tree, given)))),
            [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves],
            **options,
        )
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: jax2onnx cannot convert the function: {error}") from error
    finally:
        jax.clear_caches()
    return model.SerializeToString()
