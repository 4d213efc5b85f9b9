"""Sweeps over the tree against the loops that they replace, and the incidence matrix of the topology."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from random_trees import close, random_parents, random_unit

from jaxdyn import Prismatic, Revolute, UnknownName
from jaxdyn.compute import sweeps
from jaxdyn.compute.hints import written_out
from jaxdyn.mechanism import tree
from jaxdyn.mechanism.topology import Topology
from jaxdyn.spatial.transform import RigidTransform

PARENTS = {
    "one body": [-1],
    "chain": [-1, 0, 1, 2, 3, 4, 5],
    "star": [-1, 0, 0, 0, 0],
    "bodies on the ground": [-1, -1, -1],
    "two roots": [-1, 0, -1, 2, 2, 1, 4],
    "random": random_parents(np.random.default_rng(0), 13),
    "deep": [-1, *range(10)],
    "chains": [-1, 0, 1, 2, 3, 1, 5, 6, 7, 6, 9, 10],
}


def topology_of(parents, classes=None) -> Topology:
    names = tuple(str(i) for i in range(len(parents)))
    classes = (Revolute,) * len(parents) if classes is None else tuple(classes)
    groups = tuple(list(dict.fromkeys(classes)).index(kind) for kind in classes)
    return Topology("tree", names, names, tuple(parents), classes, groups)


@pytest.fixture(params=PARENTS)
def parents(request):
    return PARENTS[request.param]


@pytest.fixture(params=["scalar program", "loops", "XLA"])
def target(request, monkeypatch):
    """Computes by the form for scalar programs, by the one with loops along chains, then by the one for XLA."""
    if request.param == "loops":
        monkeypatch.setattr(sweeps, "_LONGEST_WRITTEN_OUT", 0)
        monkeypatch.setattr(sweeps, "_SHORTEST_LOOP", 3)
    with contextlib.nullcontext() if request.param == "XLA" else written_out():
        yield request.param


def path(parents, i) -> list[int]:
    """Bodies from i to its root."""
    return [i, *(path(parents, parents[i]) if parents[i] >= 0 else [])]


def test_incidence_matrix_says_who_precedes_whom(parents):
    topology = topology_of(parents)
    expected = [[k in path(parents, i) for i in range(len(parents))] for k in range(len(parents))]
    assert np.array_equal(topology.precedes, expected)
    assert np.array_equal(topology.column_moves_body, expected)  # one column per body
    assert np.array_equal(topology.column_precedes, expected)
    assert np.array_equal(topology.roots, [path(parents, i)[-1] for i in range(len(parents))])


@pytest.mark.usefixtures("target")
def test_placements_are_composed_along_the_path_from_the_root(parents):
    rng = np.random.default_rng(1)
    n = len(parents)
    quaternions = [random_unit(rng, 4) * rng.uniform(0.5, 2.0) for _ in range(n)]  # of any norm
    local = RigidTransform(jnp.asarray(quaternions), jnp.asarray(rng.normal(size=(n, 3))))
    composed = tree.compose_along_paths(topology_of(parents), local)
    one_by_one = []
    for i, parent in enumerate(parents):
        own = jax.tree.map(lambda x: x[i], local)  # noqa: B023
        one_by_one.append(own if parent < 0 else one_by_one[parent].compose(own))
    close(composed.quaternion, jnp.stack([x.quaternion for x in one_by_one]))
    close(composed.translation, jnp.stack([x.translation for x in one_by_one]))


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("at", first(1, ["rest", "random"]))
def test_derivatives_of_placements_are_those_of_compositions_body_by_body(at):
    """First and second derivatives, also where all rotations are identities and all translations zero."""
    topology, rng = topology_of(PARENTS["two roots"]), np.random.default_rng(3)
    n = topology.nb
    at_rest = np.hstack([np.tile([1.0, 0, 0, 0], (n, 1)), np.zeros((n, 3))])
    local = jnp.asarray(at_rest if at == "rest" else rng.normal(size=(n, 7)))
    weights, direction = rng.normal(size=(2, n, 7))

    def derivatives(compose):
        def weighted(x):
            placed = compose(topology, RigidTransform(x[:, :4], x[:, 4:]))
            return jnp.sum(weights * jnp.concatenate([placed.quaternion, placed.translation], axis=1) ** 2)

        return jax.jit(lambda x: jax.jvp(jax.grad(weighted), (x,), (direction,)))(local)

    def one_by_one(topology, local):
        placed = []
        for i, parent in enumerate(topology.parents):
            own = jax.tree.map(lambda x: x[i], local)  # noqa: B023
            placed.append(own if parent < 0 else placed[parent].compose(own))
        return jax.tree.map(lambda *parts: jnp.stack(parts), *placed)

    for found, expected in zip(*map(derivatives, (tree.compose_along_paths, one_by_one)), strict=True):
        close(found, expected)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("rest", [(), (2, 3)])
def test_sums_over_ancestors_and_descendants_are_those_over_paths_and_subtrees(parents, rest):
    n = len(parents)
    x = np.random.default_rng(2).normal(size=(n, *rest))
    above = [sum(x[k] for k in path(parents, i)) for i in range(n)]
    below = [sum(x[i] for i in range(n) if k in path(parents, i)) for k in range(n)]
    topology = topology_of(parents)
    sums = tree.sum_over_ancestors, tree.sum_over_columns, tree.sum_over_descendants
    found = jax.jit(lambda x: [add(topology, x) for add in sums])(x)
    for actual, expected in zip(found, (above, above, below), strict=True):  # one column per body
        close(actual, np.array(expected))


@pytest.mark.usefixtures("target")
def test_sum_over_columns_counts_every_column_of_a_joint():
    class Two(Revolute):
        nq = nv = 2

    topology = topology_of([-1, 0, 0], [Two, Revolute, Two])
    x = jnp.arange(1.0, 6.0)  # columns 0, 1 of body 0; column 2 of body 1; columns 3, 4 of body 2
    assert np.array_equal(tree.sum_over_columns(topology, x), [1 + 2, 1 + 2 + 3, 1 + 2 + 4 + 5])


def test_recursion_to_the_leaves_visits_parents_first(parents, target):
    n = len(parents)
    data = np.random.default_rng(3).normal(size=(n, 2))

    def visit(parent, own):
        """A step that does not commute, so that a wrong order would show."""
        return {"x": 0.5 * parent["x"] ** 2 + own}

    ground = {"x": jnp.array([0.3, -0.7])}
    actual = sweeps.from_root_to_leaves(parents, visit, jnp.asarray(data), ground, looped=target == "loops")["x"]
    expected = []
    for i, parent in enumerate(parents):
        above = ground["x"] if parent < 0 else expected[parent]
        expected.append(0.5 * np.asarray(above) ** 2 + data[i])
    close(actual, np.array(expected), scale=float(np.max(np.abs(expected))))


def test_recursion_to_the_root_visits_children_first_and_adds_their_messages(parents, target):
    n = len(parents)
    own, data = np.random.default_rng(4).normal(size=(2, n, 2))

    def visit(x, item):
        return np.sin(1.0) * x * item, x + item  # message, result

    actual = sweeps.from_leaves_to_root(parents, visit, jnp.asarray(own), jnp.asarray(data), looped=target == "loops")
    x, expected = own.copy(), [None] * n
    for i in reversed(range(n)):
        message, expected[i] = visit(x[i], data[i])
        if parents[i] >= 0:
            x[parents[i]] += message
    close(actual, np.array(expected))


def test_topologies_of_equal_structure_are_equal_and_hash_equally():
    one, same = topology_of([-1, 0]), topology_of([-1, 0])
    assert one == same
    assert hash(one) == hash(same)
    _ = one.precedes  # what is cached on a topology takes no part in comparing it
    assert one == same
    assert hash(one) == hash(same)
    assert one != topology_of([-1, -1])
    assert one != topology_of([-1, 0], [Revolute, Prismatic])


def test_coordinates_and_columns_are_counted_by_joint():
    class Ball(Revolute):
        nq, nv = 4, 3

    topology = topology_of([-1, 0, 1, 0], [Revolute, Ball, Prismatic, Ball])
    assert (topology.nb, topology.nq, topology.nv) == (4, 10, 8)
    assert topology.q_starts.tolist() == [0, 1, 5, 6]
    assert topology.v_starts.tolist() == [0, 1, 4, 5]
    assert topology.body_of_column.tolist() == [0, 1, 1, 1, 2, 3, 3, 3]
    assert {kind: bodies.tolist() for kind, bodies in topology.groups} == {Revolute: [0], Ball: [1, 3], Prismatic: [2]}


def test_a_body_that_does_not_exist_is_named_with_those_that_do():
    topology = topology_of([-1, 0])
    assert topology.body_index("ground") == -1
    assert topology.body_index("1") == 1
    with pytest.raises(UnknownName, match="no body or frame 'elbow'; use one of ground, 0, 1"):
        topology.body_index("elbow")
