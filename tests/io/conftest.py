"""What the tests of files share."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def refusal() -> Callable[..., str]:
    """refusal(error, function, *arguments): the message with which a call is refused, which must be one line."""

    def message(error: type[Exception], function: Callable, *arguments: Any, **options: Any) -> str:
        with pytest.raises(error) as caught:
            function(*arguments, **options)
        text = str(caught.value)
        assert len(text.splitlines()) == 1
        return text

    return message
