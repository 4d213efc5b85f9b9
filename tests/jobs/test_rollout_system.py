"""What `jaxdyn rollout` simulates is the system of the file, but for what the config says otherwise."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from small_jobs import ROLLOUT

from jaxdyn import io, library, neutral_state, total_energy
from jaxdyn.cli import main
from jaxdyn.jobs.rollout import work as rollout
from jaxdyn.jobs.rollout.config import RolloutConfig


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("overrides", "method", "stabilization"),
    [
        (["stabilization=0"], "articulated_body", 0.0),
        (["method=cholesky"], "cholesky", 15.5),
    ],
)
def test_an_archive_keeps_method_and_stabilization_unless_the_config_names_them(
    tmp_path: Path, overrides, method, stabilization
):
    system = dataclasses.replace(library.four_bar(), method="articulated_body", stabilization=15.5)
    io.save_archive(system, tmp_path / "loop")
    (tmp_path / "rollout.toml").write_text(ROLLOUT)
    run = ["rollout", str(tmp_path / "rollout.toml"), f"mechanism={tmp_path / 'loop.json'}", *overrides]
    assert main([*run, "--out", str(tmp_path / "run")]) == 0
    simulated = io.load_run(tmp_path / "run").system
    assert simulated.method == method
    assert simulated.stabilization == stabilization


ROBOT = """
<robot name="ball"><link name="ball">
  <inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
  <collision><geometry><sphere radius="0.1"/></geometry></collision>
</link></robot>
"""


@pytest.mark.parametrize(
    ("contact", "said"), [("none", "1 collider not simulated"), ("ground", "1 point of 1 body with the plane z = 0")]
)
def test_a_rollout_states_whether_colliders_are_simulated(tmp_path: Path, capsys, contact, said):
    (tmp_path / "ball.urdf").write_text(ROBOT)
    (tmp_path / "rollout.toml").write_text(ROLLOUT)
    changes = [f"mechanism={tmp_path / 'ball.urdf'}", "base=free", f"contact={contact}"]
    system = rollout._machines(io.read_config(tmp_path / "rollout.toml", RolloutConfig, changes)).system
    assert f"contacts: {said}" in capsys.readouterr().out
    assert [type(force).__name__ for force in system.forces] == ["GroundContact"] * (contact == "ground")
    assert np.isfinite(total_energy(system, neutral_state(system)))
