"""The command `jaxdyn check`: accuracy of float32 and float64 for a mechanism, and the causes of errors."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.compute import CannotCompile, backend
from jaxdyn.display import aligned
from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.commands.arguments import CheckArguments
from jaxdyn.jobs.source import load_source, middle, random_starts
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import as_dtype
from jaxdyn.simulate import precision
from jaxdyn.simulate.precision import Errors

# Unit roundoff of float32.
_ROUNDING = 2.0**-24


def check(arguments: CheckArguments) -> None:
    """Print the accuracy of float32 and float64 for a mechanism, and the causes of errors."""
    system = load_source(arguments, arguments.file)
    # Forces are given for every velocity component, regardless of the drives.
    system = system.changed(drives=None, method=arguments.method or system.method)
    try:
        as_dtype(system, jnp.float32)
    except MechanismError as error:
        raise ConfigError(f"{arguments.file}: {error}") from None
    inputs = _inputs(system, arguments)
    found: dict[str, Errors] = {}
    unchecked = []
    for part in (precision.ENERGIES, precision.ACCELERATIONS):
        try:
            with backend(arguments.backend):
                found |= precision.errors(system, part, inputs)
        except (CannotCompile, ValueError) as error:
            # It is not a scalar program, a result is not finite, or the method is not supported.
            unchecked.append(f"{part.names[0]} and gradient: not checked, {str(error).splitlines()[0]}")
    if not found:
        raise ConfigError(f"{arguments.file}: {'; '.join(unchecked)}")
    states = f"{len(inputs.q)} states, the first at rest" if len(inputs.q) > 1 else "the state at rest"
    print(
        f"{system.model.name}: {states}, against {precision.DIGITS} digits; "
        "errors relative to the largest component of each vector\n"
    )
    print("\n".join([table(found), *unchecked]))
    print()
    print("\n".join(verdict(system, inputs, found)))


def _inputs(system: System, arguments: CheckArguments) -> precision.Samples:
    keys = jax.random.split(jax.random.key(arguments.seed), 3)
    rest = middle(system, keys[0], arguments.file)
    random = random_starts(system, jax.random.split(keys[1], arguments.states), 1.0, arguments.file)
    return precision.random_inputs(system, rest, random, keys[2])


def table(found: dict[str, Errors]) -> str:
    """Table of the median and worst errors over the checked states."""
    head = ["", "float32:", "", "of which", "float64:", ""], ["", "median", "worst", "the model", "median", "worst"]
    rows: list[Sequence[str]] = [*head]
    for name, e in found.items():
        numbers = np.median(e.float32), e.float32.max(), e.rounded_model.max(), np.median(e.float64), e.float64.max()
        rows.append([name, *(f"{x:.1e}" for x in numbers)])
    return aligned(rows, left=(0,))


def digits(errors: Sequence[np.ndarray]) -> float:
    """Number of correct decimal digits of several quantities at the worst state; 0 if a result is not finite."""
    worst = float(np.max([np.max(error) for error in errors], initial=0.0))
    if not math.isfinite(worst):
        return 0.0
    return min(max(0.0, -math.log10(worst)), precision.DIGITS) if worst > 0.0 else precision.DIGITS


def verdict(system: System, inputs: precision.Samples, found: dict[str, Errors]) -> list[str]:
    """Interpretation of the errors and their causes, with one or two sentences per line."""
    lines = []
    for name in (name for name in ("energy", "accelerations") if name in found):
        value, gradient = [found[name]], [e for key, e in found.items() if key.startswith(f"{name} by")]
        value32, gradient32 = (digits([e.float32 for e in part]) for part in (value, gradient))
        value64, gradient64 = (digits([e.float64 for e in part]) for part in (value, gradient))
        lines.append(
            f"{name}: float32 keeps {value32:.1f} digits, and {gradient32:.1f} of the gradient; "
            f"float64 {value64:.1f} and {gradient64:.1f}, at the worst state."
        )
    if "accelerations" in found:
        lines.append(_cause(system, inputs, found["accelerations"]))
        lines.append(_advice(digits([e.float32 for e in found.values()])))
    return lines


def _cause(system: System, inputs: precision.Samples, accelerations: Errors) -> str:
    conditioning = precision.conditioning(system, inputs, accelerations.exact)
    worst = int(np.argmax(np.nan_to_num(accelerations.float32, nan=np.inf)))
    error, of_model = accelerations.float32[worst], accelerations.rounded_model[worst]
    grown = _ROUNDING * conditioning.growth[worst]
    said = (
        f"There the mass matrix has condition number {conditioning.mass_matrix[worst]:.1e} (diagonal scaled to 1), and rounding "
        f"errors of {_ROUNDING:.0e} in the equations of motion grow to about {grown:.0e}: "
    )
    if error < 10.0 * _ROUNDING:
        return f"{said}almost no accuracy is lost."
    if of_model > 0.5 * error:
        return f"{said}most of the error comes from rounding the parameters of the model, {of_model:.0e}."
    if error <= 10.0 * grown:
        return f"{said}this explains the error."
    return f"{said}{'the loops' if system.constraints else 'sums along the chain'} add larger errors."


def _advice(kept: float) -> str:
    if kept >= 4.0:
        return f"Use float32 where {math.floor(kept)} digits suffice, as in sampling, learning and control; otherwise use float64."
    if kept >= 2.0:
        return f"Use float64; use float32 only where {math.floor(kept)} digits suffice."
    return "Use float64: results in float32 are not meaningful for this mechanism."
