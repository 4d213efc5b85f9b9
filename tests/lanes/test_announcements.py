"""Compilations that take long are announced while they go on, others are not, and nothing is said to who did not ask."""

import logging
import threading
import time

import jax
import jax.monitoring
import numpy as np
import pytest

from jaxdyn.compute import announcements
from jaxdyn.compute.announcements import announced_as
from jaxdyn.jobs.notes import compilations_told

PHASES = [f"/jax/core/compile/{name}_duration" for name in ("jaxpr_trace", "jaxpr_to_mlir_module", "backend_compile")]


@pytest.fixture
def impatient(monkeypatch):
    """A tenth of a second is long."""
    monkeypatch.setattr(announcements, "_PATIENCE", 0.1)


@pytest.fixture
def patient(monkeypatch):
    """Nothing that happens here is long."""
    monkeypatch.setattr(announcements, "_PATIENCE", 60.0)


@pytest.fixture
def heard(caplog):
    """What the logger has said so far."""
    caplog.set_level(logging.INFO, logger="jaxdyn")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "jaxdyn"]


def slow(seconds: float, then=lambda: None):
    """A compiled function that takes so long to trace."""

    def _doubled(x):
        time.sleep(seconds)
        then()
        return x + x

    return jax.jit(_doubled)


def test_a_long_compilation_is_announced_while_it_goes_on_and_told_when_it_has_ended(impatient, heard):
    meanwhile = []
    slow(0.5, then=lambda: meanwhile.extend(heard()))(np.ones(3))
    assert meanwhile == ["compiling doubled ..."]
    announced, ended = heard()
    assert announced == meanwhile[0]
    assert ended.startswith("compiled doubled in ")
    assert float(ended.split()[-2]) >= 0.5


def test_a_short_compilation_and_a_second_call_are_not_announced(patient, heard):
    function = slow(0.0)
    function(np.ones(3))
    function(np.ones(3))
    assert heard() == []


def test_no_thread_waits_unless_the_level_is_info(patient):
    threads = []
    slow(0.0, then=lambda: threads.append(threading.active_count()))(np.ones(3))
    assert threads == [threading.active_count()]


def test_the_purpose_is_told_beside_the_function(impatient, heard):
    with announced_as("the search"):
        slow(0.3)(np.ones(3))
    slow(0.3)(np.ones(3))
    assert [text.split(" in ")[0] for text in heard()] == [
        "compiling the search (doubled) ...",
        "compiled the search (doubled)",
        "compiling doubled ...",
        "compiled doubled",
    ]


@pytest.mark.parametrize(
    "name", ["convert_element_type", "jit(_where)", "broadcast_in_dim", "multiply", "jit(_normal)"]
)
def test_functions_of_jax_are_not_named_and_without_a_purpose_not_announced(name, patient, heard):
    def compiled():
        for phase in PHASES:
            jax.monitoring.record_scalar(phase, 0.0, fun_name=name)
            jax.monitoring.record_event_duration_secs(phase, 70.0, fun_name=name)
            time.sleep(0.1)  # for the timer, which is due at once

    compiled()
    assert heard() == []
    with announced_as("the search"):
        compiled()
    assert set(heard()) <= {"compiling the search ...", "compiled the search in 210.0 s"}


@pytest.mark.parametrize(
    "name", ["f", "_f_of_mine", "e", "step", "policy", "cost", "loss", "mass_matrix", "_stretch", "t"]
)
def test_names_of_users_are_told(name, patient, heard):
    jax.monitoring.record_scalar(PHASES[0], 0.0, fun_name=name)
    jax.monitoring.record_event_duration_secs(PHASES[0], 70.0, fun_name=name)
    jax.monitoring.record_scalar(PHASES[2], 0.0, fun_name=name)
    time.sleep(0.1)  # for the timer, which is due at once
    jax.monitoring.record_event_duration_secs(PHASES[2], 70.0, fun_name=name)
    assert heard()[0] == f"compiling {name.lstrip('_')} ..."


def test_phases_of_one_function_add_up_and_phases_within_them_do_not_count(patient, heard):
    said = []
    for phase in PHASES:
        jax.monitoring.record_scalar(phase, 0.0, fun_name="jit(f)")
        jax.monitoring.record_scalar(PHASES[2], 0.0, fun_name="jit(within)")
        jax.monitoring.record_event_duration_secs(PHASES[2], 7.0, fun_name="jit(within)")
        time.sleep(0.1)  # for the timer, which is due at once
        said.append(len(heard()))
        jax.monitoring.record_event_duration_secs(phase, 70.0, fun_name="jit(f)")
    assert said == [0, 1, 1]
    assert heard() == ["compiling f ...", "compiled f in 210.0 s"]


def test_the_command_line_prints_announcements_and_leaves_the_logger_as_it_was(impatient, capsys):
    logger = logging.getLogger("jaxdyn")
    before = logger.level, list(logger.handlers)
    with compilations_told():
        slow(0.3)(np.ones(3))
    assert (logger.level, logger.handlers) == before
    first, last = capsys.readouterr().err.splitlines()
    assert first == "compiling doubled ..."
    assert last.startswith("compiled doubled in ")
