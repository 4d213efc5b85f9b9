"""Trajectories as figures, moving pictures and tables."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from legible import assert_legible

import jaxdyn
from jaxdyn import MechanismBuilder, Prismatic, Spherical, State, Trajectory
from jaxdyn.io.errors import ConfigError

RECORDS = 4


def trajectory(model: jaxdyn.Model, *batch: int) -> Trajectory:
    """Records with values that differ from one another; no simulation."""
    shape = (*batch, RECORDS)
    q = jnp.arange(float(np.prod((*shape, model.nq)))).reshape(*shape, model.nq)
    saved = State(q, 1000.0 + jnp.arange(float(np.prod((*shape, model.nv)))).reshape(*shape, model.nv))
    time = jnp.broadcast_to(0.05 * jnp.arange(float(RECORDS)), shape)
    zero = jnp.zeros(batch, jnp.int32)
    return Trajectory(time, saved, jax.tree.map(lambda x: x[..., -1, :], saved), None, zero, zero + 3, model.topology)


@pytest.fixture(scope="module")
def mixed() -> jaxdyn.Model:
    builder = MechanismBuilder("mixed")
    builder.add_body("arm", joint=Spherical(), mass=1.0, inertia=(1.0, 1.0, 1.0))
    builder.add_body("tool", parent="arm", joint=Prismatic((1, 0, 0)), mass=1.0, inertia=(1.0, 1.0, 1.0))
    return builder.build()


def test_a_figure_has_a_panel_for_every_coordinate_and_velocity_with_its_joint_and_unit(mixed):
    motion = trajectory(mixed)
    figure = motion.plot()
    titles = [axis.get_title() for axis in figure.axes if axis.axison]
    assert titles[3:6] == ["arm_joint.qz", "tool_joint (m)", "velocity of arm_joint.wx (rad/s)"]
    assert titles[-1] == "velocity of tool_joint (m/s)"
    assert len(titles) == mixed.nq + mixed.nv
    for k, values in enumerate(np.concatenate([motion.saved.q, motion.saved.v], axis=1).T):
        (line,) = figure.axes[k].lines
        np.testing.assert_array_equal(line.get_xydata(), np.stack([motion.time, values], axis=1))
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert_legible(figure)


def test_a_figure_of_a_robot_with_many_joints_has_a_panel_for_each_limb():
    motion = trajectory(jaxdyn.library.quadruped())
    figure = motion.plot()
    drawn = [axis for axis in figure.axes if axis.axison]
    assert [axis.get_title() for axis in drawn[:4]] == [
        "base.x to base.z (m)",
        "base.qw to base.qz",
        "fl_abduction to fl_knee (rad)",
        "fr_abduction to fr_knee (rad)",
    ]
    assert drawn[7].get_title() == "velocity of base.vx to base.vz (m/s)"
    curves = [line.get_ydata() for axis in drawn for line in axis.lines]
    values = np.concatenate([motion.saved.q, motion.saved.v], axis=1)
    np.testing.assert_array_equal(curves, values.T)
    assert [text.get_text() for text in drawn[2].get_legend().texts] == ["fl_abduction", "fl_flexion", "fl_knee"]
    assert_legible(figure)


def test_samples_of_a_batch_are_chosen_by_their_indices():
    motion = trajectory(jaxdyn.library.double_pendulum(), 2, 10)
    lines = motion.plot(samples=[13, 0]).axes[1].lines
    drawn = {tuple(line.get_ydata()): line.get_linewidth() for line in lines}
    first, other = (tuple(motion.saved.q[k, j, :, 1].tolist()) for k, j in ((1, 3), (0, 0)))
    assert drawn.keys() == {first, other}
    assert drawn[first] > drawn[other]
    assert len(motion.plot().axes[0].lines) == 12
    assert "20 successful" in motion.plot(samples=[3]).get_suptitle()
    for wrong in ([20], [-1], []):
        with pytest.raises(IndexError, match="0 to 19"):
            motion.plot(samples=wrong)


def test_other_records_than_states_cannot_be_drawn():
    motion = trajectory(jaxdyn.library.pendulum())
    other = Trajectory(
        motion.time, {"q": motion.saved.q}, motion.final, None, motion.result, motion.steps, motion.topology
    )
    for attempt in (other.plot, other.to_dataframe, lambda: other.animate(jaxdyn.library.pendulum())):
        with pytest.raises(TypeError, match=r"dict.*`save`"):
            attempt()


def test_a_table_has_a_row_for_each_record_of_each_sample(mixed):
    motion = trajectory(mixed, 2, 3)
    table = motion.to_dataframe()
    assert table.columns[:4].tolist() == ["time", "sample", "q_arm_joint.qw", "q_arm_joint.qx"]
    assert table.columns[5:8].tolist() == ["q_arm_joint.qz", "q_tool_joint", "v_arm_joint.wx"]
    assert table.columns[-1] == "v_tool_joint"
    assert len(table) == 2 * 3 * RECORDS
    fourth = table[table["sample"] == 4]
    np.testing.assert_array_equal(fourth["time"], motion.time[1, 1])
    np.testing.assert_array_equal(fourth["q_tool_joint"], motion.saved.q[1, 1, :, -1])
    np.testing.assert_array_equal(fourth["v_tool_joint"], motion.saved.v[1, 1, :, -1])
    single = trajectory(mixed).to_dataframe()
    assert single["sample"].tolist() == [0] * RECORDS


def test_a_table_without_pandas_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        trajectory(jaxdyn.library.pendulum()).to_dataframe()


def test_a_moving_picture_shows_itself_and_can_be_saved(tmp_path):
    model = jaxdyn.library.double_pendulum()
    picture = trajectory(model, 2).animate(model, samples=[1], fps=10.0, progress=False)
    assert picture.content.startswith(b"GIF")
    assert picture._repr_html_().startswith('<img src="data:image/gif;base64,')
    assert len(repr(picture)) < 100
    picture.save(tmp_path / "motion.gif")
    assert (tmp_path / "motion.gif").read_bytes() == picture.content
    with pytest.raises(ConfigError, match=r"a \.gif file"):
        picture.save(tmp_path / "motion.mp4")


def test_a_moving_picture_is_written_where_it_is_asked_for(tmp_path):
    model = jaxdyn.library.pendulum()
    path = tmp_path / "motion.gif"
    picture = trajectory(model).animate(jaxdyn.System(model), path, fps=10.0, progress=False)
    assert path.read_bytes() == picture.content


def test_a_moving_picture_needs_the_mechanism_that_moved_and_one_time():
    model = jaxdyn.library.double_pendulum()
    motion = trajectory(model, 2)
    with pytest.raises(ValueError, match=r"'double_pendulum'.*'pendulum'"):
        motion.animate(jaxdyn.library.pendulum())
    time = motion.time * jnp.array([[1.0], [2.0]])
    faster = Trajectory(time, motion.saved, motion.final, None, motion.result, motion.steps, motion.topology)
    with pytest.raises(ValueError, match="different times"):
        faster.animate(model)


def test_the_summary_states_the_power_balance_of_rollouts_without_controls():
    free = jaxdyn.System(jaxdyn.library.double_pendulum())
    angles = jnp.array([[0.1, 0.1], [2.0, 2.0]])

    def runs(system, **options):
        return jax.vmap(lambda q: jaxdyn.rollout(system, system.at_rest(q), dt=2e-3, steps=500, **options))(angles)

    coarse, exact = runs(free, save_every=50), runs(free, integrator=jaxdyn.RungeKutta4(), save_every=50)
    errors = jax.vmap(lambda s: jaxdyn.total_energy(free, s))(coarse.final)
    errors -= jax.vmap(lambda q: jaxdyn.total_energy(free, free.at_rest(q)))(angles)
    said = coarse.describe(system=free)
    assert f"Power balance error: {errors[1]:.2g} J in sample 1, " in said
    assert said.endswith("; a shorter dt or an integrator of higher order decreases it.")
    assert exact.describe(system=free).endswith("% of the energy turned over.")
    assert "balance" not in coarse.describe()

    friction = (jaxdyn.JointFriction([0.02, 0.02], [0.3, 0.1], [1e-5, 1e-5]),)
    held = jaxdyn.System(free.model, friction)
    every_step = runs(held)
    assert float(every_step.describe(system=held).split(" J in sample 1, ")[1].split(" %")[0]) < 5.0
    some_steps = dataclasses.replace(every_step, steps=every_step.steps + 1)
    pushed = jaxdyn.rollout(free, free.at_rest(angles[0]), lambda t, state, key: jnp.ones(2), dt=2e-3, steps=5)
    for text in (some_steps.describe(system=held), pushed.describe(system=free)):
        assert text.endswith("simulate with cost=work_of_step(system).")
