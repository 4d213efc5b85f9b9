"""The commands `show`, `animate` and `view`: what they print, what they leave, and one line for bad input."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest
from browsers import content_of, numbers_of

import jaxdyn
from jaxdyn.cli import main
from jaxdyn.dynamics import Actuator, Actuators, GroundContact, contact_sphere
from jaxdyn.jobs.commands import animate

MECHANISMS = Path(__file__).parents[2] / "configs" / "mechanisms"
PENDULUM = MECHANISMS / "double_pendulum.toml"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A small run of three samples."""
    folder = tmp_path_factory.mktemp("views")
    config = folder / "config.toml"
    config.write_text(
        f'mechanism = "{PENDULUM}"\nbatch = 3\npictures = false\ndtype = "float64"\n'
        'time = {duration = "0.2 s", rate = "1 kHz", save_every = 20}\n'
    )
    assert main(["rollout", str(config), "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_show_prints_summary_and_tree_and_draws_them(tmp_path, capsys):
    assert main(["show", str(PENDULUM), "--out", str(tmp_path / "pendulum.png")]) == 0
    printed = capsys.readouterr().out
    assert "nq" in printed
    assert "└─ lower  elbow     revolute  0.5 kg" in printed
    assert (tmp_path / "pendulum.png").read_bytes().startswith(b"\x89PNG")
    assert "pendulum.png" in printed


def test_animate_replays_a_run(run, capsys):
    image = pytest.importorskip("PIL.Image")
    options = "--fps 25 --size 240 --sample 2 --ghosts 1 --duration 0.1"
    assert main(["animate", str(run), *options.split()]) == 0
    assert "motion.gif: 3 frames, 0.1 s of double_pendulum" in capsys.readouterr().out
    with image.open(run / "motion.gif") as file:
        assert file.n_frames == 3
        assert file.size == (240, 240)


def test_animate_lets_a_mechanism_go_in_the_working_directory(tmp_path, monkeypatch, capsys):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    assert main(["animate", str(PENDULUM), "--duration", "0.2", "--fps", "20"]) == 0
    assert "double_pendulum.gif: 5 frames" in capsys.readouterr().out
    with image.open(tmp_path / "double_pendulum.gif") as file:
        frames = []
        for k in range(file.n_frames):
            file.seek(k)
            frames.append(np.asarray(file.convert("RGB"), int))
    assert np.abs(frames[-1] - frames[0]).max() > 100


def test_what_floats_drifts_without_gravity(capsys):
    builder = jaxdyn.MechanismBuilder("drifter")
    builder.add_body("hull", joint=jaxdyn.Free(), mass=2.0, inertia=(0.1, 0.2, 0.25))
    asked = argparse.Namespace(source="drifter", duration=0.1, sample=0, seed=0)
    model = builder.build()
    jet = Actuators.of(model, [Actuator("jet", body="hull", force=(1.0, 0.0, 0.0), time_constant=0.1)])
    time, q, *_ = animate._let_go(jaxdyn.System(model, drives=jet), asked)
    assert "without gravity" in capsys.readouterr().out
    away = q[0, :, :3] - q[0, 0, :3]
    assert np.linalg.norm(away[-1]) > 0.01
    np.testing.assert_allclose(away, np.outer(time / time[-1], away[-1]), atol=1e-6)  # a straight line at one speed


def test_what_floats_falls_onto_the_ground_if_it_has_contacts(capsys):
    builder = jaxdyn.MechanismBuilder("ball")
    builder.add_body("ball", joint=jaxdyn.Free(), mass=2.0, inertia=(0.1, 0.1, 0.1))
    model = builder.build()
    contact = GroundContact.of(model, contact_sphere("ball", radius=0.3))
    asked = argparse.Namespace(source="ball", duration=0.5, sample=0, seed=0)
    _, q, *_ = animate._let_go(jaxdyn.System(model, (contact,)), asked)
    assert "without gravity" not in capsys.readouterr().out
    np.testing.assert_allclose(q[:, 0, 2], 0.4, atol=1e-6)
    assert np.all(q[:, -1, 2] < 0.32)
    assert np.all(q[..., 2] > 0.25)
    np.testing.assert_allclose(q[:, -1, 2], 0.2975, atol=1e-3)  # the whole weight on one point sinks 2.5 mm


def test_a_motion_without_masses_is_refused_before_anything_is_simulated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("drawn.urdf").write_text(
        '<robot name="drawn"><link name="base"/><link name="arm"/><joint name="turn" type="continuous">'
        '<parent link="base"/><child link="arm"/></joint></robot>'
    )
    assert main(["animate", "drawn.urdf", "--kinematic"]) == 2
    printed = capsys.readouterr()
    assert "masses" in printed.err
    assert "simulating" not in printed.out


def test_view_writes_a_page_into_the_run(run, capsys):
    assert main(["view", str(run), "--samples", "2", "0"]) == 0
    assert capsys.readouterr().out.startswith(str(run / "replay.html"))
    content = content_of(run / "replay.html")
    assert [number for number, _ in content["samples"]] == [2, 0]
    assert [chart["title"] for chart in content["charts"]] == ["energy", "shoulder", "elbow"]
    with np.load(run / "states.npz") as arrays:
        curves = numbers_of(content, 2, "curves", 1)
        np.testing.assert_allclose(curves[-1, -2:, 0], arrays["q"][2, -1], rtol=1e-5)


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["show", "nowhere.toml"], ["nowhere.toml", "no such file"]),
        (["show", "{pendulum}", "--out", "picture.txt"], ["picture.txt", ".png"]),
        (["animate", "{pendulum}", "--out", "motion.avi"], ["motion.avi", ".gif"]),
        (["animate", "{run}", "--sample", "7"], ["[7", "0 to 2"]),
        (["animate", "{empty}"], ["mechanism.json", "no such file"]),
        (["view", "{run}", "--samples", "9"], ["[9]", "0 to 2"]),
        (["view", "{empty}"], ["mechanism.json", "no such file"]),
    ],
)
def test_bad_input_is_one_line(words, fragments, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"pendulum": PENDULUM, "run": run, "empty": tmp_path}
    assert main([word.format(**names) for word in words]) == 2
    message = capsys.readouterr().err
    assert len([line for line in message.splitlines() if line.startswith("jaxdyn: ")]) == 1
    for fragment in fragments:
        assert fragment in message


def test_missing_packages_are_named_with_the_remedy(run, monkeypatch, capsys):
    for known, name in ((sys.modules, "jaxdyn.view.animation"), (vars(jaxdyn.view), "animation")):
        monkeypatch.delitem(known, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["animate", str(run)]) == 2
    assert capsys.readouterr().err == 'jaxdyn: matplotlib is not installed; pip install "jaxdyn[pictures]"\n'


def test_arguments_that_make_no_sense_are_refused(capsys):
    for words in (["animate", "x.toml", "--fps", "0"], ["view", "x", "--overlay", "-1"], ["show", "x.toml", "batch=3"]):
        with pytest.raises(SystemExit) as done:
            main(words)
        assert done.value.code == 2
    assert "unrecognized arguments: batch=3" in capsys.readouterr().err


def test_help_shows_what_to_type(capsys):
    for verb in ("show", "animate", "view"):
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        assert f"  jaxdyn {verb} " in capsys.readouterr().out
