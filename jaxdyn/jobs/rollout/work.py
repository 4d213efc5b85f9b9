"""The job `jaxdyn rollout`: thousands of rollouts of one mechanism at once.

The batch is simulated in chunks on all devices; each chunk is written to disk before the next one begins. Any number of processes
divide the chunks among themselves.
"""

import contextlib
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float
from tqdm import tqdm

import jaxdyn.compute as compute
from jaxdyn.compute import stored_jit
from jaxdyn.compute.announcements import announced_as
from jaxdyn.compute.devices import divided, rounded_up, whole
from jaxdyn.dynamics.contact.points import contact_forces, contact_names
from jaxdyn.dynamics.energy import kinetic_energy
from jaxdyn.dynamics.system import System
from jaxdyn.identify.measurement import Inputs
from jaxdyn.identify.posterior import Posterior, posterior
from jaxdyn.io.archive.plant import holds_plant, load_plant
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.limits import with_limits
from jaxdyn.io.runs.directory import Chunks, RunDirectory
from jaxdyn.io.system_file import files_of
from jaxdyn.jobs.hosts import mesh_of
from jaxdyn.jobs.integrators import INTEGRATORS
from jaxdyn.jobs.pictures import draw_pictures
from jaxdyn.jobs.rollout.config import RolloutConfig
from jaxdyn.jobs.rollout.contacts import ARRAYS, contact_lines, contact_metrics, contact_summary
from jaxdyn.jobs.rollout.replay import load_replay
from jaxdyn.jobs.rollout.samples import Machines, SamplePlan, SampleProgress, controls_of_samples, record, sample_source
from jaxdyn.jobs.source import load
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import as_dtype
from jaxdyn.simulate.controls import Controls, Policy
from jaxdyn.simulate.diagnostics import output, output_columns, power_balance_error, work_of_step
from jaxdyn.simulate.outcome import RolloutResult
from jaxdyn.simulate.trajectory import rollout

# Values per body and sample that XLA stores temporarily in a step; the lane compiler needs almost none.
_WORKING_NUMBERS = 400
# Bytes that the samples of a chunk need together, if the config does not state their count.
_CHUNK = 4e9
_DRIVES = "system.drives."  # beginning of the paths of parameters of drives
# Error of the power balance, in percent of the energy turned over, up to which no remedy is named.
_SMALL_ERROR = 1.0


