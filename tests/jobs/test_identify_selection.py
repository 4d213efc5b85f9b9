"""`jaxdyn identify` with [select]: candidates, their comparison, and the fit of the chosen one."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_jobs import interrupt_at_arrays, write_configs

from jaxdyn.cli import main
from jaxdyn.identify.recording import Part, Recording
from jaxdyn.io.config import read_config, resolved_toml
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.identify_config import IdentifyConfig
from jaxdyn.jobs.identify_plant import parameters_of, plant_of
from jaxdyn.jobs.identify_selection import _pieces as pieces_of

SELECT = """
[[check]]
kind = "forces"
[select]
figure = "relative"
[[select.candidate]]
name = "no friction"
fixed = {viscous = 0.0}
[[select.candidate]]
name = "friction"
fit.max_steps = 40
"""
CHANGES = ['study.0.train=["a", "b", "c"]', "pictures=false", "synthetic.starts=6", "motion.interval=0.2"]


@pytest.fixture
def small(tmp_path) -> str:
    """An arm with two joints, and candidates of its fit."""
    write_configs(tmp_path)
    path = tmp_path / "identify.toml"
    path.write_text(path.read_text() + SELECT)
    return str(path)


@pytest.mark.thorough
def test_the_chosen_candidate_is_fitted_and_an_interrupted_selection_is_resumed(small, tmp_path, capsys):
    command = ["identify", small, *CHANGES, "--out"]
    assert main([*command, str(tmp_path / "whole")]) == 0
    said = capsys.readouterr().out
    assert "chosen: friction" in said
    found = json.loads((tmp_path / "whole" / "metrics.json").read_text())["arm"]["select"]
    assert found["chosen"] == "friction"
    assert found["folds"] == ["a", "b", "c"]
    assert found["mean"]["friction"] < 0.5 * found["mean"]["no friction"]
    assert found["failures"] == []
    table = (tmp_path / "whole" / "arm_select.txt").read_text()
    assert table.splitlines()[0].split()[:5] == ["candidate", "a", "b", "c", "mean"]
    assert "viscous" in (tmp_path / "whole" / "arm_parameters.txt").read_text()
    # Each fit has its own checkpoint, so that no fit continues the search of another one.
    assert len(list((tmp_path / "whole").glob("arm_select_*_checkpoint_0.npz"))) == 2 * 3
    with pytest.MonkeyPatch.context() as patch:
        written = interrupt_at_arrays(patch, 40)
        assert main([*command, str(tmp_path / "halted")]) == 130
    assert written[-1].startswith("arm_select_")
    with pytest.MonkeyPatch.context() as patch:
        continued = interrupt_at_arrays(patch, 10_000)
        assert main([*command, str(tmp_path / "halted"), "--resume"]) == 0
    # Fits that were complete are not repeated.
    assert not {name for name in continued if name in written[:-1] and name != written[-1]}
    assert json.loads((tmp_path / "halted" / "metrics.json").read_text())["arm"]["select"] == found
    for name in ("arm_estimates", "arm_checkpoint_0"):
        whole, halted = (np.load(tmp_path / run / f"{name}.npz", allow_pickle=False) for run in ("whole", "halted"))
        for key in whole.files:
            np.testing.assert_array_equal(whole[key], halted[key])


def test_candidates_change_windows_fits_priors_and_free_parameters(small):
    extra = (
        'select.candidate=[{name="a", windows={duration="0.2 s"}, fit={loss="huber", max_steps=3}, prior_scale=2, '
        'without=["viscous"]}]'
    )
    config = read_config(small, IdentifyConfig, [*CHANGES, extra, "free.1.prior_std=0.5"])
    assert config.select is not None
    own = config.of_candidate(config.select.candidate[0])
    assert (own.windows.duration, own.fit.loss, own.fit.max_steps, own.fit.tolerance) == (0.2, "huber", 3, 1e-12)
    assert own.select is None
    assert own.free[0].divergence == 0.1 / 4
    assert own.free[1].prior_std == (1.0,)
    names = [name for name, _ in parameters_of(own, plant_of(own, own.study[0])).labels]
    assert "mass [upper]" in names
    assert not [name for name in names if "viscous" in name]
    Path(small).write_text(resolved_toml(config))
    assert read_config(small, IdentifyConfig) == config


def test_a_candidate_without_a_robust_loss_drops_the_threshold_of_the_config(small, recwarn):
    extra = 'select.candidate=[{name="plain", fit={loss="squares"}}, {name="robust", fit={max_steps=3}}]'
    config = read_config(small, IdentifyConfig, [*CHANGES, extra, "fit.loss=huber", "fit.threshold=1.5"])
    plain, robust = (config.of_candidate(candidate).fit for candidate in config.select.candidate)
    assert (plain.loss, plain.threshold, robust.loss, robust.threshold) == ("squares", None, "huber", 1.5)
    assert not [warning for warning in recwarn if "threshold" in str(warning.message)]


def test_fixed_values_within_the_bounds_of_the_class_are_accepted_only(small):
    free = 'free=[{path="system.forces.0.viscous", start=START, fixed=true}, {inertia=["upper"]}]'
    for start in ("0.0", "[0.1, 0.0]"):
        config = read_config(small, IdentifyConfig, [*CHANGES, free.replace("START", start)])
        parameters_of(config, plant_of(config, config.study[0]))
    config = read_config(small, IdentifyConfig, [*CHANGES, free.replace("START", "[0.1, -0.2]")])
    with pytest.raises(ConfigError, match=r"'viscous': the fixed value \[0.1, -0.2\] is out of range; .* not negative"):
        parameters_of(config, plant_of(config, config.study[0]))
    both = 'select.candidate=[{name="a", fixed={viscous=0.1}, without=["viscous"]}]'
    with pytest.raises(ConfigError, match="'viscous' is among the fixed parameters too; remove it from one of both"):
        read_config(small, IdentifyConfig, [*CHANGES, both])


def test_a_fixed_array_has_its_start_as_value(small):
    for fixed in (False, True):
        free = (
            f'free=[{{path="system.forces.0.viscous", start=0.5, fixed={str(fixed).lower()}}}, {{inertia=["upper"]}}]'
        )
        config = read_config(small, IdentifyConfig, [*CHANGES, free])
        parameters = parameters_of(config, plant_of(config, config.study[0]))
        np.testing.assert_allclose(parameters.subject.system.forces[0].viscous, 0.5)
        assert any("viscous" in name for name, _ in parameters.labels) != fixed


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_of_a_recording_have_equal_durations_and_cover_it(count):
    recording = Recording("arm", 0.1 * np.arange(61), np.zeros((61, 1)), None, np.zeros((61, 1)))
    for part, start, end in ((Part(recording, 0.0, np.inf), 0.0, 6.0), (Part(recording, 1.0, 4.0), 1.0, 4.0)):
        edges = np.linspace(start, end, count + 1)
        found = [(piece.start, piece.end) for piece in pieces_of(part, count)]
        np.testing.assert_allclose(found, np.stack([edges[:-1], edges[1:]], axis=1), atol=1e-8)


@pytest.mark.parametrize(
    ("overrides", "fragments"),
    [
        (['study.0.train=["a"]'], ["only one; cut it into parts, select.parts = 5"]),
        (["check=[]"], ["there is no check; write [[check]]"]),
        (["select.candidate=[]"], ["there is no candidate; write [[select.candidate]]"]),
        (["select.candidate.0.name=friction"], ["two candidates have the same name"]),
        (["select.candidate.0.fixed.viscou=1"], ["no free parameter 'viscou'; did you mean 'viscous'"]),
        (
            ['select.candidate.0.without=["uper"]'],
            ["candidate 'no friction': without: there is no free parameter 'uper'"],
        ),
        (["select.candidate.0.fit.los=huber"], ["candidate 'no friction': fit.los: unknown key; did you mean 'loss'"]),
        (["select.candidate.0.windows.velocity_cutoff=3"], ["it changes the figures of merit"]),
        (["select.candidate.0.windows.duration=-1"], ["windows.duration", "out of range"]),
        (['select.candidate.0.without=["all"]'], ["no parameter is free; keep at least one"]),
        (['select.groups=["x", "x", "x"]'], ["all recordings are in the same group"]),
        (['select.groups=["x", "y"]'], ["select.groups has 2 labels, but study 'arm' has 3 training recordings"]),
    ],
)
def test_bad_input_is_one_line_with_a_remedy(overrides, fragments, small, tmp_path, capsys):
    assert main(["identify", small, "--out", str(tmp_path / "run"), *CHANGES, *overrides]) == 2
    message = capsys.readouterr().err
    assert len(message.strip().splitlines()) == 1
    for fragment in fragments:
        assert fragment in message
