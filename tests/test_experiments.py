"""Every experiment runs with its smoke settings, and has a config of its name that says so.

Without the option --exhaustive a few run: a simulation, an optimization and, with --thorough, a benchmark of mechanisms with loops.
Of the others, what they import, the names of jaxdyn that they use and their configs are checked.
"""

import ast
import json
import runpy
import sys
import types
from pathlib import Path

import pytest
from forked import forks

from jaxdyn.io.config import read_config

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "experiments").glob("*.py"))
TUTORIALS = sorted((ROOT / "experiments" / "tutorials").glob("*.py"))
FIRST = {"integrator_order"}
THOROUGH = {"iftomm_benchmark", "pendulum_codesign"}


@pytest.fixture(scope="module")
def scripts():
    """Processes that compile with little effort, because with smoke settings nothing runs long."""
    with forks(JAX_DISABLE_MOST_OPTIMIZATIONS="1") as scripts:
        yield scripts


def test_there_are_experiments():
    assert {script.stem for script in SCRIPTS} > FIRST | THOROUGH
    assert TUTORIALS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_experiment_is_a_job_whose_config_can_be_read(script, monkeypatch):
    monkeypatch.syspath_prepend(script.parent)  # as for a script that runs
    job = runpy.run_path(str(script))["JOB"]
    whole, small = (
        read_config(ROOT / "configs" / f"{script.stem}.toml", job.config_class, smoke=smoke) for smoke in (False, True)
    )
    assert whole != small


def unknown_names(source: str) -> list[str]:
    """Names of jaxdyn that a script uses and that do not exist: imported ones, and attributes of imported modules."""
    tree, modules, unknown = ast.parse(source), {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(name.name == "jaxdyn" for name in node.names):
            modules["jaxdyn"] = __import__("jaxdyn")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jaxdyn":
            home = __import__(node.module, fromlist=["*"])
            for name in node.names:
                found = getattr(home, name.name, None) or sys.modules.get(f"{node.module}.{name.name}")
                if found is None:
                    unknown.append(f"{node.module}.{name.name}")
                elif isinstance(found, types.ModuleType):
                    modules[name.asname or name.name] = found

    def resolved(node):
        if isinstance(node, ast.Name):
            return modules.get(node.id)
        home = resolved(node.value) if isinstance(node, ast.Attribute) else None
        if not isinstance(home, types.ModuleType):
            return None
        if not hasattr(home, node.attr):
            unknown.append(f"{home.__name__}.{node.attr}")
        return getattr(home, node.attr, None)

    for node in ast.walk(tree):
        resolved(node)
    return sorted(set(unknown))


@pytest.mark.parametrize("script", [*SCRIPTS, *TUTORIALS], ids=lambda path: path.stem)
def test_script_uses_names_that_exist(script):
    assert unknown_names(script.read_text()) == []


def test_names_that_do_not_exist_are_found():
    lines = (
        "import jaxdyn",
        "from jaxdyn import control, nothing",
        "jaxdyn.configuration.neutrl(m)",
        "control.solve(x.y)",
    )
    assert unknown_names("\n".join(lines)) == ["jaxdyn.mechanism.configuration.neutrl", "jaxdyn.nothing"]


@pytest.mark.parametrize(
    "script",
    [
        path
        if path.stem in FIRST
        else pytest.param(path, marks=pytest.mark.thorough if path.stem in THOROUGH else pytest.mark.exhaustive)
        for path in SCRIPTS
    ],
    ids=lambda path: path.stem,
)
def test_experiment_runs_with_its_smoke_settings(script, tmp_path, scripts):
    out = tmp_path / "run"
    done = scripts.run(script, "--smoke", "--out", out, folder=Path.cwd())
    assert done.returncode == 0, done.stderr
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["smoke"] is True
    assert (out / "config.toml").is_file()


def test_experiment_refuses_an_unknown_key_in_one_line(tmp_path, scripts):
    done = scripts.run(SCRIPTS[0], "--out", tmp_path / "run", "no_such_key=1", folder=tmp_path)
    assert done.returncode == 2
    assert "no_such_key: unknown key" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
