"""Precision of a job, that of its config, in its work and in the record of its environment; hosts that follow the first one."""

import contextlib
import dataclasses
import json

import jax.numpy as jnp
import pytest

from jaxdyn.io.errors import RunError
from jaxdyn.jobs import carry_out
from jaxdyn.jobs.job import Job
from jaxdyn.jobs.running import run


@dataclasses.dataclass(frozen=True)
class Settings:
    dtype: str


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_work_and_record_have_the_precision_of_the_config(tmp_path, dtype):
    job = Job(
        "zero",
        "make a zero",
        Settings,
        lambda config, directory: {"made": str(jnp.zeros(()).dtype)},
        double=lambda config: config.dtype == "float64",
    )
    (tmp_path / "zero.toml").write_text(f'dtype = "{dtype}"')
    run(job, tmp_path / "zero.toml", out=tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["made"] == metrics["environment"]["dtype"] == dtype
    assert metrics["environment"]["x64"] == (dtype == "float64")


def test_further_hosts_begin_if_the_first_one_does(monkeypatch):
    monkeypatch.setattr(carry_out, "join_hosts", lambda: None)
    monkeypatch.setattr(carry_out, "is_first", lambda: False)
    with contextlib.ExitStack() as stack:
        monkeypatch.setattr(carry_out, "agreed", lambda own: True)
        directory, complete = carry_out._opened_by_first(pytest.fail, stack)
        assert complete
        assert directory.root.is_dir()
        monkeypatch.setattr(carry_out, "agreed", lambda own: False)
        with pytest.raises(RunError, match="the first host could not begin"):
            carry_out._opened_by_first(pytest.fail, stack)
    assert not directory.root.exists()
