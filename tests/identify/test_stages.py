"""The usual way of a fit: its initial guesses, noise, sensors and processing; nothing is fitted."""

import jax
import numpy as np
import pytest

import jaxdyn
from jaxdyn import identify
from jaxdyn.identify.charts import Positive
from jaxdyn.identify.measurement import Plant, Sensors
from jaxdyn.identify.parameters import Parameters
from jaxdyn.identify.recording import Part, Recording
from jaxdyn.identify.stages import usual_force_noise, usual_parameters, usual_plant
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
        parts = [Part(swinging(system.model, resting), processing=identify.Processing(lead=0.05))]
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
