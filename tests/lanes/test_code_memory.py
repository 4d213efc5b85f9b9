"""Machine code stays while somebody can call it, and no longer."""

import gc
import logging
import pickle
import subprocess
import sys
import textwrap
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.compute import announcements, batched
from jaxdyn.lanes import cpu, handler, records
from jaxdyn.lanes.stored import stored_jit


@pytest.fixture(autouse=True, scope="module")
def _of_other_tests():
    """What other tests have left in memory is not searched again at each collection here, which took most of the time."""
    gc.collect()
    gc.freeze()


def times(factor: float):
    """A compiled batch of x -> factor sin(x)."""
    return batched(lambda x: factor * jnp.sin(x), backend="lanes")


X = np.linspace(0.0, 3.0, 20)


def others_are_compiled(number: float) -> None:
    """Whatever nobody holds is freed when the next program is compiled."""
    jax.clear_caches()
    gc.collect()
    times(number).lower(X)


def kernels_of(function) -> set[str]:
    """What is in memory after the call and was not before."""
    others_are_compiled(-1.0)
    before = set(cpu._in_memory)
    function()
    return set(cpu._in_memory) - before


def test_code_goes_with_its_executable():
    made = kernels_of(lambda: times(2.5)(X))
    assert len(made) == 1
    others_are_compiled(-2.0)
    assert not made & set(cpu._in_memory)


def test_code_of_a_living_executable_stays():
    held = []
    made = kernels_of(lambda: held.append(times(3.5).lower(X).compile()))
    for number in range(3):
        others_are_compiled(-3.0 - number)
    assert made <= set(cpu._in_memory)
    np.testing.assert_allclose(held[0](X), 3.5 * np.sin(X))
    held.clear()
    others_are_compiled(-7.0)
    assert not made & set(cpu._in_memory)


def test_code_of_what_is_lowered_and_not_yet_compiled_stays():
    lowered = []
    made = kernels_of(lambda: lowered.append(times(4.5).lower(X)))
    others_are_compiled(-8.0)
    assert made <= set(cpu._in_memory)
    compiled = lowered.pop().compile()
    others_are_compiled(-9.0)
    assert made <= set(cpu._in_memory)
    np.testing.assert_allclose(compiled(X), 4.5 * np.sin(X))


def test_a_program_that_is_compiled_while_an_old_executable_lives_shares_its_code():
    first = times(5.5).lower(X).compile()
    others_are_compiled(-10.0)
    known = set(cpu._in_memory)
    second = times(5.5).lower(X).compile()
    assert set(cpu._in_memory) <= known
    del first
    others_are_compiled(-11.0)
    np.testing.assert_allclose(second(X), 5.5 * np.sin(X))


def test_a_key_that_is_not_in_the_list_is_refused():
    times(6.5)(X)  # the handlers are there
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    for key in ("0" * 32, "short"):
        with pytest.raises(jax.errors.JaxRuntimeError, match="not in this process"):
            jax.jit(lambda x, key=key: jax.ffi.ffi_call(handler.TARGET, shape)(x, code=key))(X)


SMALL_FUNCTIONS = """
    import gc
    import jax, jax.numpy as jnp
    import jaxdyn

    def sizes():
        pages = int(open("/proc/self/statm").read().split()[1])
        return pages * 4, sum(1 for _ in open("/proc/self/maps"))

    def run(first, last):
        for k in range(first, last):
            jaxdyn.batched(lambda x: jnp.sin(x) * (1.5 + k), backend="lanes")(jnp.arange(8.0)).block_until_ready()
            if k % 10 == 9:
                jax.clear_caches()
                gc.collect()

    run(0, 20)
    before = sizes()
    run(20, 60)
    print(*(after - at for after, at in zip(sizes(), before)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc, which only Linux has")
def test_small_functions_do_not_fill_the_memory():
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SMALL_FUNCTIONS)], capture_output=True, text=True, check=True
    )
    kilobytes, maps = map(int, run.stdout.split())
    # Forty functions: an engine for each would keep 36 MB and 80 maps. XLA's own pools grow by some ten kB for each.
    assert kilobytes < 40 * 250
    assert maps < 20


# ---------------------------------------------------------------- code that is made in the background


def held_back(monkeypatch, released: threading.Event, error: Exception | None = None) -> None:
    """Machine code is made only after the event; with an error, it cannot be made."""
    source_of_code = cpu.source_of_code

    def source(*args):
        make = source_of_code(*args)

        def late():
            assert released.wait(60.0)
            if error is not None:
                raise error
            return make()

        return late

    monkeypatch.setattr(cpu, "source_of_code", source)


def after_release(function, released: threading.Event):
    """The result of a function that does not return before the event."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    released.set()
    thread.join(60.0)
    return results[0]


def test_a_function_is_compiled_when_its_code_is_made(monkeypatch):
    released = threading.Event()
    held_back(monkeypatch, released)
    compiled = after_release(lambda: times(11.5).lower(X).compile(), released)
    np.testing.assert_allclose(compiled(X), 11.5 * np.sin(X))


CALLS = {
    "compiled before": lambda function: function.lower(X).compile(),
    "compiled by the call": lambda function: function,
    "within a loop": lambda function: lambda x: jax.lax.map(function, x[None])[0],
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_waits_for_its_code_without_the_lock_of_python(monkeypatch, call):
    """The thread that makes the code needs this lock."""
    released = threading.Event()
    held_back(monkeypatch, released)
    monkeypatch.setattr(announcements, "WAITS", [])
    factor = 12.5 + list(CALLS).index(call)
    function = CALLS[call](times(factor))
    np.testing.assert_allclose(after_release(lambda: function(X), released), factor * np.sin(X))


def test_code_that_cannot_be_made_fails_the_call_and_not_the_process(monkeypatch, caplog):
    released = threading.Event()
    released.set()
    held_back(monkeypatch, released, OSError("no room"))
    with caplog.at_level(logging.ERROR, "jaxdyn"), pytest.raises(Exception, match="the machine code could not be made"):
        times(23.5)(X)
    assert "no room" in caplog.text
    assert np.isnan(records()[-1].code_s)
    with pytest.raises(OSError, match="no room"):
        stored_jit(times(24.5))(X)
    monkeypatch.undo()
    jax.clear_caches()
    np.testing.assert_allclose(times(23.5)(X), 23.5 * np.sin(X))


def test_stored_code_that_cannot_be_loaded_is_an_error_at_once_and_leaves_nothing(tmp_path, monkeypatch):
    """So that the program is compiled again."""
    jaxdyn.cache.set_directory(tmp_path / "own")
    with cpu.collected() as codes:
        times(27.5)(X)
    form = cpu.stored_form(codes[0])
    codes.clear()
    others_are_compiled(-12.0)
    assert form[0] not in cpu._in_memory

    def refuse(code):
        raise OSError("no more memory maps")

    with monkeypatch.context() as patched:
        patched.setattr(cpu, "loaded", refuse)
        with pytest.raises(OSError, match="memory maps"):
            cpu.from_stored_form(form)
    assert form[0] not in cpu._in_memory
    assert cpu.from_stored_form(form).made.done()


def test_without_a_new_thread_code_is_made_at_once(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    function = times(25.5)
    traced = function.trace(X)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        lowered = traced.lower()
    np.testing.assert_allclose(lowered.compile()(X), 25.5 * np.sin(X))


def test_a_pickled_program_is_known_by_its_key():
    with cpu.collected() as codes:
        times(26.5).lower(X)
    assert pickle.loads(pickle.dumps(codes[0])).key == codes[0].key
