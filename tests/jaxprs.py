"""What a traced function consists of, for tests about precision and types."""

from collections.abc import Iterator

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """All equations of a jaxpr, those of loops, branches and nested calls included."""
    for equation in jaxpr.eqns:
        yield equation
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, (tuple, list)) else (parameter,):
                if isinstance(inner, ClosedJaxpr):
                    yield from equations(inner.jaxpr)
                elif isinstance(inner, Jaxpr):
                    yield from equations(inner)
