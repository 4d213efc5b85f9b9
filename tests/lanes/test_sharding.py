"""A batch that is divided over devices stays divided, and no bit of the results depends on it."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json
import equinox, jax, jax.numpy as jnp, numpy as np
import jaxdyn
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

model = jaxdyn.library.double_pendulum()
system = jaxdyn.System(model)
mesh = Mesh(np.array(jax.devices()), ("lanes",))
over_lanes = NamedSharding(mesh, P("lanes"))
q = 0.3 * jax.random.normal(jax.random.key(0), (64, 2))
u = 0.1 * jax.random.normal(jax.random.key(1), (64, 20, 2))

def end(model, q, u):
    moved = jaxdyn.System(model)
    return jaxdyn.rollout(moved, jaxdyn.State(q, q), u, dt=1e-2, steps=20, save_every=20, backend="lanes").final.q

def loss(model, q, u):
    return jnp.sum(jax.vmap(end, (None, 0, 0))(model, q, u) ** 2)

calls = {
    "value": jax.jit(jax.vmap(lambda q, u: end(model, q, u))),
    "gradient": jax.jit(jax.grad(lambda q, u: loss(model, q, u), (0, 1))),
    "jvp": jax.jit(lambda q, u: jax.jvp(jax.vmap(lambda q, u: end(model, q, u)), (q, u), (q, u))),
}
report = {"devices": len(jax.devices())}
for name, call in calls.items():
    whole = call(q, u)
    parts = call(jax.device_put(q, over_lanes), jax.device_put(u, over_lanes))
    text = call.lower(jax.device_put(q, over_lanes), jax.device_put(u, over_lanes)).compile().as_text()
    leaves = list(zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True))
    report[name] = {
        "equal": all(bool((a == b).all()) for a, b in leaves),
        "divided": all(b.sharding.is_equivalent_to(over_lanes, b.ndim) for _, b in leaves),
        "gathered": "all-gather" in text,
    }
by_mass = jax.jit(jax.grad(lambda mass, q, u: loss(equinox.tree_at(lambda m: m.mass, model, mass), q, u)))
whole, parts = by_mass(model.mass, q, u), by_mass(model.mass, *(jax.device_put(x, over_lanes) for x in (q, u)))
report["shared"] = float(jnp.max(jnp.abs(whole - parts)) / jnp.max(jnp.abs(whole)))

def weighted(w, x):
    return jaxdyn.batched(lambda w, x: jnp.sin(x * w) * x, (None, 0), backend="lanes")(w, x)

def total(function):
    return lambda w, x: jnp.sum(jax.shard_map(function, mesh=mesh, in_specs=(P(), P("lanes")), out_specs=P("lanes"))(w, x))

x = jnp.arange(8.0)
found, expected = (jax.jit(jax.grad(total(f), (0, 1)))(0.3, x) for f in (weighted, lambda w, x: jnp.sin(x * w) * x))
report["mapped"] = max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(found, expected, strict=True))
print(json.dumps(report))
"""


@pytest.mark.thorough
def test_four_devices_give_the_bits_of_one_and_gather_nothing():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report.pop("devices") == 4
    # The sum over the lanes of a shared argument is taken in another order.
    assert report.pop("shared") < 1e-5
    assert report.pop("mapped") < 1e-4  # a gradient of about ten, in single precision
    assert report == {name: {"equal": True, "divided": True, "gathered": False} for name in report}
    assert len(report) == 3
