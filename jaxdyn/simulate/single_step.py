"""A stepper: one step of a simulation per call from Python, for control loops, hardware in the loop and learning environments."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import kernel
from jaxdyn.dynamics.system import State, System, check_drive_states, check_system
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.messages import check_instance
from jaxdyn.simulate.integrators import Integrator, SemiImplicitEuler
from jaxdyn.simulate.outcome import RolloutError, RolloutResult, describe
from jaxdyn.simulate.trajectory import rollout


def stepper(
    system: System,
    dt: float,
    *,
    integrator: Integrator = SemiImplicitEuler(),  # noqa: B008 (immutable)
    substeps: int = 1,
    divergence_limit: float = 1e6,
) -> "Stepper":
    """Compile one step of a simulation for calls from Python, with NumPy arrays and at most some microseconds of overhead.

    The steps are those of `rollout` with the same arguments, but nothing warns of a start that violates a constraint. A batch, or a
    motion whose controls are known, is faster as one `rollout`.

    Args:
        system: Mechanism, forces and drives, whose values become constants of the code.
        dt: Duration of a step, s; negative to simulate backward in time.
        integrator, substeps, divergence_limit: The arguments of `rollout` with these names.

    Returns:
        Function step(q, v, u=None, t=0.0) that returns the coordinates (nq,), rad or m, and the velocities (nv,), rad/s or m/s,
        after a step with constant controls u (nu,) that starts at time t, s. If the drives have states z (nz,), it is
        step(q, v, u, t, z), which returns z, too. It raises a `RolloutError` if the step diverged or was not solved.

    Raises:
        TypeError: An argument has the wrong type; the message states the remedy.
        ValueError: `dt` is zero or not finite.

    Example:
        ```python
        import numpy as np, jaxdyn

        system = jaxdyn.library.system("acrobot")
        step = jaxdyn.stepper(system, dt=0.01)
        q, v = np.array([1.0, 0.0], np.float32), np.zeros(2, np.float32)
        for _ in range(100):
            q, v = step(q, v, -0.1 * v[1:])
        ```
    """
    return Stepper(system, dt, integrator=integrator, substeps=substeps, divergence_limit=divergence_limit)


class Stepper:
    """A compiled step of a simulation, see `stepper`.

    Attributes:
        system: The system that is simulated.
        dt: Duration of a step, s.
    """

    def __init__(self, system: System, dt: float, **options: Any):
        check_system(system, "stepper")
        check_instance("dt", dt, int | float | np.number, "a float, in seconds")
        self.system, self.dt, self._options = system, float(dt), options
        self._example = system.at_rest(configuration.neutral(system.model))
        self._stateless = system.nz == 0
        self._driven = self._compiled(jnp.zeros(system.nu, self._example.v.dtype))
        # Without drives, the controls are forces, and no force is a zero force.
        self._free = self._driven if system.drives is None else self._compiled(None)
        self._none = np.zeros(system.nu, self._example.v.dtype) if system.drives is None else None

    def __repr__(self) -> str:
        return f"Stepper({self.system.model.name!r}, dt={self.dt:g})"

    def _compiled(self, u: Any) -> Any:
        def step(q, v, u, t, *z):
            controls = None if u is None else u[None]
            found = rollout(self.system, State(q, v, *z), controls, dt=self.dt, steps=1, t0=t, **self._options)
            return *jax.tree.leaves(found.final), found.result

        step.__name__ = f"step of {self.system.model.name}"
        return kernel(step, self._example.q, self._example.v, u, 0.0, *self._states(self._example.z))

    def _states(self, z: Any) -> tuple:
        """The argument z of a system whose drives have states."""
        check_drive_states(self.system, z)
        return () if z is None else (z,)

    def __call__(
        self,
        q: Float[np.ndarray | Array, "nq"],
        v: Float[np.ndarray | Array, "nv"],
        u: Float[np.ndarray | Array, "nu"] | None = None,
        t: float = 0.0,
        z: Float[np.ndarray | Array, "nz"] | None = None,
    ) -> tuple[np.ndarray, ...]:
        """Coordinates and velocities after a step, and the states of the drives if there are any.

        Args:
            q, v: Coordinates and velocities at the start of the step.
            u: Controls during the step; None as in `rollout`.
            t: Time at the start of the step, s; for motions and forces that depend on it.
            z: States of the drives at the start of the step, if there are any.

        Raises:
            RolloutError: The step diverged or was not solved; the message names the `RolloutResult` and the remedy.
            ValueError: The drives have states, and there is no z.
        """
        states = () if self._stateless and z is None else self._states(z)
        step, u = (self._free, self._none) if u is None else (self._driven, u)
        *after, result = step(q, v, u, t, *states)
        if result:
            self._raise(result, after[1])
        return tuple(after)

    def _raise(self, result: np.ndarray, v: np.ndarray) -> None:
        code = RolloutResult(int(result))
        text = describe(result, np.asarray(0), v, self.system.model.topology)
        raise RolloutError(f"{type(code).__name__}.{code.name}: {text}", code)
