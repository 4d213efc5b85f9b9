"""The mechanisms that come with jaxdyn: their numbers against their sources, and that they are mechanisms at all."""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn import configuration, frame_placement, gravity_force, library, mass_matrix
from jaxdyn.spatial.inertia import symmetric_matrix

SHARED = Path(os.environ.get("JAXDYN_SHARED", Path(__file__).parents[2] / "shared"))
CHAIN = SHARED / "data" / "franka_panda" / "chain.json"


@pytest.mark.parametrize("load", [library.panda, library.double_pendulum])
def test_mass_matrix_is_positive_definite_and_gravity_is_finite(load):
    model = load()
    q = jnp.stack([configuration.neutral(model), *(configuration.random(model, jax.random.key(i)) for i in range(3))])
    metric, gravity = jax.jit(jax.vmap(lambda q: (mass_matrix(model, q), gravity_force(model, q))))(q)
    assert np.all(np.linalg.eigvalsh(metric) > 0)
    assert np.all(np.isfinite(gravity))


def test_panda_has_the_mass_the_names_and_the_limits_of_its_sources():
    model = library.panda()
    assert model.topology.joint_names == tuple(f"joint{i}" for i in range(1, 8))
    # Sum of the seven masses of Gaz et al. 2019.
    np.testing.assert_allclose(model.mass.sum(), 16.062132, rtol=1e-14)
    limits = model.limits
    upper = [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973]
    lower = [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973]
    np.testing.assert_array_equal(limits.upper, upper)
    np.testing.assert_array_equal(limits.lower, lower)
    np.testing.assert_array_equal(limits.velocity, [2.175] * 4 + [2.61] * 3)
    np.testing.assert_array_equal(limits.effort, [87.0] * 4 + [12.0] * 3)


def test_panda_stretched_out_reaches_where_its_dimensions_say():
    """At q = 0 the arm stands upright: 0.333 + 0.316 + 0.384 m up, the hand 0.088 m forward with the flange 0.107 m down."""
    model = library.panda()
    flange = jax.jit(lambda q: frame_placement(model, q, "flange"))(jnp.zeros(7))
    np.testing.assert_allclose(flange.translation, [0.088, 0.0, 0.333 + 0.316 + 0.384 - 0.107], atol=1e-15)
    np.testing.assert_allclose(flange.rotation, np.diag([1.0, -1.0, -1.0]), atol=1e-15)


def test_panda_is_the_published_chain():
    if not CHAIN.is_file():
        pytest.skip(f"{CHAIN} is not there")
    chain = json.loads(CHAIN.read_text())
    model = library.panda()
    np.testing.assert_array_equal(model.gravity, chain["gravity"])
    for i, link in enumerate(chain["links"]):
        assert model.topology.parents[i] == i - 1
        np.testing.assert_array_equal(model.joints[0].axis[i], link["axis"])
        np.testing.assert_array_equal(model.placement.rotation[i], link["parent_R_joint"])
        np.testing.assert_array_equal(model.placement.translation[i], link["parent_p_joint"])
        np.testing.assert_array_equal(model.mass[i], link["mass"])
        # Model building goes through the first moment, so these two are off by some roundings.
        np.testing.assert_allclose(model.com[i], link["com"], rtol=1e-14)
        np.testing.assert_allclose(symmetric_matrix(model.inertia[i]), link["inertia_com"], rtol=0, atol=1e-15)


def test_double_pendulum_has_the_gravity_torque_of_two_rods():
    """Horizontal rods: torque of the weights m g L / 2 about each joint, with everything beyond it."""
    model = library.double_pendulum()
    g, (m1, m2), (l1, l2) = 9.81, (1.0, 0.5), (1.0, 0.5)
    expected = [g * (m1 * l1 / 2 + m2 * (l1 + l2 / 2)), g * m2 * l2 / 2]
    torque = jax.jit(lambda q: gravity_force(model, q))(jnp.array([np.pi / 2, 0.0]))
    np.testing.assert_allclose(np.abs(torque), expected, rtol=1e-14)
    np.testing.assert_allclose(model.inertia[:, 0], [m1 * l1**2 / 12, m2 * l2**2 / 12], rtol=1e-15)


def test_unknown_mechanism_names_the_folders_searched():
    with pytest.raises(
        FileNotFoundError, match=r"there is no mechanism file robot.toml in .* check the name"
    ) as caught:
        library.mechanism_path("robot")
    assert "configs" in str(caught.value)


def test_installed_mechanisms_are_found_before_those_of_a_checkout(tmp_path, monkeypatch):
    package = tmp_path / "jaxdyn"
    for folder in (package / "mechanisms", tmp_path / "configs" / "mechanisms"):
        folder.mkdir(parents=True)
    (tmp_path / "configs" / "mechanisms" / "arm.toml").write_text("")
    monkeypatch.setattr(library, "__file__", str(package / "library.py"))
    assert library.mechanism_path("arm") == tmp_path / "configs" / "mechanisms" / "arm.toml"
    (package / "mechanisms" / "arm.toml").write_text("")
    assert library.mechanism_path("arm") == package / "mechanisms" / "arm.toml"
