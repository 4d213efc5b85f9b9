"""How does the energy error of each integrator fall with the step?

Method. A double pendulum swings freely, without friction, from one state. Its energy is constant, so whatever the
energy does is the integrator's error. The same duration is simulated with a ladder of steps, each half of the one
before, in float64; the slope of the error in a log-log plot is the order.

Expected. Semi-implicit Euler 1, implicit midpoint 2, Runge-Kutta 4 at least 4 (its energy drift is of order 5, its state error of
order 4). The symplectic and the symmetric method bound the error for all time; Runge-Kutta drifts.

Run time. About 20 s on two cores.

    python experiments/integrator_order.py [configs/integrator_order.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import RunDirectory, setting
from jaxdyn.jobs import Job, main

INTEGRATORS = {
    "semi-implicit Euler": jaxdyn.SemiImplicitEuler(),
    "implicit midpoint": jaxdyn.ImplicitMidpoint(),
    "Runge-Kutta 4": jaxdyn.RungeKutta4(),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        duration: Simulated time.
        coarsest_step: Longest time step.
        halvings: Number of times that the time step is halved.
        angles: Initial angles of the two joints.
    """

    duration: float = setting(10.0, unit="s", positive=True)
    coarsest_step: float = setting(0.01, unit="s", positive=True)
    halvings: int = setting(4, positive=True)
    angles: tuple[float, float] = setting((1.0, 0.5), unit="rad")

    def __post_init__(self):
        if self.duration < self.coarsest_step:
            raise ValueError(
                f"duration = {self.duration:g} s is shorter than coarsest_step = {self.coarsest_step:g} s; lengthen it"
            )


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True):
        system = jaxdyn.System(jaxdyn.library.double_pendulum())
        start = jaxdyn.State(jnp.array(config.angles), jnp.zeros(2))
        steps = [config.coarsest_step / 2**k for k in range(config.halvings + 1)]
        errors = {name: [] for name in INTEGRATORS}
        with tqdm(total=len(INTEGRATORS) * len(steps), unit="run") as bar:
            for name, integrator in INTEGRATORS.items():
                for dt in steps:
                    errors[name].append(energy_error(system, start, integrator, dt, round(config.duration / dt)))
                    bar.update()
    slopes = {name: float(np.polyfit(np.log(steps), np.log(error), 1)[0]) for name, error in errors.items()}
    directory.write_arrays(
        "errors", step=np.array(steps), **{n.replace(" ", "_"): np.array(e) for n, e in errors.items()}
    )
    draw(directory, steps, errors, slopes)
    for name, slope in slopes.items():
        print(f"{name:20s} slope {slope:.2f}, declared order {INTEGRATORS[name].order}")
    return {"slope": slopes, "declared_order": {name: i.order for name, i in INTEGRATORS.items()}}


def energy_error(
    system: jaxdyn.System, start: jaxdyn.State, integrator: jaxdyn.simulate.Integrator, dt: float, steps: int
) -> float:
    """Largest departure of the energy from its initial value over the rollout, J."""

    @jax.jit
    def run(state):
        energy = jaxdyn.total_energy(system, state)
        trajectory = jaxdyn.rollout(
            system,
            state,
            dt=dt,
            steps=steps,
            integrator=integrator,
            save=lambda t, s, u: jaxdyn.total_energy(system, s),
        )
        return jnp.max(jnp.abs(trajectory.saved - energy))

    return float(run(start))


def draw(directory: RunDirectory, steps: list[float], errors: dict[str, list[float]], slopes: dict[str, float]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.5), layout="constrained")
    axis = figure.subplots()
    for name, error in errors.items():
        axis.loglog(steps, error, "o-", label=f"{name}: slope {slopes[name]:.2f}")
    axis.set_xlabel("step (s)")
    axis.set_ylabel("largest energy error (J)")
    axis.set_title("Energy error of a free double pendulum")
    axis.grid(alpha=0.3, which="both")
    axis.legend(frameon=False)
    figure.savefig(directory.path("energy_error.png"), dpi=110)


JOB = Job("integrator-order", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
