"""The private parts of JAX that jaxdyn uses, and the only file that imports them.

JAX promises nothing about them. If a version of JAX lacks one, `MISSING` says which, and the lane compiler, which needs them all,
is not used: the functions of jaxdyn remain, compiled by XLA. Versions of jaxlib that are known to be wrong are refused here, too.
"""

import importlib
from typing import Any

import jaxlib

_BROKEN = {
    "0.10.2": "computes wrong sums on CPUs (jax issue 39103)",
    "0.11.0": "can crash (jax issue 39257)",
}
if jaxlib.__version__ in _BROKEN:
    version = jaxlib.__version__
    raise ImportError(
        f"jaxlib {version} {_BROKEN[version]}; install another version, with pip install 'jax!={version}'"
    )

# Missing parts of the installed JAX.
MISSING: list[str] = []


def _found(module: str, *names: str) -> Any:
    """A module of JAX; the names are those of its attributes that are used."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        MISSING.append(module)
        return None
    MISSING.extend(f"{module}.{name}" for name in names if not hasattr(found, name))
    return found


config = _found(
    "jax._src.config", "config_ext", "trace_context", "disable_jit", "default_device", "enable_x64", "_check_vma"
)
core = _found("jax._src.core", "trace_ctx")
dispatch = _found("jax._src.dispatch")
ad = _found("jax._src.interpreters.ad")
partial_eval = _found("jax._src.interpreters.partial_eval", "dce_jaxpr", "dce_rules")
util = _found("jax._src.util")
lib = _found("jax._src.lib", "lapack", "utils")
try:
    from jaxlib.xla_client import batched_device_put
except ImportError:  # not needed: `jax.device_put` does the same, and takes longer
    batched_device_put: Any = None
xla_bridge = _found("jax._src.xla_bridge", "backends", "backends_are_initialized")