def work(config: RolloutConfig, directory: RunDirectory) -> dict[str, Any] | None:
    """Run the rollouts of a config; returns their metrics, or None if another process completes the run."""
    machines = _machines(config)
    system, inputs = machines.system, machines.inputs
    _check_outputs(config, system)
    each, mesh = _bytes_per_sample(config, system), mesh_of(config.devices)
    chunk = min(config.batch, config.chunk or max(1, int(_CHUNK // each)))
    simulate = _Simulator(config, machines, min(chunk, rounded_up(mesh, 1) * int(config.memory // each)), mesh)
    chunks = np.split(np.arange(config.batch), range(chunk, config.batch, chunk))
    files = Chunks(directory, "states", len(chunks))

    def done() -> int:
        return config.steps * sum(len(chunks[k]) for k in range(len(chunks)) if files.exists(k))

    with contextlib.ExitStack() as stack:

        @functools.cache
        def begun() -> tqdm:
            """Keep the mechanism and show the progress, once samples are prepared: a config may be refused until then."""
            directory.write_mechanism(system)
            total = config.batch * config.steps
            return stack.enter_context(tqdm(total=total, initial=done(), unit="step", unit_scale=True, desc="rollouts"))

        def computed(k: int) -> dict[str, np.ndarray]:
            parts = []
            for indices in np.split(chunks[k], range(simulate.size, len(chunks[k]), simulate.size)):
                prepared = simulate.prepared(indices)
                bar = begun()
                bar.n = max(bar.n, done())
                parts.append(simulate(*prepared, len(indices), bar))
            return {
                name: parts[0][name] if name == "time" else np.concatenate([part[name] for part in parts])
                for name in parts[0]
            }

        if not files.fill(computed):
            return None
        begun()
    names = ("energy", "work", "result", "largest_kinetic")
    names += ("time", *ARRAYS) if contact_names(system) else ()
    summaries = [_summary(files.read(k, names)) for k in range(len(chunks))]
    samples = {name: np.concatenate([part[name] for part in summaries]) for name in summaries[0]}
    metrics = _metrics(config, samples, simulate) | {"chunks": len(chunks)}
    if contact_names(system):
        metrics |= contact_metrics(system, samples, samples["result"] == RolloutResult.SUCCESSFUL)
    if inputs is not None:
        metrics["inputs"] = vars(inputs)
    if machines.posterior is not None:
        metrics["parameters"] = [" ".join(label) for label in machines.posterior.estimates.labels]
    if config.outputs:
        metrics["outputs"] = {name: output_columns(system, name) for name in config.outputs}
    _report(metrics, inputs)
    if config.pictures:
        metrics["pictures"] = draw_pictures("jaxdyn.jobs.rollout.pictures:draw", system, files.read(0), directory)
    return metrics


def _check_outputs(config: RolloutConfig, system: System) -> None:
    state = system.at_rest(configuration.neutral(system.model))
    for name in config.outputs:
        try:
            jax.eval_shape(lambda state, name=name: output(system, state, name), state)
        except ValueError as error:
            raise ConfigError(f"outputs: {error}") from None


def _bytes_per_sample(config: RolloutConfig, system: System) -> float:
    """Memory that the simulation of a sample needs, B.

    Raises:
        ConfigError: One sample does not fit into memory.
    """
    model = system.model
    contacts = len(contact_names(system))
    state = model.nq + model.nv + system.nz + 2 + len(ARRAYS) * contacts
    knots = config.time.duration / config.control.random_interval + 2
    state += sum(len(output_columns(system, name)) for name in config.outputs)
    # Records are stored twice while they are sorted, and so are the inputs of the samples.
    numbers = 2 * (config.records + 1) * state + 2 * (knots * model.nv + 2 * state) + _WORKING_NUMBERS * model.nb
    numbers += config.time.save_every * contacts
    each = numbers * np.dtype(config.dtype).itemsize
    if each > config.memory:
        raise ConfigError(
            f"memory = {config.memory:.3g} B is not enough for one sample of {each:.3g} B; raise memory or time.save_every"
        )
    return each


class _Simulator:
    """Simulates samples from start to end; the functions are compiled with the first samples.

    Attributes:
        size: Number of samples that are simulated at once.
        compile_s, run_s: Times for compilation and simulation, s.
        made: Number of simulated steps.
        backends: Backends that ran the simulation.
    """

    def __init__(self, config: RolloutConfig, machines: Machines, count: int, mesh: Mesh | None):
        self.config, self.mesh = config, mesh
        self.size = rounded_up(mesh, count)
        replay = load_replay(config, machines.system)
        self.source = sample_source(config, machines, replay)
        driven = controls_of_samples(config, machines, replay)
        self.stretch = stored_jit(jax.vmap(_stretch(config, machines, driven), in_axes=(0, 0, None)))
        self.compile_s, self.run_s, self.made = 0.0, 0.0, 0
        self.backends: set[str] = set()
        self.advance: Any = None

    @announced_as("the rollouts")
    def prepared(self, indices: np.ndarray) -> tuple[SamplePlan, SampleProgress, dict[str, Array]]:
        """The samples with these indices in their initial states, on their devices, and the records of these states."""
        # The last sample is repeated to fill up the devices.
        filled = np.concatenate([indices, np.full(self.size - len(indices), indices[-1])])
        *batch, first = self.source(filled)
        plans, samples = divided(self.mesh, tuple(batch))
        if self.advance is None:
            start = time.perf_counter()
            self.advance = self.stretch.prepared(samples, plans, np.zeros((), self.config.dtype))
            self.compile_s = time.perf_counter() - start
        return plans, samples, first

    def __call__(
        self, plans: SamplePlan, samples: SampleProgress, first: dict[str, Array], count: int, bar: tqdm
    ) -> dict[str, np.ndarray]:
        """Simulate these samples; returns the records of the first `count` of them."""
        interval = self.config.time.save_every / self.config.time.rate
        start = time.perf_counter()
        history = [{name: np.asarray(values)[:count] for name, values in first.items()}]
        for k in range(self.config.records):
            t0 = np.asarray(k * interval, self.config.dtype)
            (samples, passed), served = self.advance(samples, plans, t0)
            self.backends.add(served.backend)
            history.append(self._kept(passed, count))  # waits for the device
            bar.update(count * self.config.time.save_every)
        self.run_s += time.perf_counter() - start
        arrays = {name: np.stack([h[name] for h in history], axis=1) for name in history[0]}
        if plans.parameters is not None:
            arrays |= self._kept({"parameters": plans.parameters}, count)
        arrays["time"] = np.arange(self.config.records + 1) * interval
        arrays |= self._kept({name: getattr(samples, name) for name in ("result", "steps", "largest_kinetic")}, count)
        self.made += int(arrays["steps"].sum())
        return arrays

    def _kept(self, batch: dict[str, Array], count: int) -> dict[str, np.ndarray]:
        found = whole(self.mesh, batch)  # dividing sorts the names; files keep their order on any number of devices
        return {name: np.asarray(found[name])[:count] for name in batch}


def _stretch(
    config: RolloutConfig, machines: Machines, driven: Callable[[SamplePlan], Policy | Controls]
) -> Callable[..., tuple[Any, compute.Served]]:
    """Function that simulates one sample from one record to the next; the state of a sample that has ended is not changed."""
    time, has_contacts = config.time, bool(contact_names(machines.system))

    def stretch(sample: SampleProgress, plan: SamplePlan, t0: Float[Array, ""]):
        system = machines.of(plan.parameters)[0]

        def depths(t, state, u):
            return contact_forces(system, state, t).depth if has_contacts else None

        trajectory = rollout(
            system,
            sample.state,
            driven(plan),
            dt=1.0 / time.rate,
            steps=time.save_every,
            integrator=INTEGRATORS[time.integrator],
            substeps=time.substeps,
            # Depths are recorded after every step, because a short penetration lies between the records of the run.
            save_every=1 if has_contacts else time.save_every,
            save=depths,
            cost=work_of_step(system),
            t0=t0,
        )
        final = trajectory.final
        after = SampleProgress(
            final,
            sample.work + trajectory.cost,
            jnp.maximum(sample.largest_kinetic, kinetic_energy(system.model, final.q, final.v)),
            trajectory.result,
            sample.steps + trajectory.steps,
        )
        running = sample.result == RolloutResult.SUCCESSFUL
        sample = jax.tree.map(lambda new, old: jnp.where(running, new, old), after, sample)
        end = t0 + time.save_every / time.rate
        return sample, record(system, config.outputs, sample, end, trajectory.saved)

    def served(*arguments):
        found, backend = compute.run(stretch, arguments, name="rollout")
        return found, compute.Served(backend)

    return served


def _machines(config: RolloutConfig) -> Machines:
    """The system of a config, the inputs through which its controls act if the mechanism is a plant, and the spread of machines.

    Raises:
        ConfigError: The machines shall be spread, but the mechanism has no estimates.
    """
    path, inputs = config.mechanism, None
    # Exact files and plants are in double precision; other files are read in the precision of the computations.
    exact = path.is_dir() or holds_plant(path) or path.suffix in (".json", ".npz")
    with jax.enable_x64(exact or config.dtype == "float64"):
        if holds_plant(path):
            inputs = load_plant(path).inputs
        options = {"repair": config.repair, "contact": config.contact, "ignore": config.ignore}
        read = load(path, base=config.base, quiet=inputs is not None, **options)
    if read.contact_text():
        print(f"contacts: {read.contact_text()}")
    loaded = with_limits(as_dtype(read, config.dtype), config.limits)
    drives = None if config.control.replay is None else loaded.drives
    if loaded.drives is not drives:
        dropped = "drives are" if inputs is None else "drives and inputs are"
        print(f"{config.mechanism}: its {dropped} not used because joint-space PD control acts on every joint")
        inputs = None
    if inputs is not None:
        print(
            f"{config.mechanism}: controls act through its inputs: {inputs.in_words or 'gain 1, no offset, no delay'}"
        )
    system = loaded.changed(
        drives=drives,
        method=config.method or loaded.method,
        stabilization=loaded.stabilization if config.stabilization is None else config.stabilization,
    )
    distribution = _posterior(config, system) if config.spread == "posterior" else None
    return as_dtype(Machines(system, inputs, distribution), config.dtype)


def _posterior(config: RolloutConfig, system: System) -> Posterior:
    """The distribution of the machines about the system of the rollouts, which may have other forces and drives than the plant."""
    if not holds_plant(config.mechanism):
        raise ConfigError(
            f'spread = "posterior": {config.mechanism} has no estimates; give the directory of a run of jaxdyn identify'
        )
    with jax.enable_x64(True):
        plant = load_plant(config.mechanism)
        known = plant.estimates
        if known is not None and system.drives is None:
            for path in (path for address in known.addresses for path in address.paths if path.startswith(_DRIVES)):
                known = known.without(path)
        try:
            found = posterior(plant._changed(estimates=known))
        except ValueError as error:
            raise ConfigError(f'{config.mechanism}: spread = "posterior": {error}') from None
    return eqx.tree_at(lambda p: p.plant.system, found, system)


def inputs(config: RolloutConfig) -> list[tuple[str, Path]]:
    """The files that the rollouts of a config read."""
    plan = [] if config.control.replay is None else [("plan", config.control.replay)]
    return [*(("mechanism", file) for file in files_of(config.mechanism)), *plan]


def _summary(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One value per sample for each of the metrics."""
    energy, work = arrays["energy"].astype(np.float64), arrays["work"].astype(np.float64)
    error = np.abs(power_balance_error(energy, work[:, -1]))
    # Work and change of energy; without both, gravity and springs still exchange energy with the motion.
    turnover = np.sum(np.abs(np.diff(work, axis=1)), axis=1) + np.abs(energy[:, -1] - energy[:, 0])
    turnover = np.maximum(turnover, arrays["largest_kinetic"])
    return {
        "result": arrays["result"],
        "initial": energy[:, 0],
        "final": energy[:, -1],
        "work": work[:, -1],
        "error": error,
        "relative": error / np.maximum(turnover, np.finfo(np.float64).tiny),
        **(contact_summary(arrays) if "contact_depth" in arrays else {}),
    }


def _metrics(config: RolloutConfig, samples: dict[str, np.ndarray], simulate: _Simulator) -> dict[str, Any]:
    done = samples["result"] == RolloutResult.SUCCESSFUL

    def of_completed(summarize: Callable, name: str) -> float | None:
        return float(summarize(samples[name][done])) if done.any() else None

    return {
        **{name: getattr(config, name) for name in ("batch", "steps", "dtype", "seed", "most_failed")},
        "compile_s": simulate.compile_s,
        "run_s": simulate.run_s,
        "steps_per_s": simulate.made / simulate.run_s if simulate.made else None,
        "backend": ", ".join(simulate.backends) or None,
        "samples": {code.name.lower(): int(np.sum(samples["result"] == code)) for code in RolloutResult},
        "energy_initial_mean_J": of_completed(np.mean, "initial"),
        "energy_final_mean_J": of_completed(np.mean, "final"),
        "work_mean_J": of_completed(np.mean, "work"),
        "power_balance_error_median_J": of_completed(np.median, "error"),
        "power_balance_error_max_J": of_completed(np.max, "error"),
        "power_balance_error_relative_median": of_completed(np.median, "relative"),
    }


def _report(metrics: dict[str, Any], inputs: Inputs | None) -> None:
    counts = {code: metrics["samples"][code.name.lower()] for code in RolloutResult}
    if metrics["steps_per_s"] is None:
        print("all chunks had been computed before")
    else:
        speed = f"{metrics['steps_per_s']:,.0f} steps/s"
        print(f"{metrics['backend']}: compile {metrics['compile_s']:.1f} s, run {metrics['run_s']:.1f} s, {speed}")
    print(f"samples: {', '.join(f'{count} {code.words}' for code, count in counts.items() if count)}")
    if inputs is not None:
        print(f"controls acted through the inputs of the plant: {inputs.in_words or 'gain 1, no offset, no delay'}")
    if metrics["power_balance_error_median_J"] is not None:
        share = 100 * metrics["power_balance_error_relative_median"]
        remedy = "a larger time.substeps decreases it"
        if "contact_deepest_m" in metrics:
            # The final energy hardly depends on the steps of an impact, but the sum of its work does.
            remedy = (
                "the work of impacts is summed coarsely over the steps, and a larger time.rate decreases this error"
            )
        print(
            f"power balance error: median {metrics['power_balance_error_median_J']:.2g} J, "
            f"{share:.2g} % of the energy turned over{f'; {remedy}' if share > _SMALL_ERROR else ''}"
        )
    for line in contact_lines(metrics):
        print(line)
    for code, count in counts.items():
        if code is not RolloutResult.SUCCESSFUL and count:
            print(f"  {code.name.lower()}: {code.message}")


def verdict(metrics: dict[str, Any]) -> str | None:
    """Reason why the results are unreliable: more samples failed than the config allows; None if there is no reason."""
    counts = metrics.get("samples", {})
    failed = sum(counts.get(code.name.lower(), 0) for code in RolloutResult if not code.successful)
    if not counts or failed <= metrics["most_failed"] * metrics["batch"]:
        return None
    return (
        f"{failed} of {metrics['batch']} samples failed, a larger fraction than most_failed = {metrics['most_failed']:g} in the "
        "config; see the messages above"
    )
