"""What the wrapper costs over bare ``model.generate``, and batched small requests over one large batch.

    python benchmarks/wrapper.py [--model embedded] [--rows 16] [--tokens 16] [--repeats 5]

Greedy, every row the same number of tokens, one thread; CPU seconds of the process, so that other processes on the
machine do not count. Medians of interleaved repeats, and their ratios. Less than two minutes; more tokens make the
wrapper's share smaller, not larger.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

import torch
from antiphon import ChatHistory, History, Tokens
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.generation.scoring import pad_rows
from antiphon_transformers import TransformersBackend, TransformersWrapper
from tensordict import TensorDict
from timing import medians

QUESTIONS = (
    "Name three rivers in Africa and say where they are.",
    "What is 17 times 23?",
    "Tell me about the invention of the telephone, in two sentences, for a child.",
    "Hello!",
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    backend = TransformersBackend(options.model, device="cpu", reuse_bytes=0)
    model, tokenizer = backend.model, backend.tokenizer
    chats = [
        [{"role": "user", "content": f"{QUESTIONS[i % len(QUESTIONS)]} ({i})"}]
        for i in range(options.rows)
    ]
    rows = [
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        for chat in chats
    ]
    values = {"temperature": 0.0, "ignore_eos": True}
    wrapper = TransformersWrapper(backend, generate_kwargs=values, inplace=False)
    in_tokens = wrapper.get_new_version(input_mode="tokens")
    ids, mask = pad_rows(rows)

    def bare(new: int) -> None:
        with torch.no_grad():
            model.generate(
                ids,
                attention_mask=mask.long(),
                max_new_tokens=new,
                do_sample=False,
                eos_token_id=[backend.vocab_size],  # none
                pad_token_id=0,
            )

    size = (len(chats),)

    def in_backend(new: int) -> None:
        params = SamplingParams.from_kwargs({**values, "max_new_tokens": new})
        backend.generate(TokenBatch(rows), params)

    def histories(new: int) -> None:
        chat = ChatHistory(prompt=History.from_chats(chats), batch_size=size)
        wrapper(TensorDict(history=chat, batch_size=size), max_new_tokens=new)

    def tokens(new: int) -> None:
        mask_of = mask.bool()
        td = TensorDict(
            tokens=Tokens(prompt=ids, batch_size=size), attention_mask=mask_of, batch_size=size
        )
        in_tokens(td, max_new_tokens=new)

    found = medians(
        {
            "bare model.generate": bare,
            "backend": in_backend,
            "wrapper, tokens": tokens,
            "wrapper, history": histories,
        },
        options.repeats,
        options.tokens,
        warm_up=(2,),
    )
    reference = found["bare model.generate"]
    print(
        f"{options.rows} rows, {options.tokens} new tokens each, {model.num_parameters() / 1e6:.0f} M parameters"
    )
    for name, seconds in found.items():
        print(f"{name:24} {seconds:8.3f} CPU s   {seconds / reference:5.2f} times bare")

    small = wrapper.get_new_version(min_batch_size=32, max_batch_size=32, batching_timeout=5.0)
    many = [[{"role": "user", "content": f"{QUESTIONS[i % 4]} ({i})"}] for i in range(32)]

    def one(chat: list[dict[str, str]], new: int) -> None:
        history = ChatHistory(prompt=History.from_chats([chat]), batch_size=(1,))
        small(TensorDict(history=history, batch_size=(1,)), max_new_tokens=new)

    def large(new: int) -> None:
        history = ChatHistory(prompt=History.from_chats(many), batch_size=(32,))
        wrapper(TensorDict(history=history, batch_size=(32,)), max_new_tokens=new)

    with ThreadPoolExecutor(32) as pool:

        def threads(new: int) -> None:
            list(pool.map(one, many, [new] * len(many)))

        found = medians(
            {"one batch of 32": large, "32 threads, batched": threads},
            options.repeats,
            options.tokens,
            warm_up=(2,),
        )
    small.cleanup_batching()
    reference = found["one batch of 32"]
    for name, seconds in found.items():
        print(f"{name:24} {seconds:8.3f} CPU s   {seconds / reference:5.2f} times one batch")


if __name__ == "__main__":
    main()
