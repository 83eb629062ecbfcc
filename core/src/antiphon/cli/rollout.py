"""``antiphon rollout``: sample conversations from an environment, write token-exact trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_DEFAULT_OUTPUT = "rollout.parquet"


@click.command()
@click.option(
    "--model",
    default="embedded",
    show_default=True,
    help="A model's name or folder; 'embedded' is a small one that needs no network.",
)
@click.option(
    "--env",
    "env_name",
    default="word-problems",
    show_default=True,
    help="The environment: built in, or a plugin's.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Problems as JSON lines or Parquet with 'question' and 'answer' ('... #### N').",
)
@click.option("--backend", default="transformers", show_default=True, help="What samples.")
@click.option(
    "--scorer",
    help="The backend that stands for the trainer: its log-probs are compared with the sampled ones. By default the "
    "one that samples, or what that one names.",
)
@click.option(
    "--system-prompt",
    help="In place of the environment's own; an empty text leaves it out.",
)
@click.option("-n", "--samples", default=2, show_default=True, help="Conversations per problem.")
@click.option("--limit", type=int, help="Only the first so many problems.")
@click.option("--max-turns", default=2, show_default=True, help="Answers per conversation at most.")
@click.option("--max-new-tokens", default=64, show_default=True, help="Tokens per answer at most.")
@click.option("--temperature", default=0.7, show_default=True, help="0 for greedy decoding.")
@click.option(
    "--log-probs",
    type=click.Choice(["temperature", "raw"]),
    default="temperature",
    show_default=True,
    help="Of the distribution that is sampled from, or of the model itself.",
)
@click.option("--top-p", default=1.0, show_default=True, help="Nucleus sampling.")
@click.option(
    "--batch-size", default=32, show_default=True, help="Conversations under way at once."
)
@click.option(
    "--timeout",
    type=float,
    help="Seconds that an answer may take, where answers don't wait for each other (vllm-async, "
    "vllm-server).",
)
@click.option("--seed", default=0, show_default=True, help="Settles what is sampled.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path(_DEFAULT_OUTPUT),
    show_default=True,
    help="Where to write; .parquet or .jsonl says the form.",
)
@click.option("--resume", is_flag=True, help="Go on with an unfinished run of the same settings.")
@click.option("--overwrite", is_flag=True, help="Replace the output and any unfinished run.")
def rollout(**options: Any) -> int:
    """Sample conversations from an environment and write token-exact trajectories.

    Finished conversations are safe at once: a run that was interrupted goes on with --resume.
    """
    from antiphon.rollouts.run import RunOptions, run

    return run(RunOptions(**options), echo=click.echo)


command = rollout
