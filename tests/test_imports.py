"""What importing jaxdyn and asking its command line loads: nothing that takes long, as long as nothing is computed."""

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import jaxdyn
from jaxdyn.compute import Backend
from jaxdyn.dynamics.forward import ForwardMethod
from jaxdyn.jobs import choices
from jaxdyn.jobs.integrators import INTEGRATORS

CONFIG = str(Path(__file__).parents[1] / "configs" / "panda_rollouts.toml")

# Packages of others that read configs, draw up help texts and check shapes.
LIGHT = {"numpy", "jaxtyping", "wadler_lindig"}

LOADED = """
import json, runpy, sys
before = set(sys.modules)
try:
    {statement}
except SystemExit as done:
    print(done.code, file=sys.stderr)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded(statement: str) -> tuple[set[str], set[str], str]:
    """Modules of jaxdyn, and packages of others, that a statement loads in a process of its own; and what it says."""
    run = subprocess.run(
        [sys.executable, "-c", LOADED.format(statement=statement)], capture_output=True, text=True, check=True
    )
    *said, modules = run.stdout.splitlines()
    ours = {name for name in json.loads(modules) if name.split(".")[0] == "jaxdyn"}
    packages = {name.split(".")[0] for name in json.loads(modules)} - {"jaxdyn"}
    return ours, packages - set(sys.stdlib_module_names), "\n".join([*said, run.stderr])


def command(*words: str) -> str:
    return f'sys.argv[1:] = {list(words)!r}; runpy.run_module("jaxdyn", run_name="__main__")'


def test_import_loads_no_other_package_and_no_module_that_nobody_asked_for():
    ours, others, _ = loaded("import jaxdyn")
    assert ours == {"jaxdyn", "jaxdyn.lazy"}
    assert not others


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--help"], "rollout"),
        (["--version"], jaxdyn.__version__),
        (["rollout", "--help"], "time.substeps"),
        (["show", "--help"], "--repair"),
        (["new", "--help"], "--mechanism"),
        (["rollout", "nowhere.urdf", "bach=3"], "did you mean 'batch'"),
        (["optmize"], "there is no verb 'optmize'; did you mean 'optimize'?"),
        (["rollout", CONFIG, "duraton=3"], "did you mean 'time.duration'"),
        (["rollout", "nowhere.toml"], "no such file"),
        (["rollout", CONFIG, "bach=3"], "did you mean 'batch'"),
        (
            ["identify", CONFIG.replace("panda_rollouts", "identify_panda"), "period=3"],
            "did you mean 'synthetic.period'",
        ),
        (["optimize", CONFIG, "stesp=3"], "this is a config of another verb; run jaxdyn rollout"),
        (["rollout", CONFIG, "time.save_every=7"], "choose a divisor"),
    ],
)
def test_help_and_errors_of_configs_do_not_wait_for_jax(words, said):
    _, others, text = loaded(command(*words))
    assert said in text
    assert others <= LIGHT


def test_a_mechanism_and_its_rollout_do_not_wait_for_what_other_work_needs():
    ours, others, _ = loaded("import jaxdyn; jaxdyn.System, jaxdyn.rollout, jaxdyn.library.panda")
    assert "jax" in others
    assert not {"scipy", "mpmath", "optax", "tqdm", "defusedxml", "matplotlib"} & others
    assert not {name for name in ours if name.split(".")[1:2] in (["control"], ["identify"], ["view"], ["jobs"])}


@pytest.mark.alone
def test_import_takes_hardly_longer_than_that_of_jax_equinox_and_optax():
    timed = "import jax, equinox, optax, time; t = time.process_time(); import jaxdyn; print(time.process_time() - t)"
    runs = [subprocess.run([sys.executable, "-c", timed], capture_output=True, check=True) for _ in range(3)]
    assert min(float(run.stdout) for run in runs) < 0.25


# --- names that are looked up late ---

PACKAGES = [
    "jaxdyn",
    "jaxdyn.constraints",
    "jaxdyn.control",
    "jaxdyn.dynamics",
    "jaxdyn.formulations",
    "jaxdyn.identify",
    "jaxdyn.io",
    "jaxdyn.jobs",
    "jaxdyn.library",
    "jaxdyn.mechanism",
    "jaxdyn.simulate",
    "jaxdyn.view",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_none_hides_behind_a_module_of_its_package(package):
    module = importlib.import_module(package)
    assert dir(module) == module.__all__ == sorted(set(module.__all__))
    for name in module.__all__:
        assert getattr(module, name) is getattr(module, name)
    inside = {found.name for found in pkgutil.iter_modules(module.__path__)}
    assert all(getattr(module, name).__name__ == f"{package}.{name}" for name in inside & set(module.__all__))


def test_what_is_imported_by_name_is_what_its_module_has():
    from jaxdyn import configuration, io, mass_matrix, rollout
    from jaxdyn.dynamics import metric
    from jaxdyn.mechanism import configuration as same

    assert mass_matrix is metric.mass_matrix
    assert configuration is same
    assert io is sys.modules["jaxdyn.io"]
    assert rollout is sys.modules["jaxdyn.simulate.trajectory"].rollout
    assert jaxdyn.mechanism is sys.modules["jaxdyn.mechanism"]


def test_a_name_that_does_not_exist_is_an_error_that_names_it():
    with pytest.raises(AttributeError, match=r"'jaxdyn' has no attribute 'mass_matricks'"):
        jaxdyn.mass_matricks  # noqa: B018
    with pytest.raises(ImportError, match="mass_matricks"):
        from jaxdyn import mass_matricks  # noqa: F401
    assert not hasattr(jaxdyn, "_private")


def test_names_in_configs_are_those_that_the_library_knows():
    assert get_args(choices.MethodName) == get_args(ForwardMethod)
    assert get_args(choices.BackendName) == get_args(Backend)
    assert get_args(choices.IntegratorName) == tuple(INTEGRATORS)
