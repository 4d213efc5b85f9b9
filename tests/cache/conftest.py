"""Rules that a test registers end with it."""

import jax
import pytest

from jaxdyn.cache.fingerprint import EXTENSIONS
from jaxdyn.lanes.flatten import RULES


@pytest.fixture
def extensions():
    usual = dict(RULES)
    yield EXTENSIONS
    RULES.update(usual)
    EXTENSIONS.clear()
    jax.clear_caches()
