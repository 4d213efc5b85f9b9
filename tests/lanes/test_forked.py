"""A call in a process that was forked after JAX had begun raises an error of one line, instead of waiting for ever."""

import json
import os
import subprocess
import sys

import pytest

# Each call is made in the parent, too, so that it is compiled there, except for those of new functions.
CALLS = """
import json, os, signal, warnings
import jax, jax.numpy as jnp, numpy as np
import jaxdyn

warnings.simplefilter("ignore")  # JAX warns of the fork
model = jaxdyn.library.double_pendulum()
system = jaxdyn.System(model)
sine = jaxdyn.batched(lambda x: jnp.sin(x) * x.sum())
end = jaxdyn.batched(lambda q: jaxdyn.rollout(system, system.at_rest(q), dt=1e-3, steps=3).final.q)
plain = jaxdyn.batched(lambda x: jnp.cos(x), backend="xla")
few, many = np.ones((3, 2), np.float32), np.ones((1_000_000, 2), np.float32)

compiled = {
    "a small batch": lambda: sine(few),
    "a large batch": lambda: sine(many),
    "a batch of rollouts": lambda: end(few),
    "a batch of XLA": lambda: plain(many),
    "a public function": lambda: jaxdyn.mass_matrix(model, few[0]),
    "a rollout": lambda: jaxdyn.rollout(system, system.at_rest(few[0]), dt=1e-3, steps=3).final.q,
    "a public function under vmap": lambda: jax.vmap(lambda q: jaxdyn.mass_matrix(model, q))(many[:100_000]),
}
new = {
    "a new batch": lambda: jaxdyn.batched(lambda x: x + 2)(few),
    "a new public function": lambda: jaxdyn.kinetic_energy(model, few[0], few[0]),
    "a new function of JAX": lambda: jax.jit(lambda x: x * 3)(few),
}
for call in compiled.values():
    jax.block_until_ready(call())

def message_of(call):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            jax.block_until_ready(call())
        except RuntimeError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading) as said:
        return said.read()

print(json.dumps({name: message_of(call) for name, call in (compiled | new).items()}))
before = np.asarray(sine(few))
assert not message_of(lambda: None) and np.array_equal(sine(few), before)  # the parent goes on
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_in_a_forked_process_every_call_is_one_line_that_names_the_remedy():
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, said in json.loads(done.stdout).items():
        assert 'start it with multiprocessing.get_context("spawn")' in said, name
        assert len(said.splitlines()) == 1
