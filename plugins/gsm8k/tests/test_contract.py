"""The environment keeps the contract of the conformance kit."""

from __future__ import annotations

from antiphon.testing import EnvContract, EnvSubject
from antiphon_gsm8k import GSM8KEnv

ROWS = [{"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"} for i in (1, 2, 3)]


class TestGSM8K(EnvContract):
    def make_subject(self) -> EnvSubject:
        return EnvSubject(
            lambda rows: GSM8KEnv(dataset=list(rows), shuffle=False, num_envs=len(rows)),
            ROWS,
            ["#### 2", "#### 5", "none"],
            "gsm8k",
            start=lambda env, rows: env.reset(),
            takes_rows=False,
        )
