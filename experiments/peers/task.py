"""The measured tasks: the functions, their arguments and the sizes of their results; for all routes, with NumPy alone."""

import dataclasses
import math

import numpy as np

DYNAMICS = {
    "forward dynamics": "n",
    "inverse dynamics": "n",
    "forward kinematics": "7 n",
    "mass matrix": "n n",
    "Coriolis matrix": "n n",
    "Christoffel symbols": "n n n",
    "derivatives of forward dynamics": "2 n n",
}
"""Functions of q, v and accelerations or forces, with the numbers of one result."""

ROLLOUT, GRADIENT = "rollout", "rollout gradient"
CHECKED = 16
"""Samples whose results are compared."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One function at one size.

    Attributes:
        function: Key of `DYNAMICS`, `ROLLOUT` or `GRADIENT`.
        mechanism: Name of the mechanism.
        n: Number of degrees of freedom.
        dtype: "float32" or "float64".
        batch: Number of samples of a call.
        steps: Number of steps of a rollout; 1 for other functions.
        dt: Length of a step, s.
    """

    function: str
    mechanism: str
    n: int
    dtype: str
    batch: int
    steps: int = 1
    dt: float = 0.0

    @property
    def bytes(self) -> int:
        """Arguments and result, without which no route can do."""
        if self.function in DYNAMICS:
            numbers = 3 * self.n + math.prod(int(x) if x.isdigit() else self.n for x in DYNAMICS[self.function].split())
        else:
            numbers = (4 + self.steps) * self.n
            if self.function == GRADIENT:
                numbers += (2 + self.steps) * self.n
        return self.batch * numbers * np.dtype(self.dtype).itemsize

    def arguments(self) -> tuple[np.ndarray, ...]:
        """q, v, and accelerations, forces or the forces of each step: random, the same in every process.

        Motions of rollouts are slow and their forces small, so that long chains of random bodies stay where steps are exact.
        """
        samples = (self.batch, self.n)
        if self.function in DYNAMICS:
            shapes, sizes = (samples,) * 3, (1.0, 1.0, 1.0)
        else:
            shapes, sizes = (samples, samples, (self.batch, self.steps, self.n)), (1.0, 0.1, 0.1)
        # A generator for each array: smaller batches are the beginnings of larger ones.
        return tuple(
            (size * np.random.default_rng(k).standard_normal(shape)).astype(self.dtype)
            for k, (shape, size) in enumerate(zip(shapes, sizes, strict=True))
        )


def difference(actual: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Largest difference of two results relative to the largest number of each sample; inf if there is anything not finite."""
    worst = 0.0
    for a, b in zip(actual, expected, strict=True):
        a, b = (x.reshape(len(x), -1).astype(np.float64) for x in (a, b))
        if a.shape != b.shape or not np.all(np.isfinite(a)):
            return math.inf
        scale = np.maximum(np.max(np.abs(b), axis=1), np.finfo(np.float64).tiny)
        worst = max(worst, float(np.max(np.max(np.abs(a - b), axis=1) / scale)))
    return worst
