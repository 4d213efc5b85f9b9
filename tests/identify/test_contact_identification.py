"""Friction, stiffness and damping of a contact from recordings through touch-down and sliding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import State, System
from jaxdyn.dynamics import ContactSensors, GroundContact, JointEncoders, contact_forces, contact_sphere
from jaxdyn.identify import OutputError, Parameter, Parameters, Plant, Recording, Sensors, UnitVector, cut, fit
from jaxdyn.simulate import SemiImplicitEuler

STEP, NOISE, FORCE_NOISE = 2e-3, 2e-4, 0.2
TRUTH = {"friction": 0.4, "stiffness": 4000.0, "damping": 20.0}


def thrown_block() -> System:
    """A block on rails along x and z, which touches the plane z = 0 with one point."""
    builder = jaxdyn.MechanismBuilder("block")
    small = {"mass": 0.01, "inertia": 1e-4 * jnp.eye(3)}
    builder.add_body("carriage", joint=jaxdyn.Prismatic(jnp.array([1.0, 0.0, 0.0])), **small)
    rail = jaxdyn.Prismatic(jnp.array([0.0, 0.0, 1.0]))
    builder.add_body("block", parent="carriage", joint=rail, mass=1.0, inertia=0.01 * jnp.eye(3))
    model = builder.build()
    return System(model, forces=(GroundContact.of(model, contact_sphere("block", radius=0.05), **TRUTH),))


def with_material(system: System, factor: float) -> System:
    contact = system.forces[0]
    wrong = {name: factor * getattr(contact.material, name) for name in TRUTH}
    return system.changed(
        forces=(dataclasses.replace(contact, material=dataclasses.replace(contact.material, **wrong)),)
    )


def recorded(system: System) -> Recording:
    """Fall from 5 cm above the ground with 1 m/s forward: touch-down, rebound, settling, sliding and rest."""
    start = State(jnp.array([0.0, 0.1]), jnp.array([1.0, 0.0]))
    trajectory = jaxdyn.rollout(system, start, dt=STEP, steps=250)
    forces = jax.vmap(lambda state: contact_forces(system, state).force)(trajectory.saved)
    random = np.random.default_rng(0)
    q = np.asarray(trajectory.saved.q)
    q = q + NOISE * random.standard_normal(q.shape)
    forces = np.asarray(forces).reshape(len(q), 3)
    forces = forces + FORCE_NOISE * random.standard_normal(forces.shape)
    v = np.asarray(trajectory.saved.v)
    v = v + 0.01 * random.standard_normal(v.shape)
    return Recording(
        "throw", np.asarray(trajectory.time), q, v, np.zeros((len(q), 2)), readings=np.concatenate([q, forces], axis=1)
    )


FREE = [Parameter(f"system.forces.0.material.{name}") for name in TRUTH]


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_friction_stiffness_and_damping_are_identified_through_touch_down_from_50_percent_off(factor):
    system = thrown_block()
    sensors = Sensors([NOISE] * 2 + [FORCE_NOISE] * 3, observe=(JointEncoders(), ContactSensors()))
    plant = Plant(with_material(system, factor), sensors)
    windows = cut([recorded(system)], duration=0.25, interval=STEP, velocity_cutoff=250.0)
    parameters = Parameters(plant, FREE)
    noise = jnp.array([1e-4, 1e-4, 1e-3, 1e-3])
    found = fit(OutputError(parameters, windows, continuity=noise, integrator=SemiImplicitEuler()))
    material = found.value.system.forces[0].material
    for name, value in TRUTH.items():
        np.testing.assert_allclose(getattr(material, name), value, rtol=0.01)


def test_parameters_of_contacts_have_units_names_and_charts_of_positive_values():
    plant = Plant(thrown_block(), Sensors([NOISE] * 2 + [FORCE_NOISE] * 3, observe=(JointEncoders(), ContactSensors())))
    free = [*FREE, Parameter("system.forces.0.radii"), Parameter("system.forces.0.centers")]
    free += [
        Parameter("system.forces.0.surface.normal", chart=UnitVector()),
        Parameter("system.forces.0.surface.height"),
    ]
    free += [Parameter("sensors.offset")]
    parameters = Parameters(plant, free)
    assert dict(parameters.labels) == {
        **{"friction": "1", "stiffness": "N/m", "damping": "N s/m", "radii [block]": "m"},
        **{f"centers [block] {axis}": "m" for axis in "xyz"},
        **{f"normal [{axis}]": "1" for axis in "xyz"},
        "height": "m",
        **{f"offset [{k}]": "m" if k < 2 else "N" for k in range(5)},
    }
    placed = parameters.place(parameters.initial - 50.0).system.forces[0]
    assert placed.material.friction > 0.0
    assert placed.material.stiffness > 0.0
    assert placed.radii[0] > 0.0


def test_readings_are_the_measurements_instead_of_coordinates_and_velocities():
    q, readings = np.zeros((3, 1)), np.arange(6.0).reshape(3, 2)
    recording = Recording("r", np.arange(3.0), q, q, np.zeros((3, 0)), readings=readings)
    np.testing.assert_array_equal(cut([recording], duration=2.0, interval=1.0).measurements[0], readings)
    with pytest.raises(ValueError, match="readings are the measurements; leave with_velocities out"):
        cut([recording], duration=1.0, interval=1.0, with_velocities=True)
