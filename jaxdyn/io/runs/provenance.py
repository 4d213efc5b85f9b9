"""Provenance of a run: its config, the files that it reads, the code and libraries, and the device.

Everything that can change results, even in rounding, is recorded. A run is resumed only if its provenance is unchanged.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from jaxdyn.cache.fingerprint import sources_digest

_PACKAGE = Path(__file__).resolve().parents[2]
_LIBRARIES = ("jax", "jaxlib", "equinox", "llvmlite", "numpy", "optax", "scipy")
_OPTIONAL_LIBRARIES = ("mujoco", "casadi")  # used to read mechanisms and to solve problems if they are installed
_SETTINGS = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_disable_most_optimizations",
    "jax_threefry_partitionable",
)
# The lane compiler gives identical bits for any number of CPU devices; on other devices the layout of a batch can change them.
_LAYOUT_FLAG = re.compile(r"--xla_force_host_platform_device_count=\S*")
# Entries of the environment that do not change any bit, or that the config determines (the precision).
_UNPINNED = ("commit", "platform", "x64", "dtype")


def environment() -> dict[str, Any]:
    """Versions, device, precision and settings of this process, and the commit if jaxdyn is imported from a git checkout."""
    device = jax.devices()[0]
    return {
        "jaxdyn": _version("jaxdyn"),
        "sources": sources_digest(),
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: _version(name) for name in (*_LIBRARIES, *_OPTIONAL_LIBRARIES)},
        "platform": platform.platform(),
        "processor": _processor(),
        "device": device.device_kind,
        "device_platform": device.platform,
        "device_count": jax.device_count(),
        "x64": bool(jax.config.read("jax_enable_x64")),
        "dtype": str(jax.dtypes.canonicalize_dtype(float)),
        **{name: jax.config.values.get(name) for name in _SETTINGS},
        "xla_flags": " ".join(_LAYOUT_FLAG.sub("", os.environ.get("XLA_FLAGS", "")).split()),
    }


def _processor() -> str:
    """Name of the processor, and a digest of its features, which the lane compiler uses."""
    try:
        import llvmlite.binding as llvm
    except ImportError:  # XLA compiles everything
        return platform.processor() or platform.machine()
    return f"{llvm.get_host_cpu_name()} {digest(llvm.get_host_cpu_features().flatten().encode())[:8]}"


def provenance(config: str, inputs: Iterable[tuple[str, Path]]) -> dict[str, Any]:
    """Provenance of a run that starts now.

    Args:
        config: The resolved config.
        inputs: Files that the run reads, each with its role, for example "mechanism".
    """
    return {
        "config": digest(config.encode()),
        "environment": environment(),
        "inputs": {f"{what} {path}": digest_of_file(path) for what, path in inputs},
    }


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Differences between two provenances that can change a result, each as a clause with a remedy."""
    files_before, files_now = before["inputs"], now["inputs"]
    clauses = [
        f"the {name} {_change(files_before.get(name), files_now.get(name))} since the run was started; restore it"
        for name in sorted(files_before.keys() | files_now.keys())
        if files_before.get(name) != files_now.get(name)
    ]
    old, new = _pinned(before), _pinned(now)
    versions = [f"{name} {old.get(name)}, now {new.get(name)}" for name in new if old.get(name) != new[name]]
    if versions:
        clauses.append(f"the run was started with {', '.join(versions)}; resume it with these versions")
    return clauses


def identity(provenance: Mapping[str, Any]) -> str:
    """Digest of all recorded inputs and conditions that must not change. Runs with the same identity produce the same results."""
    pinned = {"config": provenance["config"], "inputs": provenance["inputs"], "environment": _pinned(provenance)}
    return digest(json.dumps(pinned, sort_keys=True).encode())


def digest(content: bytes) -> str:
    """SHA-256 digest of a content, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def digest_of_file(path: Path) -> str | None:
    """SHA-256 digest of a file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _pinned(provenance: Mapping[str, Any]) -> dict[str, Any]:
    found = provenance["environment"]
    free = (*_UNPINNED, "device_count") if found.get("device_platform") == "cpu" else _UNPINNED
    return {name: value for name, value in found.items() if name not in free}


def _change(before: str | None, now: str | None) -> str:
    return "is new" if before is None else "is missing" if now is None else "has changed"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # not installed, or imported from a checkout
        return None


def _commit() -> str | None:
    checkout = _PACKAGE.parent
    if not (checkout / ".git").exists():  # otherwise an installed package could report an unrelated repository
        return None
    # Without this option, a run that is killed while git refreshes its index would leave a lock in the repository.
    git = ["git", "--no-optional-locks", "-C", str(checkout)]
    command = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
