"""ChatEnv's own cost: 64 conversations by 8 turns with a policy that costs nothing.

Run it with torchrl installed beside Antiphon (its tensordict too) to compare in one process; medians of
seconds, by the processor and by the wall.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

ROWS, TURNS, REPEATS = 64, 8, 5


def conversations(env: Any, history: Any, container: Any, tensordict: Any) -> None:
    """Roll out with a policy that appends the same answers each time."""
    answers = history.from_chats(
        [[{"role": "assistant", "content": f"Answer {i}, which is short."}] for i in range(ROWS)]
    )
    root = env.reset(
        tensordict({"query": [f"Question {i}?" for i in range(ROWS)]}, batch_size=(ROWS,))
    )
    for _ in range(TURNS):
        prompt = root["history"].prompt
        full = prompt.extend(answers, inplace=False, dim=-1)
        root["history"] = container(prompt=prompt, response=answers, full=full, batch_size=(ROWS,))
        root = env.step_mdp(env.step(root))


def measured(work: Callable[[], None]) -> tuple[float, float]:
    """Return median processor and wall seconds."""
    work()
    processor, wall = [], []
    for _ in range(REPEATS):
        before = time.process_time(), time.perf_counter()
        work()
        processor.append(time.process_time() - before[0])
        wall.append(time.perf_counter() - before[1])
    return statistics.median(processor), statistics.median(wall)


def main() -> None:
    """Print the medians, and the ratio where torchrl is there."""
    from antiphon import ChatEnv, ChatHistory, History
    from tensordict import TensorDict, set_list_to_stack

    set_list_to_stack(True).set()  # torchrl needs it
    env = ChatEnv(batch_size=(ROWS,), system_prompt="You are helpful.")
    ours = measured(lambda: conversations(env, History, ChatHistory, TensorDict))
    print(f"antiphon  {ours[0]:.4f} s processor  {ours[1]:.4f} s wall")
    try:
        from torchrl.data.llm import History as TheirHistory
        from torchrl.envs.llm import ChatEnv as TheirEnv
        from torchrl.modules.llm.policies import ChatHistory as TheirChat
    except ImportError as error:
        print(f"torchrl is not there to compare with ({error})")
        return
    other = TheirEnv(batch_size=(ROWS,), system_prompt="You are helpful.", input_mode="history")
    theirs = measured(lambda: conversations(other, TheirHistory, TheirChat, TensorDict))
    print(f"torchrl   {theirs[0]:.4f} s processor  {theirs[1]:.4f} s wall")
    print(f"ratio     {theirs[0] / ours[0]:.1f} processor  {theirs[1] / ours[1]:.1f} wall")


if __name__ == "__main__":
    main()
