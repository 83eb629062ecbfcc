"""Supervised fine-tuning in one file: conversations to samples, masks to labels, a plain torch loop.

`training_samples` gives sequences in which each assistant turn stands in the very context that the model has at
inference; its mask says which tokens the assistant wrote, end token included, and only those are labels.

    python examples/sft.py                                  # a tiny model, seconds on one core
    python examples/sft.py --model embedded --steps 20      # SmolLM2-135M on word problems
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from antiphon import TokenizedRendering, training_samples
from antiphon.demo import problems_path
from antiphon_transformers import load_model
from tiny_model import repeat_rows, tiny_model

Batch = dict[str, torch.Tensor]
IGNORED = -100  # as a label: left out of the loss


def collate(samples: Sequence[TokenizedRendering], pad: int) -> Batch:
    """Return ids, attention mask and labels ``[samples, longest]``, padded on the right."""
    shape = (len(samples), max(map(len, samples)))
    ids, mask, labels = (torch.full(shape, fill) for fill in (pad, 0, IGNORED))
    for row, sample in enumerate(samples):
        size, own = len(sample), torch.tensor(sample.input_ids)
        ids[row, :size], mask[row, :size] = own, 1
        labels[row, :size] = own.where(torch.tensor(sample.assistant_mask), IGNORED)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def as_messages(rows: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return question, answer, question, answer ... of data rows."""
    sides = (("user", "question"), ("assistant", "answer"))
    return [{"role": role, "content": row[key]} for row in rows for role, key in sides]


def train(
    model: Any,
    tokenizer: Any,
    conversations: Sequence[Sequence[Mapping[str, Any]]],
    *,
    steps: int,
    lr: float,
    batch_size: int = 16,
    family: str | None = None,
    every: int = 10,
) -> list[float]:
    """Train in place for some steps; returns the loss of each (nats per token) and prints some."""
    samples = [s for c in conversations for s in training_samples(c, tokenizer, family=family)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    losses: list[float] = []
    model.train()
    for step in range(steps):
        chosen = torch.randint(len(samples), (batch_size,)).tolist()
        batch = collate([samples[i] for i in chosen], tokenizer.eos_token_id)
        loss = model(**{name: tensor.to(model.device) for name, tensor in batch.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if every and (step % every == 0 or step == steps - 1):
            print(f"step {step + 1:4d}  loss {losses[-1]:.3f}", flush=True)
    model.eval()
    return losses


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny", help="tiny, embedded, a folder or a hub name")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=None, help="tiny: 3e-3; else 1e-5")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    tiny = args.model == "tiny"
    model, tokenizer = tiny_model(args.seed) if tiny else load_model(args.model)
    lines = problems_path().read_text(encoding="utf-8").splitlines()
    messages = as_messages(repeat_rows(200) if tiny else map(json.loads, lines))
    chats = [messages[i : i + 4] for i in range(0, len(messages), 4)]  # two questions each
    lr, family = (3e-3, "chatml") if tiny else (1e-5, None)
    options = {"steps": args.steps, "batch_size": args.batch_size, "lr": args.lr or lr}
    losses = train(model, tokenizer, chats, family=family, **options)
    few = max(1, len(losses) // 4)
    first, last = sum(losses[:few]) / few, sum(losses[-few:]) / few
    print(f"mean loss: first quarter {first:.3f}, last quarter {last:.3f}")


if __name__ == "__main__":
    main()
