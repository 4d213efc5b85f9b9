"""The texts that users and contributors read keep to plain technical English (the list is in `prose.py`)."""

import re

import pytest
from prose import AVOIDED, READ_BY_USERS, occurrences

EXAMPLES = {
    "what": ("What a plan comes out as.", "The outcome of a plan. What is a plan?"),
    "is no": ("This is no real mechanism.", "There is no mechanism, and the old one is no longer used."),
    "none of": ("It is none of a real mechanism.", "No start converged."),
    "number": ("every number is a leaf", "the number of bodies, random numbers and the condition number"),
    "tell": ("The table tells the rate.", "The table states the rate."),
    "anew": ("plans anew", "plans again"),
    "at hand": ("with the data at hand", "with the available data"),
    "by turns": ("They run by turns.", "They alternate."),
    "in vain": ("searched in vain", "searched without success"),
    "comes to": ("It comes to 3 N.", "It comes to rest at 3 s."),
    "goes on": ("The run goes on.", "The run continues."),
    "goes through": ("goes through in chunks", "goes through zero"),
    "by itself": ("closes by itself", "closes automatically"),
    "of its own": ("a folder of its own", "its own folder"),
    "never a": ("a batch of nothing", "an empty batch"),
    "room": ("the rooms below", "the packages below"),
    "definition by a fragment": ("        steps: at most.", "        steps: Maximum number of steps."),
    "British spelling": ("the centre of mass", "the center of mass"),
}


@pytest.mark.parametrize("name", AVOIDED)
def test_an_avoided_wording_is_found_and_the_better_one_is_not(name):
    avoided, better = EXAMPLES[name]
    assert re.search(AVOIDED[name][0], avoided)
    assert not re.search(AVOIDED[name][0], better)


def test_texts_avoid_these_wordings():
    found = occurrences(*READ_BY_USERS)
    assert not found, "\n" + "\n".join(map(str, found))
