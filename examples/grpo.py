"""GRPO in one file: groups of answers, their rewards compared, the policy moved towards the better.

An environment asks, a wrapper answers, and what was sampled is trained as it was sampled: the loss is over the very ids
that the model chose, with the log-probs it chose them with, and over no other token. After Shao et al., "DeepSeekMath",
2024 (group-normalised advantages) and Schulman et al., "Proximal Policy Optimization", 2017 (the clipped ratio).

    python examples/grpo.py                                  # a tiny model, a few minutes on one core
    python examples/grpo.py --model embedded --steps 20      # SmolLM2-135M on word problems
    python examples/grpo.py --model Qwen/Qwen3-0.6B --lr 1e-6 --turns 2
    python examples/grpo.py --backend vllm                   # vLLM samples, in this process
"""

from __future__ import annotations

import argparse
import copy
import csv
import importlib.util
import time
from typing import Any

import torch
from antiphon import DatasetChatEnv, LLMWrapper
from antiphon.demo import problems_path
from antiphon.envs import WordProblems
from antiphon_transformers import TransformersBackend, TransformersWrapper
from sft import as_messages, train
from tensordict import TensorDictBase, lazy_stack
from tiny_model import TIMES, babble_rows, repeat_rows, repeat_task, tiny_model


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny", help="tiny, embedded, a folder or a hub name")
    parser.add_argument("--backend", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--steps", type=int, default=None, help="tiny: 200; else 20")
    parser.add_argument("--prompts", type=int, default=None, help="per step; tiny: 16; else 2")
    parser.add_argument("--group", type=int, default=8, help="answers per prompt")
    parser.add_argument("--epochs", type=int, default=2, help="updates per step")
    parser.add_argument("--lr", type=float, default=None, help="tiny: 1e-3; else 5e-6")
    parser.add_argument("--clip", type=float, default=0.2, help="how far the ratio may go from 1")
    parser.add_argument("--kl", type=float, default=0.0, help="weight of KL(policy || start)")
    parser.add_argument("--turns", type=int, default=1, help="tries per word problem")
    parser.add_argument("--max-new-tokens", type=int, default=None, help="tiny: 6; else 48")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", metavar="FILE.png", help="the curve (CSV without matplotlib)")
    args = parser.parse_args()
    tiny = args.model == "tiny"
    defaults = {"steps": (200, 20), "prompts": (16, 2), "lr": (1e-3, 5e-6)}
    defaults["max_new_tokens"] = (TIMES + 2, 48)
    for name, (small, large) in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, small if tiny else large)
    return args


def build(
    args: argparse.Namespace,
) -> tuple[DatasetChatEnv, TransformersWrapper, LLMWrapper]:
    """Return the environment, the policy that is trained, and what samples for it."""
    data: dict[str, Any]
    settings: dict[str, Any] = {}
    if args.model == "tiny":
        # vLLM has no kernels for heads of 16.
        model, tokenizer = tiny_model(args.seed, head_dim=32 if args.backend == "vllm" else 16)
        # It learns what an answer looks like; which one is right is left to the rewards.
        chats = [as_messages([row]) for row in babble_rows(500, args.seed)]
        losses = train(model, tokenizer, chats, steps=60, lr=3e-3, family="chatml", every=0)
        print(f"warm start: loss {losses[0]:.3f} to {losses[-1]:.3f}")
        settings = {"tokenizer": tokenizer, "chat_template_name": "chatml"}
        data = {"dataset": repeat_rows(500, args.seed), "task": repeat_task()}
    else:
        model = args.model
        data = {"dataset": problems_path(), "task": WordProblems(max_turns=args.turns)}
    settings["generate_kwargs"] = {"max_new_tokens": args.max_new_tokens, "temperature": 1.0}
    policy = TransformersWrapper(model, **settings)
    sampler: LLMWrapper = policy
    if args.backend == "vllm":
        from antiphon_vllm import vLLMWrapper

        settings["tokenizer"] = policy.tokenizer
        sampler = vLLMWrapper(policy.model, **settings)  # an engine with the same weights
    # A group is one row of the data, handed out to neighbours.
    env = DatasetChatEnv(
        num_envs=args.prompts * args.group, repeats=args.group, seed=args.seed, **data
    )
    return env, policy, sampler


