"""Base parameters: known counts, textbook combinations, and combinations that give the same forces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import JointFriction, MechanismBuilder, Prismatic, Revolute, State, System
from jaxdyn.identify.identifiability import base_parameters, identifying_motions, system_base_parameters
from jaxdyn.identify.regression import Label, inertial_regressor, labels, linear_parameters, regressor

motions_of = jax.jit(identifying_motions, static_argnames="samples")


def names(chosen, found) -> set[str]:
    return {label.name for label, is_one in zip(found.labels, chosen, strict=True) if is_one}


@pytest.mark.parametrize("arm", ["panda", "kuka_lwr"])
def test_seven_joint_arms_have_43_inertial_base_parameters(arm):
    """7 n_r - 6 with the first axis along gravity: Khalil and Dombre 2002; 43 for these arms too in Gaz et al. 2014, 2019."""
    system = System(getattr(jaxdyn.library, arm)())
    motions = motions_of(system, jax.random.key(0), samples=60)
    Y = jax.jit(jax.vmap(inertial_regressor, (None, 0, 0, 0)))(system.model, *motions)
    found = base_parameters(Y, labels(system)[:70])
    assert found.rank == 43
    assert found.gap > 1e10
    # The mass and the first moments of a link that turns about a vertical axis do no work.
    root = {f"{symbol}({system.model.topology.body_names[0]})" for symbol in ("m", "hx", "hy", "hz")}
    assert root <= names(~found.visible, found)


def two_links() -> System:
    """Links of length 0.5 m in a vertical plane, on axes along y, with rotors and friction."""
    builder = MechanismBuilder()
    limits = {"position_limits": (-3.0, 3.0), "velocity_limit": 4.0}
    builder.add_body("upper", joint=Revolute((0, 1, 0)), joint_name="shoulder", mass=2.0, com=(0.1, 0, -0.2),
                     inertia=(0.1, 0.08, 0.03), armature=0.02, **limits)  # fmt: skip
    builder.add_body("lower", parent="upper", position=(0, 0, -0.5), joint=Revolute((0, 1, 0)), joint_name="elbow", mass=1.0,
                     com=(0, 0, -0.3), inertia=(0.07, 0.06, 0.03), armature=0.03, **limits)  # fmt: skip
    return System(builder.build(), (JointFriction(viscous=[0.3, 0.2], coulomb=[0.5, 0.4], velocity_scale=[0.1, 0.1]),))


def test_double_pendulum_has_the_combinations_of_textbooks():
    system = two_links()
    found = system_base_parameters(system, jax.random.key(1), samples=40)
    # J1 + m2 l^2, h1 + m2 l, J2, h2, in the plane of motion; rotors: that of the shoulder is one with J1, that of the elbow is not
    assert found.names == (
        "hx(upper)",
        "hz(upper) - 0.5 m(lower)",
        "Jyy(upper) + 0.25 m(lower) + armature(shoulder)",
        "hx(lower)",
        "hz(lower)",
        "Jyy(lower)",
        "armature(elbow)",
        "viscous(shoulder)",
        "viscous(elbow)",
        "coulomb(shoulder)",
        "coulomb(elbow)",
    )
    assert found.units[:3] == ("kg m", "kg m", "kg m^2")
    assert names(found.visible & ~found.alone, found) == {
        "hz(upper)", "Jyy(upper)", "m(lower)", "armature(shoulder)"
    }  # fmt: skip
    assert "m(upper)" in names(~found.visible, found)
    report = found.report().splitlines()
    assert report[0].startswith("11 base parameters of 26 parameters; gap ")
    assert report[3] == "   3  kg m^2     Jyy(upper) + 0.25 m(lower) + armature(shoulder)"
    assert report[-2] == "only in combination: hz(upper), Jyy(upper), m(lower), armature(shoulder)"
    theta = linear_parameters(system)
    q, v, a = motions_of(system, jax.random.key(2), samples=5)
    Y = jax.jit(jax.vmap(regressor, (None, 0, 0)))(system, State(q, v), a)
    beta = found.values(theta)
    np.testing.assert_allclose(beta[2], 2.0 * 0.05 + 0.08 + 0.25 + 0.02, rtol=1e-12)
    np.testing.assert_allclose(jnp.dot(found.columns(Y), beta), jnp.dot(Y, theta), atol=1e-10)
    # Other base parameters, other forces; what is not identifiable keeps its value.
    changed = found.nearest(1.1 * beta, theta)
    np.testing.assert_allclose(jnp.dot(Y, changed), 1.1 * jnp.dot(Y, theta), atol=1e-10)
    assert changed[0] == theta[0]


def test_slide_has_its_mass_and_motions_keep_the_limits():
    builder = MechanismBuilder()
    builder.add_body("cart", joint=Prismatic((1, 0, 0)), mass=2.0, inertia=(1.0, 1.0, 1.0), joint_name="rail",
                     position_limits=(0.5, 0.7), velocity_limit=0.3)  # fmt: skip
    system = System(builder.build())
    assert system_base_parameters(system, jax.random.key(0), samples=10).names == ("m(cart) + armature(rail)",)
    q, v, a = motions_of(system, jax.random.key(1), samples=50)
    assert np.all((q > 0.5) & (q < 0.7))
    assert np.all(np.abs(v) < 0.3)
    assert np.unique(np.concatenate([q, v, a])).size == 150


def test_columns_in_any_units_and_dependent_ones_last():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 30))
    Y = np.stack([1e-3 * x, np.zeros(30), 1e4 * y, 2.0 * x - 3.0 * y], axis=1)
    found = base_parameters(Y, [Label(name, "1") for name in "abcd"])
    assert found.independent.tolist() == [0, 2]
    np.testing.assert_allclose(found.combination, [[1, 0, 0, 2e3], [0, 0, 1, -3e-4]], rtol=1e-10)
    assert found.visible.tolist() == [True, False, True, True]
    assert not found.alone.any()


def test_regressors_that_say_nothing_are_refused():
    four = [Label(name, "1") for name in "abcd"]
    with pytest.raises(ValueError, match="there are 4 labels for 3 columns"):
        base_parameters(np.ones((5, 3)), four)
    with pytest.raises(ValueError, match="not finite"):
        base_parameters(np.full((5, 4), np.nan), four)
    with pytest.raises(ValueError, match="the regressor is identically zero"):
        base_parameters(np.zeros((5, 4)), four)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(50, 4))
    x[:, 2:] = x[:, :2] + np.array([1e-7, 5e-9]) * x[:, 2:]
    with pytest.raises(ValueError, match="no gap"):
        base_parameters(x, four)
