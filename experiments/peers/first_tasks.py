"""The tasks of `first_result.py`: lines that prepare, and a function `result` whose calls are timed."""

_JAXDYN = """
import jax, jax.numpy as jnp, jaxdyn
"""

_MECHANISM = """
import sys
sys.path.insert(0, "experiments")
from peers.mechanisms import mechanism
model = mechanism("{name}", "float32")
q, v = 0.1 * jnp.ones(model.nq), jnp.zeros(model.nv)
"""

_DYNAMICS = {
    "forward dynamics": "result = lambda: jaxdyn.forward_dynamics(model, q, v, v)",
    "rollout": """
system, batch = jaxdyn.System(model), jnp.tile(q, (1024, 1))
move = jax.jit(jax.vmap(lambda q: jaxdyn.rollout(system, jaxdyn.State(q, v), dt=1e-3, steps=100, save_every=100).final.q))
result = lambda: move(batch)
""",
    "rollout gradient": """
system, batch = jaxdyn.System(model), jnp.tile(q, (1024, 1))
def loss(q):
    return jnp.sum(jaxdyn.rollout(system, jaxdyn.State(q, v), dt=1e-3, steps=100, save_every=100).final.q ** 2)
slope = jax.jit(jax.vmap(jax.grad(loss)))
result = lambda: slope(batch)
""",
}

TASKS = {
    "import": "import jaxdyn\nresult = lambda: None",
    "jax alone": "import jax, equinox, optax\nresult = lambda: None",
    "mass_matrix": _JAXDYN
    + "model = jaxdyn.library.panda()\nresult = lambda: jaxdyn.mass_matrix(model, jnp.zeros(model.nq))",
    "README": """
import contextlib, io, re, pathlib
text = pathlib.Path("README.md").read_text()
example = re.search(r"```python\\n(.*?)```", text, re.S).group(1)
def result():
    with contextlib.redirect_stdout(io.StringIO()):
        exec(example, {"__name__": "example"})
""",
    **{
        f"{task}, {name}": _JAXDYN + _MECHANISM.format(name=name) + code
        for name in ("chain 7", "tree 27", "chain 64")
        for task, code in _DYNAMICS.items()
    },
    "training step of a network policy": _JAXDYN
    + """
import equinox as eqx, optax
system = jaxdyn.as_dtype(jaxdyn.System(jaxdyn.library.panda()), jnp.float32)
network = eqx.nn.MLP(14, 7, 64, 2, jnp.tanh, dtype=jnp.float32, key=jax.random.key(0))
q, optimizer = 0.1 * jax.random.normal(jax.random.key(1), (1024, 7)), optax.adam(1e-3)
def loss(network, q):
    policy = lambda t, state, key: network(jnp.concatenate([state.q, state.v]))
    start = jaxdyn.State(q, jnp.zeros(7, jnp.float32))
    return jnp.sum(jaxdyn.rollout(system, start, policy, dt=1e-3, steps=100, save_every=100).final.q ** 2)
@eqx.filter_jit
def step(network, optimizer_state):
    slope = eqx.filter_grad(lambda network: jnp.mean(jax.vmap(lambda q: loss(network, q))(q)))(network)
    updates, optimizer_state = optimizer.update(slope, optimizer_state)
    return eqx.apply_updates(network, updates), optimizer_state
def result():
    trained, _ = step(network, optimizer.init(eqx.filter(network, eqx.is_array)))
    return jax.tree.leaves(eqx.filter(trained, eqx.is_array))
""",
    "four-bar with reactions": _JAXDYN
    + """
system = jaxdyn.library.four_bar()
q = jaxdyn.assemble(system, system.at_rest(jnp.zeros(system.model.nq))).q
state = jaxdyn.State(q, jnp.zeros(system.model.nv))
result = lambda: jax.tree.leaves(jaxdyn.loop_reactions(system, state))
""",
    "reach of a Panda arm": _JAXDYN
    + """
from jaxdyn import control
jax.config.update("jax_enable_x64", True)
system = jaxdyn.System(jaxdyn.library.panda())
start = jaxdyn.State(jnp.array([0.0, -0.5, 0.0, -2.0, 0.0, 1.5, 0.5]), jnp.zeros(7))
there = jaxdyn.frame_placement(system.model, jnp.array([0.8, 0.2, 0.3, -1.6, 0.2, 2.0, 0.785]), "link7")
problem = control.ControlProblem(
    control.MultibodyDynamics(system),
    start,
    duration=1.0,
    steps=50,
    running=(control.Effort(1e-3), control.Deviation(start, 1e-2 * jnp.ones(14))),
    final=(control.FramePose("link7", there, 1e3, 1e2), control.Deviation(start, jnp.repeat(jnp.array([0.0, 10.0]), 7))),
    lower=-system.model.limits.effort,
    upper=system.model.limits.effort,
)
result = lambda: control.solve(problem, control.MultipleShooting()).cost
""",
    "variational rollout": _JAXDYN
    + """
system = jaxdyn.System(jaxdyn.library.double_pendulum())
state = jaxdyn.State(jnp.ones(2), jnp.zeros(2))
result = lambda: jaxdyn.rollout(system, state, dt=1e-3, steps=1000, integrator=jaxdyn.Variational()).final.q
""",
}

# This command needs a recording, whose folder is given.
PANDA = "jaxdyn identify panda"

COMMANDS = {
    "jaxdyn --help": "--help",
    "jaxdyn rollout panda": "rollout configs/panda_rollouts.toml",
    "jaxdyn identify synthetic arm": "identify configs/identify_synthetic_arm.toml",
    PANDA: "identify configs/identify_panda.toml",
    "jaxdyn optimize P1": "optimize configs/optimize_p1_cartpole.toml",
    "jaxdyn optimize P4": "optimize configs/optimize_p4_double_pendulum.toml",
}

_CHAIN = """
def chain(n):
    opened = "".join(f'<body pos="0 0 {0.3 if k else 0}"><joint axis="{k % 2} {1 - k % 2} 0"/>'
                     '<geom type="capsule" size="0.04" fromto="0 0 0 0 0 0.3" contype="0" conaffinity="0"/>' for k in range(n))
    return f"<mujoco><worldbody>{opened}{'</body>' * n}</worldbody></mujoco>"
"""

PEERS = {
    "MuJoCo: load, 1000 steps": _CHAIN
    + """
import mujoco
def result():
    model = mujoco.MjModel.from_xml_string(chain(7))
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, 1000)
""",
    "MJX: load, 1000 steps": _CHAIN
    + """
import jax, mujoco
from mujoco import mjx
model = mjx.put_model(mujoco.MjModel.from_xml_string(chain(7)))
step = jax.jit(lambda data: jax.lax.fori_loop(0, 1000, lambda k, data: mjx.step(model, data), data))
result = lambda: step(mjx.make_data(model)).qpos
""",
    "Pinocchio: load, forward dynamics": """
import numpy as np, pinocchio
def result():
    model = pinocchio.buildSampleModelManipulator()
    data, zero = model.createData(), np.zeros(model.nv)
    pinocchio.aba(model, data, pinocchio.neutral(model), zero, zero)
""",
}
