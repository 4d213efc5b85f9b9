"""What `jaxdyn rollout` simulates is the system of the file, but for what the config says otherwise."""

import dataclasses
from pathlib import Path

import pytest
from small_jobs import ROLLOUT

from jaxdyn import io, library
from jaxdyn.cli import main


@pytest.mark.parametrize(
    ("overrides", "method", "stabilization"),
    [
        ([], "articulated_body", 15.5),
        (["stabilization=3"], "articulated_body", 3.0),
        (["method=cholesky", "stabilization=0"], "cholesky", 0.0),
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
