"""Functions in files that other programs run: the numbers of the function, and errors that name the remedy."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.io import ConfigError, export

MODEL = jaxdyn.library.panda()
ROW = jax.ShapeDtypeStruct((7,), jnp.float64)
STATE = jax.eval_shape(jaxdyn.State, ROW, ROW)


def policy(state, gains):
    return {"torque": -gains["p"] * state.q - gains["d"] * state.v, "energy": jnp.sum(state.v**2)}


def test_batches_of_any_size_are_left_open(tmp_path):
    rows = jax.ShapeDtypeStruct(jax.export.symbolic_shape("rows, 7"), float)
    function = jax.vmap(lambda q: jaxdyn.frame_placement(MODEL, q, "flange").translation)
    path = export(function, (rows,), tmp_path / "flange.stablehlo")
    program = jax.export.deserialize(bytearray(path.read_bytes()))
    assert program.platforms == ("cpu", "cuda")
    for size in (1, 3):
        q = jnp.linspace(-1.0, 1.0, 7 * size).reshape(size, 7)
        np.testing.assert_allclose(program.call(q), function(q), atol=1e-14)


@pytest.mark.thorough
def test_functions_in_onnx_agree(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("jax2onnx")
    functions = {
        "mass_matrix": (lambda q: jaxdyn.mass_matrix(MODEL, q), (ROW,), ["q"]),
        "inverse": (lambda q, v, a: jaxdyn.inverse_dynamics(MODEL, q, v, a), (ROW,) * 3, ["q", "v", "a"]),
        "forward": (lambda q, v, tau: jaxdyn.forward_dynamics(MODEL, q, v, tau), (ROW,) * 3, ["q", "v", "tau"]),
        "flange": (lambda q: jaxdyn.frame_placement(MODEL, q, "flange"), (ROW,), ["q"]),
        "policy": (
            policy,
            (STATE, {"p": ROW, "d": ROW}),
            ["state_q", "state_v", "gains_d", "gains_p"],
        ),
    }
    rng = np.random.default_rng(0)
    for name, (function, specs, names) in functions.items():
        given = jax.tree.map(lambda x: rng.uniform(-1.0, 1.0, x.shape), specs)
        session = runtime.InferenceSession(export(function, specs, tmp_path / f"{name}.onnx"))
        assert [x.name for x in session.get_inputs()] == names
        found = session.run(None, dict(zip(names, jax.tree.leaves(given), strict=True)))
        expected = jax.tree.leaves(jax.jit(function)(*given))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10 * np.abs(b).max())


def test_what_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"suffix \.stablehlo or \.onnx; export_c is for C"):
        export(jnp.sin, (ROW,), tmp_path / "sine.h5")
    with pytest.raises(TypeError, match="call it outside of jit"):
        jax.jit(lambda x: export(jnp.sin, (x,), tmp_path / "sine.stablehlo"))(1.0)
    assert not list(tmp_path.iterdir())