def roll_out(
    env: DatasetChatEnv, policy: LLMWrapper, turns: int
) -> tuple[TensorDictBase, list[int], torch.Tensor, torch.Tensor]:
    """Return the sampled turns ``[n]``, how many tokens each answer has, which conversation each belongs to, and what
    the conversations are worth.
    """
    steps = env.rollout(turns, policy, break_when_all_done=True)
    rewards = torch.zeros(len(steps))
    sampled, lengths, conversations = [], [], []
    for step in steps.unbind(1):
        for index, row in enumerate(step.unbind(0)):
            if not row["done"].item():  # otherwise it had ended before
                rewards[index] = row["next", "reward"].item()  # the last turn's stands
                lengths.append(len(row["tokens", "response"]))
                sampled.append(row.select(("tokens", "full"), ("log_probs", "full")))
                conversations.append(index)
    return lazy_stack(sampled), lengths, torch.tensor(conversations), rewards


def advantages_of(rewards: torch.Tensor, group: int) -> torch.Tensor:
    """Return how much better than its group each conversation did, in standard deviations."""
    groups = rewards.view(-1, group)
    centred = groups - groups.mean(1, keepdim=True)
    return (centred / (groups.std(1, keepdim=True) + 1e-4)).view(-1)


def answers_of(turns: TensorDictBase, lengths: list[int]) -> torch.Tensor:
    """Return the log-probs of the answers' tokens, which end each turn's row, in one tensor ``[tokens]``."""
    rows = turns["log_probs"].get("full", as_list=True)
    return torch.cat([row[-length:] for row, length in zip(rows, lengths, strict=True)])


def main() -> None:
    """Train."""
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    env, policy, sampler = build(args)
    # The same model, asked for the log-probs of given ids; gradients flow where they are enabled.
    scorer = policy.get_new_version(generate=False, input_mode="tokens", inplace=False)
    start = None
    if args.kl:
        frozen = copy.deepcopy(policy.model).requires_grad_(False)
        start = scorer.get_new_version(
            model=TransformersBackend(frozen, tokenizer=policy.tokenizer)
        )
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=args.lr, weight_decay=0.0)
    curve: list[float] = []
    difference, begin = 0.0, time.perf_counter()
    for step in range(args.steps):
        if step and sampler is not policy:
            sampler.backend.load_weights(policy.model.state_dict(), version=step)
        turns, lengths, conversations, rewards = roll_out(env, sampler, args.turns)
        curve.append(rewards.mean().item())
        sampled = answers_of(turns, lengths)
        worth = advantages_of(rewards, args.group)[conversations]
        worth = worth.repeat_interleave(torch.tensor(lengths))  # one per token
        with torch.no_grad():
            reference = answers_of(start(turns), lengths) if start is not None else None
        for epoch in range(args.epochs):
            log_probs = answers_of(scorer(turns), lengths)
            if epoch == 0:  # the weights have not moved yet: sampler and trainer must agree
                gap = (log_probs.detach() - sampled).abs().max().item()
                difference = max(difference, gap)
            ratio = (log_probs - sampled).exp()
            clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
            loss = -torch.minimum(ratio * worth, clipped * worth).mean()
            if reference is not None:  # Schulman's k3 estimate, never negative
                away = reference - log_probs
                loss = loss + args.kl * (away.exp() - away - 1).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
            optimizer.step()
        print(
            f"step {step + 1:4d}  reward {curve[-1]:.3f}  tokens {len(sampled)}  "
            f"{time.perf_counter() - begin:.0f} s",
            flush=True,
        )
    quarter = max(1, len(curve) // 4)
    first, last = (sum(part) / quarter for part in (curve[:quarter], curve[-quarter:]))
    print(f"mean reward: first quarter {first:.3f}, last quarter {last:.3f}")
    print(f"largest sampler/trainer log-prob difference: {difference:.2e}")
    if args.plot:
        print(f"wrote {save_curve(curve, args.plot)}")


def save_curve(curve: list[float], path: str) -> str:
    """Draw the rewards, or write them as CSV where matplotlib is not installed; return the file."""
    if importlib.util.find_spec("matplotlib") is None:
        path = f"{path.removesuffix('.png')}.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("step", "reward"), *enumerate(curve, start=1)])
        return path
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    axes.plot(range(1, len(curve) + 1), curve)
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, None))
    figure.savefig(path, dpi=120)
    return path


if __name__ == "__main__":
    main()
