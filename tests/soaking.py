"""Mixed work in one process, round after round, with the size of the process after each: `python soaking.py SECONDS`.

Every round has numbers of its own, which are built into the code, so that everything is compiled again.
"""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from control_problems import regulator, start_of
from recorded import pendulum_plant, simulated

import jaxdyn
from jaxdyn import control, identify

MECHANISMS = ("pendulum", "double_pendulum", "cart_pole", "gyroscope", "furuta_pendulum")


def kilobytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def rollouts(number: int) -> None:
    model = getattr(jaxdyn.library, MECHANISMS[number % len(MECHANISMS)])()
    q = 0.1 * jax.random.normal(jax.random.key(number), (8, model.nq))

    def loss(q):
        state = jaxdyn.State(q, jnp.zeros(model.nv))
        end = jaxdyn.rollout(jaxdyn.System(model), state, dt=1e-3 + 1e-8 * number, steps=40, save_every=40).final
        return jnp.sum(end.q**2)

    jax.block_until_ready(jax.jit(jax.vmap(jax.value_and_grad(loss)))(q))


def batches(number: int) -> None:
    model = jaxdyn.library.double_pendulum()
    function = jaxdyn.batched(lambda q: (1.0 + number) * jaxdyn.mass_matrix(model, q))
    for count in (1, 3, 64):
        function(jnp.ones((count, model.nq))).block_until_ready()


def search(number: int) -> None:
    problem = regulator(lower=-10.0 - number, upper=10.0)
    starts = jax.tree.map(lambda x: jnp.stack([x, 1.1 * x]), start_of(problem))
    control.solve_batch(problem, control.ILQR(), starts, progress=False)


def fit(number: int) -> None:
    plant = pendulum_plant()
    windows = identify.cut([simulated(plant, 1.0, number)], duration=0.5, interval=0.02)
    parameters = identify.Parameters(plant, [identify.Parameter("system.forces.0.viscous", chart=identify.Positive())])
    identify.fit(identify.OutputError(parameters, windows), progress=False, max_steps=3, throw=False)


def eager(number: int) -> None:
    model = jaxdyn.library.pendulum()
    jaxdyn.compute.per_sample(lambda q: jnp.sin(q) * (2.0 + number))(jnp.ones(model.nq)).block_until_ready()


def shapes(number: int) -> None:
    model = jaxdyn.library.double_pendulum()
    # Of NumPy, because JAX keeps the program of its own ones of each shape.
    jax.vmap(lambda q: jaxdyn.mass_matrix(model, q))(np.ones((2 + number, model.nq))).block_until_ready()


def large_results(number: int) -> None:
    """Results of 10 MB, whose memory returns to the system."""
    function = jaxdyn.batched(lambda x: (3.0 + number) * x * jnp.arange(64.0))
    function(np.ones(20_000)).block_until_ready()


# Every how many rounds; searches and fits compile for seconds.
WORK = {rollouts: 1, batches: 1, eager: 1, shapes: 1, large_results: 1, search: 10, fit: 10}


def main(seconds: float) -> None:
    jax.config.update("jax_enable_x64", True)
    start, number = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        for work, period in WORK.items():
            if number % period == 0:
                work(number)
        number += 1
        print(round(time.monotonic() - start, 1), number, kilobytes(), maps(), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
