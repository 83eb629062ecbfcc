"""The environment keeps the contract of the conformance kit."""

from __future__ import annotations

import sys

import pytest
from antiphon.testing import EnvContract, EnvSubject
from antiphon_ifeval import IFEvalEnv

if sys.version_info < (3, 11):
    pytest.skip("if-verifiable has no release for Python 3.10", allow_module_level=True)

NO_COMMA = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [None]}
ROWS = [{"prompt": f"Name {name} rivers.", "key": name, **NO_COMMA} for name in ("two", "ten")]


class TestIFEval(EnvContract):
    def make_subject(self) -> EnvSubject:
        return EnvSubject(
            lambda rows: IFEvalEnv(dataset=list(rows), shuffle=False, num_envs=len(rows)),
            ROWS,
            ["Rhine and Elbe", "Rhine, Elbe"],
            "ifeval",
            start=lambda env, rows: env.reset(),
            takes_rows=False,
        )
