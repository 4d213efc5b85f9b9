"""The usual way of a fit: its initial guesses, noise, sensors and processing; nothing is fitted."""

import dataclasses

import jax
import numpy as np
import pytest

import jaxdyn
from jaxdyn.dynamics.forces.friction import JointFriction, StribeckFriction
from jaxdyn.dynamics.sensors import JointEncoders
from jaxdyn.identify.charts import Positive
from jaxdyn.identify.measurement import MeasurementError, Plant, Sensors
from jaxdyn.identify.parameters import Parameter, Parameters
from jaxdyn.identify.processing import Processing, Smoothing
from jaxdyn.identify.recording import Part, Recording
from jaxdyn.identify.stages import recipe, usual_force_noise, usual_parameters, usual_plant
from jaxdyn.identify.validation import smoothed_motions


def swinging(model: jaxdyn.Model, resting: int | None = None) -> Recording:
    """Sines in all joints but one, with one input."""
    t = 0.01 * np.arange(400)
    q = np.sin(t[:, None] * np.array([3.0, 4.1])) * (np.arange(2) != resting)
    return Recording("swing", t, q, None, 2.0 * np.sin(5.0 * t)[:, None], inputs="linear")


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("resting", [None, 0, 1])
def test_guesses_are_sensible_for_joints_without_drives_and_at_rest(x64, resting):
    """The cart is driven, the pole is not. A guess of a few percent of the typical force cannot be 1e-309 or 1e300."""
    with jax.enable_x64(x64):
        system = jaxdyn.library.system("cart_pole")
        parts = [Part(swinging(system.model, resting), processing=Processing(lead=0.05))]
        plant = usual_plant(Plant(system, Sensors(np.full(2, 1e-3))), parts)
        joints = [each for each in usual_parameters(plant) if isinstance(each.path, str)]  # the pole is a point
        charts = Parameters(plant, joints).charts
        noise = usual_force_noise(plant, smoothed_motions(parts), parts)
    values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(plant.system.forces)])
    assert values.dtype == (float if x64 else np.float32)
    assert np.all((values > 1e-5) & (values < 1e3))
    positive = {each.path for each, chart in zip(joints, charts, strict=True) if isinstance(chart, Positive)}
    assert {f"system.forces.{name}" for name in ("0.viscous", "0.coulomb", "1.stribeck")} <= positive
    assert np.max(noise) < 101.0 * np.min(noise)


def test_sensors_and_processing_are_those_of_the_plant():
    """Only the noise is that of the recordings; here it is rounding, which the resolution of the sensors contains already."""
    system = jaxdyn.library.system("cart_pole")
    given = {"scale": [1.0, 1.1], "offset": [0.1, 0.2], "quantization": [1e-3, 0.0], "zeros": [[0.3, 0.4]]}
    processing = Processing(Smoothing(0.01, 20.0, drop=7, decimate=1), velocity_cutoff=11.0)
    plant = Plant(system, Sensors(np.ones(2), **given), processing=processing)
    exact = swinging(system.model)
    recording = dataclasses.replace(exact, q=1e-3 * np.round(1e3 * exact.q))
    inverse, output = recipe(plant, [recording], free=[Parameter("inputs.delay")], durations=[0.5], interval=0.01)
    assert len(inverse.motions.q) == 400 - 14
    assert float(output.windows.controls.start[0]) == -0.05
    at_once = recipe(plant, [recording], free=[Parameter("inputs.gain")], durations=[0.5], interval=0.01)[0]
    assert at_once.motions.around is None  # only delays need the memory
    sensors = output.parameters.subject.sensors
    for name, values in given.items():
        np.testing.assert_allclose(getattr(sensors, name), values)
    np.testing.assert_allclose(sensors.deviations, 1e-3 / np.sqrt(12.0), rtol=0.1)
    both = dataclasses.replace(
        plant, sensors=Sensors(np.ones(4), observe=(JointEncoders(), JointEncoders(velocities=True)))
    )
    with pytest.raises(
        MeasurementError, match=r"^recipe: the sensors of the plant do not observe the coordinates alone; give"
    ):
        recipe(both, [recording])


def test_terms_of_the_same_kind_are_kept():
    """The first one has guesses where it states nothing; all have a velocity scale that is not stiff."""
    first, second = (
        JointFriction([0.0, 0.2], [0.3, 0.0], [1e-6, 1e3]),
        JointFriction([0.0, 0.5], [0.0, 0.0], [1e-6, 1e-6]),
    )
    system = jaxdyn.library.system("cart_pole")
    system = system.changed(forces=(*system.forces, first, second))
    plant = usual_plant(Plant(system, Sensors(np.ones(2))), [Part(swinging(system.model))])
    kinds = [type(force) for force in plant.system.forces]
    assert kinds == [JointFriction, StribeckFriction, *map(type, system.forces[:-2]), JointFriction]
    merged, kept = plant.system.forces[0], plant.system.forces[-1]
    assert (float(merged.viscous[1]), float(merged.coulomb[0]), float(merged.velocity_scale[1])) == (0.2, 0.3, 1e3)
    assert np.all(np.asarray(merged.viscous) > 0.0)
    np.testing.assert_array_equal(kept.viscous, second.viscous)
    assert np.all(np.asarray(kept.velocity_scale) > 1e-3)
    names = [each.path.split(".")[-1] for each in usual_parameters(plant) if isinstance(each.path, str)]
    assert len(set(names)) == len(names)
