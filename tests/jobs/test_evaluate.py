"""`jaxdyn evaluate`: stored plants on recordings of files, without a fit."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from small_jobs import PLANTS, write_plants

from jaxdyn.cli import main
from jaxdyn.identify import Plant
from jaxdyn.identify.estimates import Address, Uncertainty
from jaxdyn.io.archive.plant import load_plant, save_plant


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two runs whose plants differ in the offset of their input, and two recordings, one of which has other names and rates."""
    folder = tmp_path_factory.mktemp("runs")
    write_plants(folder)
    return folder


def figures_of(runs: Path, *words: str) -> dict[str, dict[str, float]]:
    out = runs / f"judged {len(list(runs.iterdir()))}"
    assert main(["evaluate", str(runs / "one"), f"data={runs / 'new'}", "--out", str(out), *words]) == 0
    return json.loads((out / "metrics.json").read_text())["weight"]["figures"]


def test_runs_are_judged_side_by_side_on_new_recordings(runs, capsys):
    found = figures_of(runs, str(runs / "two"))
    assert list(found) == ["one, validation", "two, validation"]
    one, two = (row["rms 1_joint"] for row in found.values())
    assert one < 0.15
    np.testing.assert_allclose(two, np.hypot(0.3, one), rtol=0.1)
    assert "weight: old.npz" in capsys.readouterr().out


def test_a_recording_has_its_own_columns_and_filter_and_lists_are_changed_by_item(runs):
    found = figures_of(
        runs,
        'study.0.validation=["other.npz"]',
        'recording=[{name="other.npz", columns={u=["current"]}, motion={interval=0.02, cutoff=10, drop=3, decimate=1}}]',
    )
    assert "relative, filter 10 Hz" in found["one, validation"]


def test_pictures_have_the_bands_of_plants_with_estimates(runs, monkeypatch):
    pytest.importorskip("matplotlib")
    from jaxdyn.jobs.identify import pictures as identify_pictures

    plain, count = load_plant(runs / "one"), jnp.eye(1)
    address = Address(("inputs.offset",), None, 1)
    known = Uncertainty(
        (("offset", "N m"),),
        count[0],
        0.01 * count,
        count[0, 0],
        (),
        0.01 * count,
        0.2 * count[0],
        "forces",
        (address,),
    )
    (runs / "known").mkdir()
    save_plant(Plant(plain.system, plain.sensors, plain.inputs, plain.processing, known), runs / "known")
    (runs / "known" / "config.toml").write_text(PLANTS)
    shown = []
    monkeypatch.setattr(identify_pictures.plots, "save", lambda figure, path: shown.append(figure))
    command = ["evaluate", str(runs / "known"), f"data={runs / 'new'}", "pictures=true", "--out"]
    for name, words, bands in (("band", [], 1), ("none", ["intervals=false"], 0)):
        assert main([*command, str(runs / name), *words]) == 0
        above, below = shown.pop().axes
        assert [len(axis.collections) for axis in (above, below)] == [bands, bands]
        for band in below.collections:
            np.testing.assert_allclose(np.ptp(band.get_paths()[0].vertices[:, 1]), 2 * 1.959964 * np.hypot(0.1, 0.2))


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["nowhere"], ["nowhere", "no such directory"]),
        (["study.0.validation=[]"], ["study.0.validation is empty"]),
        (["check=[]"], ["there is no check", "kind='windows'"]),
        (["study.3.validation=[]"], ["study", "1 entries", "'3'"]),
        (["study.0.validation=['missing.npz']"], ["missing.npz", "no such file"]),
    ],
)
def test_bad_input_is_one_line_with_a_remedy(runs, words, fragments, capsys, tmp_path):
    command = ["evaluate", str(runs / "one"), f"data={runs / 'new'}", *words, "--out", str(tmp_path / "out")]
    assert main(command) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    for fragment in fragments:
        assert fragment in line
