"""The guide to environments: its code runs, and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "environments.md"


def test_the_guides_code_prints_what_it_says() -> None:
    if not GUIDE.exists():
        pytest.skip(f"{GUIDE} is not there: the tests run outside of the repository")
    pytest.importorskip("mcp", reason="the guide's MCP server needs the mcp package")
    names: dict[str, Any] = {"__name__": "guide"}
    said, shown = "", []
    for kind, block in re.findall(
        r"^```(python)?\n(.*?)^```$", GUIDE.read_text("utf-8"), re.M | re.S
    ):
        if kind:
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(block, str(GUIDE), "exec"), names)
            said += output.getvalue()
        else:
            shown.append(block)
    assert said == "".join(shown)
    assert len(shown) == 6
