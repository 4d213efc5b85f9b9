"""The DFKI double pendulum: mechanism files against the published equations, and the config that identifies it."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.io.config import read_config
from jaxdyn.io.mechanism.file import load_mechanism
from jaxdyn.io.toml import read_toml
from jaxdyn.jobs.identify.config import IdentifyConfig

CONFIGS = Path(__file__).parents[2] / "configs"
BUILDS = ("c1", "a0", "c0")


@pytest.mark.parametrize("build", BUILDS)
def test_mass_matrix_and_gravity_are_those_published(build):
    """Mass matrix and gravity of the platform's authors, whose inertias are about the joints; link 1 without the elbow's rotor."""
    path = CONFIGS / f"machines/dfki_{build}.toml"
    upper, lower = read_toml(path)["body"]
    rotor = read_toml(path)["rotor"][1]["inertia"]
    l1, (m1, m2) = -lower["position"][2], (upper["mass"], lower["mass"])
    r1, r2 = -upper["com"][2], -lower["com"][2]
    I1, I2 = upper["inertia"][1] + m1 * r1**2 - rotor, lower["inertia"][1] + m2 * r2**2
    gear = 6.0
    q = jnp.array([0.4, -1.1])
    h = m2 * l1 * r2 * np.cos(q[1])
    M11 = I1 + I2 + m2 * l1**2 + 2 * h + gear**2 * rotor + rotor
    M12, M22 = I2 + h - gear * rotor, I2 + gear**2 * rotor
    weight = 9.81 * np.array([(m1 * r1 + m2 * l1) * np.sin(q[0]), 0.0]) + 9.81 * m2 * r2 * np.sin(q[0] + q[1])
    model = load_mechanism(path).model
    M, g = jax.jit(lambda q: (jaxdyn.mass_matrix(model, q), jaxdyn.gravity_force(model, q)))(q)
    np.testing.assert_allclose(M, [[M11, M12], [M12, M22]], rtol=1e-12)
    np.testing.assert_allclose(np.abs(g), np.abs(weight), rtol=1e-12)


def test_references_bear_the_names_of_our_figures():
    config = read_config(CONFIGS / "identify_dfki.toml", IdentifyConfig, [])
    (check,) = (check for check in config.check if not check.zeros_from)
    names = {
        f"{what} @{duration:g}s, filtered start (20 Hz)"
        for duration in check.durations
        for what in ("rms shoulder", "rms elbow", "median end")
    }
    assert [study.name.lower() for study in config.study] == list(BUILDS)
    assert {reference.study for reference in config.reference} == {study.name for study in config.study}
    for reference in config.reference:
        assert set(reference.figures) == names
