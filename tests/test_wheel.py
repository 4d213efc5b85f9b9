"""The built wheel: what is in it, and that it works where no checkout is near.

`.ci/versions` runs the other tests on an installed wheel.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
LARGEST = 2_000_000  # bytes, packed

if not (ROOT / "jaxdyn").is_dir():
    pytest.skip("these tests build the wheel from a checkout, and this is none", allow_module_level=True)


def succeeded(command, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built offline, by the build backend of the environment."""
    out = tmp_path_factory.mktemp("wheel")
    succeeded([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", out], cwd=ROOT)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def elsewhere(wheel, tmp_path_factory):
    """Runs Python in an empty directory, with the installed wheel in the place of the checkout."""
    place = tmp_path_factory.mktemp("installed")
    install = ["pip", "install", "--quiet", "--no-index", "--no-deps", "--target", place, wheel]
    succeeded([sys.executable, "-m", *install])  # the dependencies are those of this environment
    outside = tmp_path_factory.mktemp("outside")
    environment = os.environ | {"PYTHONPATH": str(place), "JAX_PLATFORMS": "cpu"}

    def run(*arguments: str | Path) -> str:
        return succeeded([sys.executable, "-P", *arguments], cwd=outside, env=environment)

    run.place = place
    return run


def test_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    roots = {name.split("/")[0] for name in names}
    assert len(roots) == 2
    assert "jaxdyn" in roots
    assert {"jaxdyn/py.typed", "jaxdyn/theory.md", "jaxdyn/mechanisms/panda.toml", "jaxdyn/view/page.html"} <= {*names}
    assert {Path(name).suffix for name in names if name.startswith("jaxdyn/")} == {
        ".py",
        ".typed",
        ".md",
        ".toml",
        ".html",
        ".svg",
    }
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < LARGEST


def test_every_module_and_mechanism_of_the_checkout_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = {*packed.namelist()}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "jaxdyn").rglob("*.py")}
    mechanisms = {f"jaxdyn/mechanisms/{path.name}" for path in (ROOT / "configs" / "mechanisms").iterdir()}
    assert modules | mechanisms <= names


@pytest.mark.thorough
def test_wheel_is_imported_from_where_it_is_installed(elsewhere):
    program = (
        "import jaxdyn; print(jaxdyn.__file__); print(jaxdyn.library.mechanism_path('panda')); jaxdyn.library.panda()"
    )
    package, panda = map(Path, elsewhere("-c", program).split())
    assert package.is_relative_to(elsewhere.place)
    assert panda.is_relative_to(elsewhere.place)


def test_command_of_the_wheel(elsewhere):
    assert "rollout" in elsewhere(elsewhere.place / "bin" / "jaxdyn", "--help")


def test_rollout_of_a_mechanism_of_the_wheel(elsewhere, tmp_path):
    mechanism = elsewhere.place / "jaxdyn" / "mechanisms" / "double_pendulum.toml"
    config = tmp_path / "swing.toml"
    config.write_text(
        f'mechanism = "{mechanism.as_posix()}"\nbatch = 2\npictures = false\ntime = {{ duration = "9 ms", rate = "1 kHz" }}\n'
    )
    elsewhere(elsewhere.place / "bin" / "jaxdyn", "rollout", config, "--out", tmp_path / "run")
    assert (tmp_path / "run" / "metrics.json").is_file()
