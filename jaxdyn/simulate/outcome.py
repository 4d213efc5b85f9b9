"""Result codes of rollouts, and the warning or the error about rollouts that did not reach their end.

Under `jit`, a rollout can only return a result code for each sample. Outside of `jit` (also under `vmap`), the codes are known when
the call returns, and failures are reported immediately: by a warning if some samples of a batch failed, and by an error if all of
them failed. The report is made by a JAX primitive that returns the codes unchanged: outside of `jit` it is evaluated with the known
codes of the whole batch, and within `jit` it is compiled to no operation.
"""

import sys
import warnings
from pathlib import Path
from types import FrameType

import equinox
import jax
import jaxtyping
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxdyn.display import plural
from jaxdyn.mechanism.topology import Topology
from jaxdyn.results import ResultCode, UnsuccessfulError, outcome_text, reported
from jaxdyn.simulate.violations import ConstraintWarning, violation_text


class RolloutResult(ResultCode):
    """Outcome of a rollout; a batch has one code per sample."""

    SUCCESSFUL = 0, "All steps were made.", True
    STOPPED = 1, "The stop condition was met, and the state was held there.", True
    DIVERGED = (
        2,
        "A coordinate or velocity grew beyond the limit or was not finite, and the last good state was held; use a shorter dt or "
        "more substeps; stiff friction, damping and servos need the integrator SemiImplicitEuler, and stiff springs "
        "ImplicitMidpoint.",
    )
    STEP_FAILED = (
        3,
        "An implicit step was not solved, and the last good state was held; use a shorter dt, more substeps or more iterations of "
        "the integrator; dry friction needs the integrator SemiImplicitEuler, or a larger velocity_scale.",
    )


class DivergenceWarning(UserWarning):
    """Warning that some samples of a rollout diverged or stopped at an unsolved step."""


class RolloutError(UnsuccessfulError):
    """No sample of a rollout reached its end; the message names the `RolloutResult` and the remedy."""


def reached_end(result: Int[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Mask of the samples that completed their steps or met their stop condition."""
    return (result == RolloutResult.SUCCESSFUL) | (result == RolloutResult.STOPPED)


def describe(
    result: Int[np.ndarray, "*batch"],
    steps: Int[np.ndarray, "*batch"],
    v: Float[np.ndarray, "*batch nv"],
    topology: Topology,
    violation: str | None = None,
) -> str:
    """Summary of the outcomes of a batch: counts, time and place of the first failure, and the remedy.

    Args:
        result, steps: Result codes, and number of steps of each sample.
        v: Final velocities; for failed samples those of their last valid state.
        topology: Topology with the names of the mechanism and its joints.
        violation: Sentence about a constraint that the initial states violate; it replaces the remedy if the first step failed.
    """
    codes, steps = np.ravel(result), np.ravel(steps)
    v = np.reshape(v, (codes.size, -1))
    counts = {code: int(np.sum(codes == code)) for code in RolloutResult}
    size = plural(codes.size, "rollout", "rollouts")
    sentences = [f"{size} of {topology.name!r}: {outcome_text(RolloutResult, codes)}."]
    for code in RolloutResult:
        if counts[code] and not code.successful:
            failed = np.flatnonzero(codes == code)
            first = failed[np.argmin(steps[failed])]
            sentences.append(
                f"Sample {first} {code.words} first, after {steps[first]} steps{_fastest(v[first], topology)}."
            )
            at_once = code == RolloutResult.STEP_FAILED and not steps[first]
            sentences.append(violation if violation and at_once else code.message)
    if violation and violation not in sentences:
        sentences.append(violation)
    return " ".join(sentences)


def _fastest(v: Float[np.ndarray, "nv"], topology: Topology) -> str:
    if not v.size:
        return ""
    column = int(np.argmax(np.nan_to_num(np.abs(v), nan=np.inf)))
    joint = topology.joint_names[topology.body_of_column[column]]
    return f", when joint {joint!r} was the fastest (|v| = {abs(v[column]):.2g})"


_NOT_OF_USERS = (
    str(Path(__file__).parents[1]),
    *(str(Path(str(package.__file__)).parent) for package in (jax, jaxtyping, equinox)),
    "<",  # code that was generated at run time
)


def report(
    result: Int[Array, "*batch"],
    steps: Int[Array, "*batch"],
    v: Float[Array, "*batch nv"],
    topology: Topology,
    throw: bool,
    groups: tuple[tuple[str, str], ...],
    errors: Float[Array, "*batch groups 2 2"] | None,
) -> Int[Array, "*batch"]:
    """Return `result` unchanged; outside of `jit`, report samples that did not reach their end or violate constraints at the start.

    Args:
        result, steps, v, topology: See `describe`.
        groups, errors: See `violation_text`; no errors if the initial state is not checked.
        throw: If true, an error is raised if no sample of the batch reached its end; otherwise this is a warning, too.

    Raises:
        RolloutError: `throw` is true, and no sample reached its end.
    """
    values = (result, steps, v) + (() if errors is None else (errors,))
    return reported(_report, *values, topology=topology, throw=throw, groups=groups)


def _report(result, steps, v, errors=None, *, topology: Topology, throw: bool, groups, is_mapped: bool) -> None:
    codes = np.ravel(result)
    violation = None if errors is None else violation_text(groups, np.asarray(errors), topology.name)
    failed = [code for code in codes.tolist() if not RolloutResult(code).successful]
    if failed:
        text = describe(np.asarray(result), np.asarray(steps), np.asarray(v), topology, violation)
        if throw and len(failed) == codes.size:
            code = RolloutResult(failed[0])
            raise RolloutError(f"{type(code).__name__}.{code.name}: {text} Pass throw=False to get result codes.", code)
        text = f"{text} Trajectory.healthy marks the samples that reached their end"
        warnings.warn(text, DivergenceWarning, _user_level(sys._getframe()))
    elif violation:
        warnings.warn(violation, ConstraintWarning, _user_level(sys._getframe()))


def _user_level(frame: FrameType) -> int:
    """The `stacklevel` with which a warning refers to the innermost frame of user code."""
    level = 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_OF_USERS):
        frame, level = frame.f_back, level + 1
    return level
