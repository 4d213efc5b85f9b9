"""Errors of predictions, on numbers that are written down, and on a simulation that diverges."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from mechanisms import double_pendulum
from recorded import STEP, pendulum_plant, simulated

from jaxdyn.dynamics.system import State
from jaxdyn.identify.inverse_dynamics_error import Motions
from jaxdyn.identify.recording import Windows, cut
from jaxdyn.identify.validation import (
    fitted_starts,
    force_errors,
    predicted_measurements,
    unphysical_bodies,
    valid_times,
    window_errors,
)
from jaxdyn.simulate.controls import Knots

TIMES = jnp.array([[0.0, 0.1, 0.2, 0.2], [0.0, 0.1, 0.2, 0.3], [0.0, 0.15, 0.25, 0.35]])
WEIGHTS = jnp.ones((3, 4, 2)).at[0, 3].set(0.0).at[1, 1, 0].set(0.0)


def windows() -> Windows:
    """Three windows of two measurements, all zero; the first has three stamps only, in the second one number is missing."""
    controls = jax.vmap(Knots)(jnp.zeros((3, 5, 1)), jnp.full(3, 0.1), jnp.zeros(3))
    zero = jnp.zeros(3)
    return Windows(
        controls, TIMES, jnp.zeros((3, 4, 2)), WEIGHTS, State(jnp.zeros((3, 1)), jnp.zeros((3, 1))), zero, zero, 0.1, 4
    )


def predicted() -> jax.Array:
    """Predictions that are off by 0.1 and -0.2 everywhere."""
    return jnp.broadcast_to(jnp.array([0.1, -0.2]), (3, 4, 2))


class TestWindowErrors:
    def test_only_what_was_measured_counts(self):
        measurements = predicted().at[0, 3].set(99.0).at[1, 1, 0].set(99.0)
        found = window_errors(windows(), measurements)
        np.testing.assert_allclose(found.rms, [0.1, 0.2])
        np.testing.assert_array_equal(np.isnan(found.errors), np.asarray(WEIGHTS) == 0)
        np.testing.assert_allclose(found.median_at_end, 0.15)

    def test_last_reading_of_each_window(self):
        measurements = predicted().at[0, 2].set(0.7).at[1, 3].set(0.8).at[2, 3].set(0.9)
        np.testing.assert_allclose(window_errors(windows(), measurements).median_at_end, 0.8)

    def test_diverged_windows_are_infinitely_wrong(self):
        for broken in (jnp.nan, jnp.inf):
            measurements = predicted().at[1, 2:].set(broken)
            found = window_errors(windows(), measurements)
            assert np.all(np.isinf(found.rms))
            np.testing.assert_allclose(found.median_at_end, 0.2)  # of 0.1, 0.2, inf, inf, 0.1, 0.2
            np.testing.assert_array_equal(np.isnan(found.errors[1, 2:]), True)


class TestValidTimes:
    def test_until_the_threshold(self):
        measurements = predicted().at[1, 2, 1].set(0.6).at[2, 3, 0].set(-0.6)
        np.testing.assert_allclose(valid_times(windows(), measurements, 0.5), [0.2, 0.2, 0.35])
        np.testing.assert_allclose(valid_times(windows(), measurements, 0.15), [0.0, 0.0, 0.0])
        np.testing.assert_allclose(valid_times(windows(), measurements, 0.7), [0.2, 0.3, 0.35])

    def test_missing_and_filled_up_do_not_end_it(self):
        measurements = predicted().at[0, 3].set(99.0).at[1, 1, 0].set(99.0)
        np.testing.assert_allclose(valid_times(windows(), measurements, 0.5), [0.2, 0.3, 0.35])

    def test_divergence_ends_it(self):
        measurements = predicted().at[2, 1:].set(jnp.nan)
        np.testing.assert_allclose(valid_times(windows(), measurements, 0.5), [0.2, 0.3, 0.15])


class TestSimulated:
    def test_perfect_and_diverging_predictions(self):
        plant = pendulum_plant()
        recording = simulated(plant, 0.6, 2, irregular=False)
        cuts = cut([recording], duration=0.3, interval=STEP)
        first = np.asarray(recording.q[0, 0])
        wild = State(cuts.starts.q, cuts.starts.v.at[1].set(2e6))  # beyond the limit of a rollout
        measurements = predicted_measurements(plant, cuts, wild)
        np.testing.assert_allclose(measurements[0, 0], first, atol=1e-12)
        assert np.all(np.isfinite(measurements[0]))
        found = window_errors(cuts, measurements)
        assert np.isinf(found.rms[0])
        assert valid_times(cuts, measurements, 1.0)[1] < 1.5 * STEP

    def test_forces(self):
        plant = pendulum_plant()
        rng = np.random.default_rng(0)
        q, v, a = (jnp.asarray(rng.normal(size=(30, 1))) for _ in range(3))
        g = -float(plant.system.model.gravity[2])
        needed = 1.2 * g * 0.4 * np.sin(q) + (0.03 + 1.2 * 0.16) * a + 0.05 * v
        measured = needed - 0.3
        found = force_errors(plant, Motions(q, v, a, measured))
        np.testing.assert_allclose(found.predicted, needed, rtol=1e-10)
        np.testing.assert_allclose(found.measured, measured)
        np.testing.assert_allclose(found.rms, 0.3, rtol=1e-9)
        np.testing.assert_allclose(found.normalized, 0.09 / np.var(measured), rtol=1e-9)
        np.testing.assert_allclose(found.relative, 0.3 * np.sqrt(30) / np.linalg.norm(measured), rtol=1e-9)
        gained = eqx.tree_at(lambda p: (p.inputs.gain, p.inputs.offset), plant, (jnp.array([2.0]), jnp.array([0.3])))
        np.testing.assert_allclose(force_errors(gained, Motions(q, v, a, 0.5 * measured)).rms, 0.0, atol=1e-9)


def test_fitted_starts_are_those_from_which_windows_were_simulated():
    plant = pendulum_plant()
    windows = cut([simulated(plant, 0.6, 2, irregular=False)], duration=0.3, interval=STEP)
    near = State(windows.starts.q + 0.1, windows.starts.v - 0.3)
    found = fitted_starts(plant, eqx.tree_at(lambda windows: windows.starts, windows, near), max_steps=6)
    errors = window_errors(windows, predicted_measurements(plant, windows, found))
    assert np.max(errors.rms) < 1e-8


def test_bodies_that_cannot_be_are_named():
    model = double_pendulum()
    first, second = model.topology.body_names

    def with_inertia(rows):
        return eqx.tree_at(lambda m: m.inertia, model, jnp.asarray(rows))

    good, triangle = [0.02, 0.03, 0.025, 0.0, 0.0, 0.0], [0.02, 0.03, 0.0501, 0.0, 0.0, 0.0]
    assert unphysical_bodies(with_inertia([good, good])) == []
    assert unphysical_bodies(with_inertia([good, triangle])) == [second]
    frame = eqx.tree_at(lambda m: m.mass, with_inertia([[0.0] * 6, good]), jnp.array([0.0, 1.0]))
    assert unphysical_bodies(frame) == []
    negative = eqx.tree_at(lambda m: m.mass, with_inertia([good, good]), jnp.array([-1.0, 1.0]))
    assert unphysical_bodies(negative) == [first]
