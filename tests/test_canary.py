"""Is the installed jaxlib one that computes what it is asked to?

On CPU jaxlib 0.10.2 returns wrong numbers for a product of one small matrix with many vectors that is followed by a sum, for some
numbers of vectors from 2^14 (float64) or 2^15 (float32) upward (jax issue 39103); 0.11.0 can crash (39257).
"""

import importlib.util
import tomllib
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from packaging.requirements import Requirement

import jaxdyn
from jaxdyn.compute.arrays import dot, einsum

# As users compile, in spite of what conftest.py sets: another compilation could hide the error.
pytestmark = pytest.mark.usefixtures("optimized")
AS_USERS = {"xla_cpu_use_fusion_emitters": True} if jax.__version_info__ < (0, 11) else {}

# Which numbers of lanes come out wrong depends on type, size and processor; these include the two of the issue, one more than a
# power of two, and reach results of more than 10^5 elements.
LANES = [16_385, 32_769, 40_001]


@pytest.mark.parametrize("package", ["jax", "jaxlib"])
def test_broken_versions_are_excluded_and_not_installed(package):
    requirements = map(Requirement, metadata.requires(jaxdyn.__name__) or [])
    specifier = next(r.specifier for r in requirements if r.name == package and r.marker is None)
    assert not any(specifier.contains(broken) for broken in ("0.10.2", "0.11.0"))
    assert specifier.contains(metadata.version(package), prereleases=True)


def test_the_bounds_of_jax_are_stated_alike_and_admit_newer_versions():
    """The lane compiler tests itself with them."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    names = [*project["dependencies"], *project["optional-dependencies"]["gpu"]]
    specifiers = [r.specifier for r in map(Requirement, names) if r.name in ("jax", "jaxlib")]
    assert len(specifiers) == 3
    assert len(set(specifiers)) == 1
    assert specifiers[0].contains("99.0")


@pytest.mark.parametrize("version", ["0.10.2", "0.11.0"])
def test_a_broken_version_that_is_installed_all_the_same_is_refused(version, monkeypatch):
    monkeypatch.setattr("jaxlib.__version__", version)
    spec = importlib.util.find_spec("jaxdyn.compute.internals")
    with pytest.raises(ImportError, match=rf"jaxlib {version} .*jax issue \d+.*pip install 'jax!={version}'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


ROTATION = np.array([[0.36, 0.48, -0.8], [-0.8, 0.6, 0.0], [0.48, 0.64, 0.6]])
MOVES = np.tril(np.ones((7, 7)))  # which of the seven joints of a chain move which body


def same_matrix_for_all(x):
    return jnp.sum(dot(ROTATION.astype(x.dtype), x) ** 2)


def own_matrix_for_each(matrix, x):
    return jnp.sum(dot(matrix, x) ** 2)


def sum_over_ancestors(per_column):
    return jnp.sum(einsum("ia,a->i", MOVES.astype(per_column.dtype), per_column) ** 2)


def columns_times_velocities(columns, v):
    return jnp.sum(columns * v[:, None], axis=0)


# Function of one lane, shapes of its arguments, and the same for all lanes in NumPy.
CASES = {
    same_matrix_for_all: ([(3,)], lambda x: np.sum((x @ ROTATION.T) ** 2, axis=1)),
    own_matrix_for_each: ([(3, 3), (3,)], lambda a, x: np.sum(np.einsum("nij,nj->ni", a, x) ** 2, axis=1)),
    sum_over_ancestors: ([(7,)], lambda x: np.sum(np.cumsum(x, axis=1) ** 2, axis=1)),
    columns_times_velocities: ([(7, 6), (7,)], lambda c, v: np.einsum("nac,na->nc", c, v)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_large_batches_of_small_sums_are_right(function, dtype):
    shapes, reference = CASES[function]
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=(max(LANES), *shape)).astype(dtype) for shape in shapes]
    expected = reference(*(x.astype(np.float64) for x in arguments))
    rounding = 64 * np.finfo(dtype).eps  # of sums of at most 28 terms; the broken version is off by order one
    for lanes in LANES:
        computed = jax.jit(jax.vmap(function), compiler_options=AS_USERS)(*(jnp.asarray(x[:lanes]) for x in arguments))
        assert computed.dtype == dtype
        np.testing.assert_allclose(computed, expected[:lanes], rtol=rounding, atol=rounding * np.max(np.abs(expected)))
