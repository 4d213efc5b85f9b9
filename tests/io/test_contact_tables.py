"""Contacts in mechanism files and archives."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from small_jobs import without_digests

import jaxdyn
from jaxdyn.dynamics import (
    ContactMaterial,
    GroundContact,
    HalfSpace,
    HeightFunction,
    HeightGrid,
    SphereContact,
    contact_ellipsoid,
    contact_sphere,
    contact_torus,
)
from jaxdyn.io import ConfigError, load_archive, load_system, save_archive, save_system
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.quantity import quantity

TOML = """
name = "ball"
source = "a test"

[[body]]
name = "ball"
joint = {kind = "free"}
mass = 2.0
inertia = [0.01, 0.01, 0.01]
"""
POINT = 'points = [{body = "ball", center = [0, 0, "5 cm"], radius = 0.1}]\n'


def model() -> jaxdyn.Model:
    builder = jaxdyn.MechanismBuilder("two")
    for name in ("left", "right"):
        builder.add_body(name, joint=jaxdyn.Free(), mass=1.3, inertia=(0.1, 0.1, 0.1))
    builder.add_frame("toe", body="left", position=(0.1, 0.2, 0.3), orientation=(0.5, 0.5, 0.5, 0.5))
    return builder.build()


def everything() -> jaxdyn.System:
    """A system with all kinds of contacts and surfaces that files can contain."""
    two = model()
    points = (*contact_sphere("left", center=(0.1, 1 / 3, 0.0), radius=0.07), *contact_sphere("toe"))
    heights = np.random.default_rng(1).normal(size=(3, 2))
    pairs = [(contact_sphere("left", radius=0.1)[0], contact_sphere("right", radius=0.2)[0])]
    pairs += [(contact_sphere("ground", radius=1.0)[0], contact_sphere("right", radius=0.2)[0])]
    return jaxdyn.System(
        two,
        (
            GroundContact.of(two, points),
            GroundContact.of(two, points, HalfSpace((0.1, 0.2, 0.9), 0.3), friction=0.31, stiffness=12345.678),
            GroundContact.of(two, points, HeightGrid(heights, 0.3, (-0.1, 0.2)), torsion_radius=0.01, onset=2e-3),
            GroundContact.of(
                two, (*points, *contact_torus("toe", 0.3, 0.1), *contact_ellipsoid("right", (0.1, 0.2, 0.3)))
            ),
            SphereContact.of(two, pairs, damping=7.7, slip_speed=2e-3),
        ),
    )


def read(tmp_path, table: str) -> jaxdyn.System:
    (tmp_path / "ball.toml").write_text(TOML + table)
    return load_system(tmp_path / "ball.toml")


def assert_same(a, b) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_contacts_come_back_exactly(tmp_path, ending):
    system = everything()
    save_system(system, tmp_path / f"two.{ending}")
    assert_same(load_system(tmp_path / f"two.{ending}"), system)


def test_omitted_parameters_follow_from_the_mass(tmp_path):
    system = read(tmp_path, f"[[ground_contact]]\n{POINT}friction = 0.5\n")
    (contact,) = system.forces
    assert_same(contact.material, ContactMaterial.of(system.model, friction=0.5))
    np.testing.assert_allclose(contact.centers, [[0.0, 0.0, 0.05]])
    assert_same(contact.surface, HalfSpace())


def test_an_archive_from_before_contacts_is_read(tmp_path):
    system = jaxdyn.System(model())
    save_archive(system, tmp_path / "two")
    file = tmp_path / "two.json"
    before = file.read_text()
    file.write_text(before.replace(',\n  "unused_colliders": 0', ""))
    assert file.read_text() != before
    without_digests(tmp_path / "two.npz")
    assert_same(load_archive(tmp_path / "two"), system)


def test_an_archive_keeps_an_estimate_outside_of_the_bounds(tmp_path):
    system = everything()
    (contact, *_) = system.forces
    slippery = dataclasses.replace(contact, material=dataclasses.replace(contact.material, friction=jnp.asarray(-0.1)))
    save_archive(system.changed(forces=(slippery,)), tmp_path / "two")
    assert float(load_archive(tmp_path / "two").forces[0].material.friction) == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('points = [{body = "bal"}]', "points.*bal"),
        ('points = [{body = "ground"}]', "ground itself"),
        ('points = [{body = "ball", axes = [[1, 0, 0]]}]', "axes has 1 rows"),
        (POINT + "friction = -0.1", "friction.*not negative"),
        (POINT + "stiffness = '3 kg'", "stiffness.*kg"),
        (POINT + "surface = {normal = [0, 0, 0], kind = 'plane'}", "normal.*not zero"),
        (POINT + "surface = {normal = [0, 0, 1]}", "surface.kind.*plane, grid"),
        (POINT + "surface = {kind = 'grid', heights = [[0, 1], [nan, 0]], spacing = 1}", "heights.*nan"),
        (POINT + "surface = {kind = 'grid', heights = [[0, 1], [0]], spacing = 1}", "heights.*different lengths"),
        (POINT + "surface = {kind = 'grid', heights = [[0, 1]], spacing = 1}", "at least 2 x 2"),
        (POINT + "surface = {kind = 'grid', heights = [[0, 1], [0, 1]], spacing = 0}", "spacing.*positive"),
    ],
)
def test_wrong_tables_are_refused_in_one_line(tmp_path, table, message):
    with pytest.raises((ConfigError, MechanismError), match=rf"ball\.toml.*{message}") as error:
        read(tmp_path, f"[[ground_contact]]\n{table}\n")
    assert "\n" not in str(error.value)


def test_a_height_function_is_not_written_to_a_file(tmp_path):
    two = model()
    waves = HeightFunction(lambda xy: 0.1 * jnp.sin(xy[0]))
    system = jaxdyn.System(two, (GroundContact.of(two, contact_sphere("left"), waves),))
    with pytest.raises(ConfigError, match=r"HeightFunction.*HeightGrid"):
        save_system(system, tmp_path / "two.toml")
    with pytest.raises(ConfigError, match="surface"):
        save_system(system, tmp_path / "two.json")
    with pytest.raises(ConfigError, match=r"two.urdf: a surface of class HeightFunction"):
        save_system(system, tmp_path / "two.urdf")
    assert not list(tmp_path.iterdir())


class Bowl(jaxdyn.dynamics.Surface):
    """Paraboloid z = curvature (x^2 + y^2) / 2."""

    kind: ClassVar[str] = "bowl"

    curvature: Float[Array, ""] = eqx.field(converter=jnp.asarray, metadata=quantity("1/m"))

    def gap(self, x):
        return x[2] - 0.5 * self.curvature * jnp.sum(x[:2] ** 2)


class Dome(jaxdyn.dynamics.Surface):
    """Sphere about the origin whose constructor checks the radius."""

    kind: ClassVar[str] = "dome"

    radius: Float[Array, ""] = eqx.field(converter=jnp.asarray, metadata=quantity("m"))

    def __check_init__(self):
        if self.radius <= 0.0:
            raise ValueError(f"the radius is {self.radius}; give a positive value")

    def gap(self, x):
        return jnp.sqrt(jnp.sum(x**2)) - self.radius


def test_a_value_that_the_class_of_a_surface_refuses_is_an_error_with_its_place(tmp_path, refusal):
    message = refusal(
        ConfigError, read, tmp_path, f"[[ground_contact]]\n{POINT}surface = {{kind = 'dome', radius = -1}}\n"
    )
    assert "ground_contact 1: surface: the radius is -1.0; give a positive value" in message


def test_a_new_surface_is_one_class(tmp_path):
    system = read(tmp_path, f"[[ground_contact]]\n{POINT}surface = {{kind = 'bowl', curvature = 0.5}}\n")
    assert_same(system.forces[0].surface, Bowl(0.5))
    for ending in ("toml", "json"):
        save_system(system, tmp_path / f"again.{ending}")
        assert_same(load_system(tmp_path / f"again.{ending}"), system)
    with pytest.raises(ConfigError, match=r"surface\.curvature: missing.*1/m"):
        read(tmp_path, f"[[ground_contact]]\n{POINT}surface = {{kind = 'bowl'}}\n")
