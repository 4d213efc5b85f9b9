"""Old public names give the objects of the new ones, with a warning."""

import pkgutil

import pytest

import jaxdyn
from jaxdyn.deprecated import RENAMED


def test_every_old_name_gives_the_object_of_its_new_name_and_warns_each_time():
    for old, new in RENAMED.items():
        package, _, name = old.rpartition(".")
        home, _, current = new.rpartition(".")
        for _ in range(2):
            with pytest.warns(FutureWarning, match=current):
                found = getattr(pkgutil.resolve_name(package), name)
            assert found is getattr(pkgutil.resolve_name(home), current)


def test_old_names_are_not_listed():
    for old in RENAMED:
        package, _, name = old.rpartition(".")
        assert name not in dir(pkgutil.resolve_name(package)), old


def test_a_name_that_never_was_is_an_error():
    with pytest.raises(AttributeError, match="mass_matricks"):
        jaxdyn.mass_matricks  # noqa: B018
