"""Problems of the benchmark of solvers in CasADi: multiple shooting with the same Runge-Kutta steps, solved by Ipopt.

The script runs in an environment with CasADi and NumPy, without jaxdyn:

    python casadi_control.py PROBLEM GUESSES.npz FOUND.npz ITERATIONS

GUESSES.npz holds states (starts, N + 1, nx), controls (starts, N, nu) and design (starts, 1 or 0) of the initial guesses, the
duration, the initial and the final state, bounds of the controls, and the parameters of the problem. FOUND.npz holds the plans that
Ipopt found, with cost, iterations, success (of Ipopt) and processor time.
"""

import importlib.metadata
import sys
import time

import casadi as ca  # pyright: ignore[reportMissingImports]
import numpy as np


def cart_pole(x, u, p):
    """Rates of the cart-pole of Kelly, appendix E."""
    cart, pole, length, gravity = 1.0, 0.3, 0.5, 9.81
    sine, cosine = ca.sin(x[1]), ca.cos(x[1])
    mass = cart + pole * (1.0 - cosine**2)
    a = (length * pole * sine * x[3] ** 2 + u[0] + pole * gravity * cosine * sine) / mass
    b = -(length * pole * cosine * sine * x[3] ** 2 + u[0] * cosine + (cart + pole) * gravity * sine) / (length * mass)
    return ca.vertcat(x[2], x[3], a, b)


def quadrotor(x, u, p):
    """Rates of the planar quadrotor."""
    mass, arm, inertia, gravity = (float(value) for value in p["quadrotor"])
    lift, turn = (u[0] + u[1]) / mass, arm * (u[0] - u[1]) / inertia
    return ca.vertcat(x[3:], -lift * ca.sin(x[2]), lift * ca.cos(x[2]) - gravity, turn)


def unicycle(x, u, p):
    """Rates of the unicycle."""
    return ca.vertcat(u[0] * ca.cos(x[2]), u[0] * ca.sin(x[2]), u[1])


def integrator(x, u, p):
    """Rates of a unit mass."""
    return ca.vertcat(x[1], u[0])


def chain(x, u, p):
    """Rates of the chain of masses."""
    count, mass, stiffness, length, gravity = (float(value) for value in p["chain"])
    n = 2 * int(count)
    places = ca.horzcat(ca.DM.zeros(2, 1), ca.reshape(x[: n + 2], 2, int(count) + 1))
    tensions = []
    for k in range(int(count) + 1):
        along = places[:, k + 1] - places[:, k]
        tensions.append(stiffness * (1.0 - length / ca.norm_2(along)) * along)
    accelerations = [(tensions[k + 1] - tensions[k]) / mass - ca.DM([0.0, gravity]) for k in range(int(count))]
    return ca.vertcat(x[n + 2 :], u, *accelerations)


def circles(x, u, p):
    """Path constraints of the unicycle, not positive outside of the circles."""
    return ca.vertcat(*(float(r) ** 2 - (x[0] - float(a)) ** 2 - (x[1] - float(b)) ** 2 for a, b, r in p["circles"]))


def squares(u, p):
    """Sum of squares of the controls."""
    return ca.sumsqr(u)


def nothing(x, u, p):
    """No path constraint."""
    return ca.DM.zeros(0, 1)


# rates, running cost, path constraints; a problem without running cost minimizes its duration
PROBLEMS = {
    "cart-pole": (cart_pole, squares, lambda x, u, p: ca.vertcat(x[0] - 2.0, -x[0] - 2.0)),
    "quadrotor": (quadrotor, lambda u, p: ca.sumsqr(u - 0.5 * float(p["quadrotor"][0] * p["quadrotor"][3])), nothing),
    "unicycle": (unicycle, squares, circles),
    "double integrator": (integrator, None, nothing),
    "Bryson-Denham": (integrator, lambda u, p: 0.5 * ca.sumsqr(u), lambda x, u, p: x[0] - 1.0 / 9.0),
    "hanging chain": (chain, squares, nothing),
}


def main(name: str, guesses: str, found: str, iterations: int) -> None:
    p = dict(np.load(guesses))
    rates, cost, path = PROBLEMS[name]
    starts, nodes, nx = p["states"].shape
    steps, nu = nodes - 1, p["controls"].shape[2]
    begin = time.process_time()
    x, u, h = ca.SX.sym("x", nx), ca.SX.sym("u", nu), ca.SX.sym("h")
    a = rates(x, u, p)
    b = rates(x + 0.5 * h * a, u, p)
    c = rates(x + 0.5 * h * b, u, p)
    d = rates(x + h * c, u, p)
    running = h * cost(u, p) if cost else ca.SX.zeros(1)
    step = ca.Function("step", [x, u, h], [x + h / 6.0 * (a + 2.0 * b + 2.0 * c + d), running, path(x, u, p)])
    X, U, T = ca.MX.sym("X", nx, nodes), ca.MX.sym("U", nu, steps), ca.MX.sym("T")
    after, costs, broken = step.map(steps)(X[:, :-1], U, ca.repmat(T / steps, 1, steps))
    g = ca.vertcat(X[:, 0] - p["initial"], ca.vec(X[:, 1:] - after), X[:, -1] - p["target"], ca.vec(broken))
    equations = nx * (nodes + 1)
    program = {"x": ca.vertcat(ca.vec(X), ca.vec(U), T), "f": ca.sum2(costs) if cost else T, "g": g}
    quiet = {"print_level": 0, "sb": "yes", "max_iter": iterations}
    solver = ca.nlpsol("solver", "ipopt", program, {"ipopt": quiet, "print_time": False, "expand": True})
    free = p["design"].shape[1] > 0
    unbounded = np.full(nx * nodes, np.inf)
    low, high = (p["shortest"], p["longest"]) if free else (p["duration"], p["duration"])
    bounds = {
        "lbx": np.concatenate([-unbounded, np.tile(p["lower"], steps), [low]]),
        "ubx": np.concatenate([unbounded, np.tile(p["upper"], steps), [high]]),
        "lbg": np.concatenate([np.zeros(equations), np.full(g.shape[0] - equations, -np.inf)]),
        "ubg": np.zeros(g.shape[0]),
    }

    def solved(k: int):
        duration = p["design"][k, 0] if free else p["duration"]
        initial = np.concatenate([p["states"][k].ravel(), p["controls"][k].ravel(), [duration]])
        answer = solver(x0=initial, **bounds)
        return np.asarray(answer["x"]).ravel(), float(answer["f"]), solver.stats()

    solved(0)
    built = time.process_time()
    answers = [solved(k) for k in range(starts)]
    end = time.process_time()
    z = np.stack([answer[0] for answer in answers])
    np.savez(
        found,
        states=z[:, : nx * nodes].reshape(starts, nodes, nx),
        controls=z[:, nx * nodes : -1].reshape(starts, steps, nu),
        design=z[:, -1:] if free else np.zeros((starts, 0)),
        cost=np.array([answer[1] for answer in answers]),
        iterations=np.array([answer[2]["iter_count"] for answer in answers]),
        success=np.array([answer[2]["success"] for answer in answers]),
        status=np.array([answer[2]["return_status"] for answer in answers]),
        building=built - begin,
        seconds=end - built,
        version=importlib.metadata.version("casadi"),
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
