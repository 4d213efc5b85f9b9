"""The tutorials run as scripts, leave pictures that show something, and what they print is what they claim.

They run with the option --exhaustive; the names that they use are always checked, in `test_experiments`.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from forked import forks
from PIL import Image

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[1] / "experiments" / "tutorials"
TUTORIALS = ("batched_rollouts", "identification", "trajectory_optimization")
NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.exhaustive) for name in TUTORIALS])
def tutorial(request, tmp_path_factory):
    """Name, printed text and folder of pictures of a tutorial that has run."""
    out = tmp_path_factory.mktemp(request.param)
    script = FOLDER / f"{request.param}.py"
    with forks(MPLBACKEND="agg") as scripts:
        done = scripts.run(script, "--out", out, folder=Path.cwd())
    assert done.returncode == 0, done.stderr
    return request.param, done.stdout, out


def numbers(text: str, pattern: str) -> list[float]:
    """Numbers of the only line that a pattern matches, where # stands for a number."""
    found = re.findall(pattern.replace("#", NUMBER), text)
    assert len(found) == 1, f"{pattern!r} matches {len(found)} times in\n{text}"
    return [float(x) for x in (found[0] if isinstance(found[0], tuple) else found)]


@pytest.mark.thorough
def test_there_is_no_other_tutorial():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(TUTORIALS)


@pytest.mark.thorough
@pytest.mark.parametrize("name", TUTORIALS)
def test_cells_alternate_between_text_and_code(name):
    """What an editor needs to open a script as a notebook: percent cells, text as comments, code that compiles by itself."""
    source = (FOLDER / f"{name}.py").read_text()
    assert source.startswith("# %% [markdown]\n# # ")
    cells = re.split(r"^# %%", source, flags=re.MULTILINE)[1:]
    assert sum(cell.startswith(" [markdown]") for cell in cells) >= 5
    for cell in cells:
        head, _, body = cell.partition("\n")
        if head == " [markdown]":
            assert all(line.startswith("#") for line in body.strip().splitlines())
        else:
            compile(body, name, "exec")


@pytest.mark.thorough
def test_pictures_show_something(tutorial):
    name, printed, out = tutorial
    named = [Path(line) for line in re.findall(r"^picture: (\S+)", printed, re.MULTILINE)]
    assert len(named) >= 3
    assert {path.name for path in named} == {path.name for path in out.iterdir()}
    for path in named:
        with Image.open(path) as picture:
            frames = getattr(picture, "n_frames", 1)
            picture.seek(frames // 2)
            pixels = np.asarray(picture.convert("L"), float)
        assert min(pixels.shape) > 200
        assert pixels.std() > 8.0, f"{path.name} of {name} is empty"
        # Not only a frame or a title: something in most strips of it.
        assert np.mean([strip.std() > 2.0 for strip in np.array_split(pixels, 10, axis=1)]) > 0.7, path.name


@pytest.mark.thorough
def test_claims(tutorial):
    name, printed, _ = tutorial
    CLAIMS[name](printed)


def batched_rollouts(text: str):
    coarse, work = numbers(text, r"energy balance of SemiImplicitEuler: median error # J, median work # J")
    fine, _ = numbers(text, r"energy balance of RungeKutta4: median error # J, median work # J")
    assert 1e-3 * work < coarse < 0.3 * work  # of first order at a coarse step: it shows
    assert fine < 1e-6 * work
    assert numbers(text, r"gradient relative error: #")[0] < 1e-6
    looks_perfect, counted = numbers(text, r"explicit damping: # m\^2 by a sum over the healthy arms, # m\^2 with")
    assert looks_perfect == 0.0
    assert counted == 4.0
    healthy, all_arms = numbers(text, r"implicit damping: # m\^2 by a sum over the healthy arms, # m\^2 with")
    assert healthy == all_arms > 0.0
    impossible, _ = numbers(text, r"somersaults without the energy for them: # of #")
    possible, allowed = numbers(text, r"somersaults with the energy for them: # of #")
    assert impossible == 0
    assert 0.5 * allowed < possible < allowed
    together = numbers(text, r"tips within 1 cm of each other until t = # s")[0]
    assert 4.0 < together < 12.0


def identification(text: str):
    held = numbers(text, r"linear fit: 95 % intervals contain the true value in # %")[0]
    # 4400 intervals of estimates that depend on each other: the standard deviation of the share is about half a percent.
    assert 93.0 < held < 97.0
    assert re.search(r"windows: SUCCESSFUL after", text)
    assert "bodies that cannot exist: none" in text
    covered, all_of_them = numbers(
        text, r"output error: 95 % intervals contain the true values of # of # base parameters"
    )
    assert covered >= all_of_them - 2  # one in twenty may miss, and misses come together
    before = numbers(text, r"drawing: predictions of unseen windows are off by # mrad")[0]
    after = numbers(text, r"identified: predictions of unseen windows are off by # mrad")[0]
    assert after < 0.1 * before


def trajectory_optimization(text: str):
    best, off = numbers(text, r"best plan: # N² m² s, upright to #")
    assert off < 1e-6
    several = [float(x) for x in re.findall(r"^([\d.]+)  from \d+ of 256 starts", text, re.MULTILINE)]
    assert len(several) >= 2
    np.testing.assert_allclose(min(several), best, rtol=1e-4)
    straight = numbers(text, r"from a straight line: # N² m² s, successful")[0]
    assert straight > best
    again, iterations = numbers(text, r"from the best plan of ILQR: # N² m² s after # iterations")
    np.testing.assert_allclose(again, best, rtol=1e-5)  # two methods, one optimum
    assert iterations < 30
    assert numbers(text, r"replay without disturbance ends # rad from upright")[0] < 1e-5
    blind, seeing = (
        numbers(text, rf"{way}: median # deg from upright at the end, 95 % within # deg")
        for way in ("torques alone", "with feedback")
    )
    assert seeing[1] < 0.2 * blind[0]
    assert numbers(text, r"slope relative error: #")[0] < 1e-3  # of a difference quotient over 2 mm


CLAIMS = {function.__name__: function for function in (batched_rollouts, identification, trajectory_optimization)}
