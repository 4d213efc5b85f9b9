"""Recordings and the windows cut from them; all in NumPy, nothing is simulated."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import UnknownName
from jaxdyn.identify.processing import Processing, Smoothing
from jaxdyn.identify.recording import Part, Recording, RecordingError, cut, low_passed
from jaxdyn.simulate.controls import Knots


def recording(times, name: str = "run", inputs: str = "held", **changes) -> Recording:
    """q = (sin, 2 t), u = 3 t: all known at any time."""
    times = np.asarray(times, float)
    given = {
        "q": np.stack([np.sin(times), 2.0 * times], axis=1),
        "v": None,
        "u": 3.0 * times[:, None],
    } | changes
    return Recording(name, times, given["q"], given["v"], given["u"], inputs=inputs)


def irregular(end: float, seed: int = 0):
    rng = np.random.default_rng(seed)
    return np.sort(np.concatenate([[0.0, end], rng.uniform(0.0, end, int(60 * end))]))


class TestRecording:
    def test_part_and_duration(self):
        part = recording(np.arange(11) / 10).between(0.2, 0.6)
        np.testing.assert_allclose(part.time, [0.2, 0.3, 0.4, 0.5])
        np.testing.assert_allclose(part.duration, 0.3)
        np.testing.assert_allclose(part.u[:, 0], 3.0 * part.time)

    def test_resampled(self):
        grid = recording(irregular(1.0)).resampled(0.1)
        np.testing.assert_allclose(grid.time, np.arange(11) / 10, atol=1e-12)
        np.testing.assert_allclose(grid.q[:, 1], 2.0 * grid.time, atol=1e-12)  # linear in time, so exact

    def test_missing_samples_are_bridged(self):
        given = recording(np.arange(21) / 10)
        given.q[4:6, 1] = np.nan
        np.testing.assert_allclose(given.resampled(0.05).q[:, 1], 2.0 * np.arange(41) / 20, atol=1e-12)

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"q": np.zeros((3, 2))}, "q has shape (3, 2); give 5 rows"),
            ({"u": np.full((5, 1), np.nan)}, "inputs are not finite"),
        ],
    )
    def test_refused(self, changes, says, as_a_user):
        with pytest.raises(RecordingError) as caught:
            recording(np.arange(5.0), "run 7", **changes)
        assert says in str(caught.value)
        assert str(caught.value).startswith("run 7")

    @pytest.mark.parametrize("times", [[0.0, 1.0, 1.0], [0.0, 2.0, 1.0], [0.0], [0.0, np.nan, 1.0]])
    def test_time_ascends(self, times):
        with pytest.raises(RecordingError, match="not ascending"):
            recording(times)


class TestStreams:
    """Measurements and inputs with their own time stamps."""

    @pytest.mark.parametrize("inputs", ["held", "linear"])
    def test_their_union_is_what_one_clock_would_have_recorded(self, inputs):
        stamps, of_inputs = irregular(2.0, 1), np.linspace(0.1, 1.9, 50)
        q, u = np.sin(stamps)[:, None], np.cos(7.0 * of_inputs)[:, None]
        merged = Recording.of_streams("two", stamps, q, of_inputs, u, inputs=inputs)
        known = Recording("inputs", of_inputs, np.zeros((50, 0)), None, u, inputs=inputs)
        for interval in (0.01, 0.03):
            np.testing.assert_allclose(merged.resampled(interval).u[:55], known.resampled(interval).u[:55], atol=1e-12)
        measured = np.isfinite(merged.q[:, 0])
        np.testing.assert_array_equal(merged.q[measured, 0], np.sin(merged.time[measured]))
        end = 1.9 if inputs == "linear" else 1.9 + 1.8 / 49  # the last held input acts for one interval
        expected = stamps[(stamps >= 0.1) & (stamps <= end)]
        np.testing.assert_array_equal(merged.time[measured], expected)
        assert merged.inputs == inputs

    def test_other_origins_of_time_are_refused(self):
        with pytest.raises(
            RecordingError, match=r"two: measurements from 0 to 1 s, and inputs from 5 to 6 s do not overlap"
        ):
            Recording.of_streams("two", [0.0, 1.0], [[0.0], [1.0]], [5.0, 6.0], [[0.0], [1.0]])


class TestHeldInputs:
    """An input acts from its time stamp until the next one; u = 3 t at the stamps."""

    given = recording(irregular(2.0))

    def impulse(self, start: float, end: float) -> float:
        """The integral of the held input."""
        stamps = self.given.time
        edges = np.append(stamps, np.inf)
        return float(np.sum(self.given.u[:, 0] * np.diff(np.clip(edges, start, end))))

    def test_a_grid_keeps_the_impulse_in_each_of_its_intervals(self):
        for interval in (0.01, 0.1):
            grid = self.given.resampled(interval)
            expected = [self.impulse(t, t + interval) / interval for t in grid.time]
            np.testing.assert_allclose(grid.u[:, 0], expected, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(grid.resampled(interval).u, grid.u, rtol=1e-9, atol=1e-12)
            assert (grid.inputs, grid.between(0.5, 1.0).inputs) == ("held", "held")

    def test_windows_contain_these_intervals(self):
        windows = cut([self.given], duration=0.5, interval=0.01, lead=0.05, first=0.3)
        assert windows.controls.interpolation == "zero_order"
        # From 0.05 s before the window to 0.05 s after it.
        expected = [self.impulse(t, t + 0.01) / 0.01 for t in 0.25 + 0.01 * np.arange(61)]
        np.testing.assert_allclose(windows.controls.values[0, :, 0], expected, rtol=1e-9)

    def test_smoothed_inputs_are_centered_at_their_samples(self):
        """The central difference of q that a held force causes is the mean of the force before and after the sample."""
        h, force = 0.01, np.random.default_rng(0).normal(size=(50, 1))
        v = h * np.cumsum(np.append(0.0, force[:-1]))
        q = np.append(0.0, np.cumsum(h * v[:-1] + 0.5 * h**2 * force[:-1, 0]))
        smooth = Recording("body of 1 kg", h * np.arange(50), q[:, None], v[:, None], force).smoothed(h)
        np.testing.assert_allclose(smooth.u[1:-1], smooth.a[1:-1], atol=1e-9)
        assert smooth.inputs == "linear"

    def test_linear_inputs_among_held_ones_act_with_their_means(self):
        t = np.arange(101) / 100
        both = cut([recording(t), recording(t, inputs="linear")], duration=1.0, interval=0.01)
        np.testing.assert_allclose(both.controls.values[0, :-1, 0], 3.0 * t[:-1], atol=1e-9)
        np.testing.assert_allclose(both.controls.values[1, :-1, 0], 3.0 * (t[:-1] + 0.005), atol=1e-9)

    def test_other_words_are_refused(self, as_a_user):
        with pytest.raises(UnknownName, match=r"^run: there is no kind of inputs 'cubic'; use one of held, linear$"):
            recording(np.arange(3.0), inputs="cubic")


class TestRollouts:
    """A recording of a rollout knows how its controls acted."""

    system = jaxdyn.library.system("pendulum")
    rows = np.random.default_rng(0).normal(size=(4, 1))

    def moved(self, controls, **options):
        return jaxdyn.rollout(self.system, self.system.at_rest(jnp.array([0.5])), controls, dt=0.1, steps=4, **options)

    def test_controls_keep_their_interpolation(self):
        knots = np.append(self.rows, self.rows[-1:], axis=0)
        for controls, inputs, u in (
            (self.rows, "held", knots),
            (Knots(knots, 0.1, interpolation="zero_order"), "held", knots),
            (Knots(knots, 0.1), "linear", knots),
            (None, "held", np.zeros((5, 0))),
        ):
            motion = self.moved(controls)
            found = Recording.of_rollout("own", motion, controls)
            assert found.inputs == inputs
            np.testing.assert_array_equal(found.u, u)
            np.testing.assert_array_equal(found.q, motion.saved.q)
            np.testing.assert_array_equal(found.v, motion.saved.v)

    def test_refused(self):
        motion = self.moved(self.rows)
        with pytest.raises(
            TypeError, match=r"^own: controls are a function; give the array of the controls that acted$"
        ):
            Recording.of_rollout("own", motion, lambda t, state, key: -state.q)
        with pytest.raises(RecordingError, match=r"^own: u has shape"):
            Recording.of_rollout("own", motion, self.rows[:2])
        with pytest.raises(RecordingError, match=r"^own: give one sample that completed its rollout$"):
            Recording.of_rollout("own", self.moved(self.rows, stop=lambda t, state: t > 0.2), self.rows)
        with pytest.raises(TypeError, match="records of a rollout"):
            Recording.of_rollout("own", self.moved(self.rows, save=lambda t, state, u: u), self.rows)


class TestFilters:
    def test_slow_passes_without_delay_and_fast_does_not(self):
        t = np.arange(2000) * 0.002
        slow, fast = np.sin(2 * np.pi * t), np.sin(2 * np.pi * 80 * t)
        out = low_passed(np.stack([slow, fast], axis=1), 0.002, 10.0)[200:-200]
        np.testing.assert_allclose(out[:, 0], slow[200:-200], atol=1e-3)
        assert np.max(np.abs(out[:, 1])) < 1e-3

    def test_very_slow_filters_do_not_blow_up(self):
        out = low_passed(np.ones((5000, 1)), 1e-3, 0.2)
        np.testing.assert_allclose(out, 1.0, atol=1e-6)

    def test_grid_without_anything_fast(self):
        values = np.random.default_rng(0).normal(size=(7, 2))
        np.testing.assert_array_equal(low_passed(values, 0.1, 5.0), values)

    def test_short_records(self):
        assert low_passed(np.ones((3, 1)), 0.01, 5.0).shape == (3, 1)

    def test_motion(self):
        t = np.arange(0, 4, 0.01)
        smooth = recording(t).smoothed(0.01, cutoff=20.0)
        q, v, a = smooth.q, smooth.v, smooth.a
        inner = slice(60, -60)
        np.testing.assert_allclose(q[inner, 0], np.sin(t)[inner], atol=1e-4)
        np.testing.assert_allclose(v[inner, 0], np.cos(t)[inner], atol=1e-4)
        np.testing.assert_allclose(a[inner, 0], -np.sin(t)[inner], atol=1e-3)

    def test_motion_takes_measured_velocities(self):
        t = np.arange(0, 2, 0.01)
        smooth = recording(t, v=np.stack([t, 5.0 + 0 * t], axis=1)).smoothed(0.01, cutoff=20.0)
        v, a = smooth.v, smooth.a
        np.testing.assert_allclose(v[60:-60], np.stack([t, 5.0 + 0 * t], axis=1)[60:-60], atol=1e-4)
        np.testing.assert_allclose(a[60:-60, 0], 1.0, atol=1e-3)

    def test_no_columns(self):
        given = recording(np.arange(4.0), u=np.zeros((4, 0)))
        assert given.resampled(0.5).u.shape == (7, 0)


class TestWindows:
    def test_irregular_stamps(self):
        given = recording(irregular(2.0))
        windows = cut([given], duration=0.5, interval=0.01)
        assert windows.count == 4
        assert windows.steps == 50
        np.testing.assert_array_equal(windows.followed, [1.0, 1.0, 1.0, 0.0])
        counted = np.asarray(windows.weights) == 1.0
        for k in range(4):
            t = 0.5 * k + np.asarray(windows.times[k])[counted[k, :, 0]]
            np.testing.assert_allclose(np.asarray(windows.measurements[k])[counted[k, :, 0], 1], 2.0 * t, atol=1e-12)
        # Shorter windows are filled up with measurements of no weight, and no reading is lost.
        assert counted.sum() == given.q.size
        assert len({int(c) for c in counted[:, :, 0].sum(axis=1)}) > 1
        np.testing.assert_allclose(windows.starts.q[:, 1], 2.0 * 0.5 * np.arange(4), atol=1e-9)
        np.testing.assert_allclose(windows.starts.v[1:3, 0], np.cos([0.5, 1.0]), atol=0.02)

    def test_each_reading_counts_once(self):
        windows = cut([recording(np.arange(21) / 10)], duration=0.5, interval=0.1)
        assert float(jnp.sum(windows.weights)) == 21 * 2
        np.testing.assert_array_equal(windows.weights[:, -1, 0], [0.0, 0.0, 0.0, 1.0])

    def test_inputs_start_at_the_window_and_before(self):
        given = recording(irregular(2.0), inputs="linear")
        windows = cut([given], duration=0.5, interval=0.01, lead=0.055, first=0.3)
        for k in range(windows.count):
            knots = Knots(windows.controls.values[k], windows.controls.interval[k], windows.controls.start[k])
            for t in (-0.055, 0.0, 0.123, 0.5):
                np.testing.assert_allclose(knots(jnp.asarray(t)), [3.0 * (0.3 + 0.5 * k + t)], atol=1e-9)

    def test_missing_samples_have_no_weight(self):
        given = recording(np.arange(101) / 100)
        given.q[13, 0] = np.nan
        windows = cut([given], duration=1.0, interval=0.01)
        np.testing.assert_array_equal(windows.weights[0, 13], [0.0, 1.0])
        assert float(jnp.sum(windows.weights)) == 201
        for part in (windows.measurements, windows.starts.q, windows.starts.v):
            assert np.all(np.isfinite(part))

    def test_overlapping_windows_do_not_follow(self):
        windows = cut([recording(np.arange(101) / 100)], duration=0.4, interval=0.01, stride=0.2)
        assert windows.count == 4
        assert not np.any(windows.followed)
        np.testing.assert_allclose(windows.starts.q[:, 1], 0.4 * np.arange(4), atol=1e-9)

    def test_first_off_the_grid_leaves_windows_adjacent(self):
        given = recording(np.arange(301) / 100)
        windows = cut([given], duration=0.5, interval=0.1, first=0.05)
        steps = np.diff(np.asarray(windows.starts.q[:, 1])) / 2.0
        np.testing.assert_allclose(steps, 0.5, atol=1e-9)

    def test_several_recordings(self):
        windows = cut([recording(np.arange(101) / 100), recording(np.arange(61) / 100)], duration=0.3, interval=0.01)
        np.testing.assert_array_equal(windows.sources, [0.0, 0.0, 0.0, 1.0, 1.0])
        np.testing.assert_array_equal(windows.followed, [1.0, 1.0, 0.0, 1.0, 0.0])

    def test_gap_leaves_a_window_out(self):
        times = np.concatenate([np.arange(0, 50), np.arange(120, 201)]) / 100
        windows = cut([recording(times)], duration=0.5, interval=0.01)
        assert windows.count == 3
        np.testing.assert_array_equal(windows.followed, [0.0, 1.0, 0.0])
        np.testing.assert_allclose(windows.starts.q[:, 1], [0.0, 2.0, 3.0], atol=1e-9)

    def test_velocities(self):
        t = np.arange(101) / 100
        given = recording(t, v=np.stack([np.cos(t), 2.0 + 0 * t, 7.0 + 0 * t], axis=1))  # three: a ball joint has fewer
        windows = cut([given], duration=0.5, interval=0.01, with_velocities=True)
        assert windows.measurements.shape == (2, 51, 5)
        np.testing.assert_allclose(windows.measurements[1, 3], [np.sin(0.53), 1.06, np.cos(0.53), 2.0, 7.0])
        np.testing.assert_allclose(windows.starts.v[1], [np.cos(0.5), 2.0, 7.0], atol=1e-3)

    def test_coarse_steps_and_short_recordings(self):
        windows = cut([recording(np.arange(9) / 10)], duration=0.4, interval=0.1)
        np.testing.assert_allclose(windows.starts.v[:, 1], 2.0, atol=1e-9)

    def test_select(self):
        windows = cut([recording(np.arange(101) / 100)], duration=0.2, interval=0.01)
        part = windows.select([0, 1, 3, 4])
        np.testing.assert_array_equal(part.followed, [1.0, 0.0, 1.0, 0.0])
        np.testing.assert_array_equal(part.times, np.asarray(windows.times)[[0, 1, 3, 4]])
        mask = windows.select(np.array([True, True, False, True, True]))
        np.testing.assert_array_equal(mask.followed, part.followed)
        np.testing.assert_array_equal(windows.select(slice(2)).followed, [1.0, 0.0])
        np.testing.assert_array_equal(windows.select([1, 0]).followed, [0.0, 0.0])

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"duration": 0.505}, "not a whole number of steps"),
            ({"duration": 0.001}, "not a whole number of steps"),
            ({"duration": 0.5, "stride": 0.013}, "strides of 0.013 s"),
            ({"duration": 5.0}, "the longest recording has 1 s"),
            ({"duration": 0.5, "first": 0.8}, "no window"),
            ({"duration": 0.5, "with_velocities": True}, "with_velocities is true"),
        ],
    )
    def test_refused(self, options, says):
        with pytest.raises(RecordingError, match=says):
            cut([recording(np.arange(101) / 100)], interval=0.01, **options)

    def test_parts_without_samples_are_refused(self):
        whole = recording(np.arange(101) / 100)
        with pytest.raises(RecordingError, match=r"^run: no samples between 2 and inf s; its duration is 1 s$"):
            _ = Part(whole, 2.0).alone
        ends = Processing(Smoothing(0.01, 20.0, drop=50, decimate=1))
        with pytest.raises(RecordingError, match=r"^run: no samples are left after removing 50 at both ends; lower"):
            Part(whole, processing=ends).smoothed()

    def test_a_coordinate_that_was_never_measured(self):
        given = recording(np.arange(101) / 100)
        given.q[:, 0] = np.nan
        with pytest.raises(RecordingError, match="never measured"):
            cut([given], duration=0.5, interval=0.01)
