"""Descriptors of the Falcon dialects: which models speak them, and by what they are known.

Their vocabularies share all control tokens that tell one of them from another line, so names and
digests decide. Falcon-H1R, Falcon-H1-Tiny and Falcon-180B-chat have templates of their own.
"""

from __future__ import annotations

from antiphon.families import ModelFamily
from antiphon.naming import own_names

_ENDLESS = (("closing", "The template prints no end token behind an answer."),)
_CHATML_FAULTS = (
    "Contents that are not text are refused, None among them, so a call without a content is too.",
    "Calls are not printed, and a tool's message gets a header with its own role.",
)

FALCON = ModelFamily(
    name="falcon",
    line="falcon",
    template="antiphon_falcon:templates/falcon.jinja",
    grammar="antiphon_falcon.grammars:FALCON",
    digests=("f77aceabccd0634e58edf4e0f0ef45b221502e3dee60dccec848709701b983ec",),
    model_ids=(
        "tiiuae/falcon-7b-instruct",
        "tiiuae/falcon-40b-instruct",
        "trl-internal-testing/tiny-FalconMambaForCausalLM",
    ),
    name_patterns=own_names(r"falcon[-_](?:7|40)b", "instruct"),
    end_tokens=("<|endoftext|>",),
    known_failures=_ENDLESS,
    notes=(
        "No token ends a turn: a text that holds a blank line and a speaker's name is cut there.",
        "Contents are trimmed, and of two line breaks in a row one is dropped.",
        "Any role but user is accepted at every second place; all but the assistant's are dropped.",
        "A system message without another message is not printed.",
        "Calls and tools are not printed.",
        "Contents that are not text are refused, None among them.",
    ),
)

FALCON_11B = ModelFamily(
    name="falcon-11b",
    line="falcon",
    template="antiphon_falcon:templates/falcon-11b.jinja",
    grammar="antiphon_falcon.grammars:FALCON_11B",
    digests=("2c575663fbb6c03a6af2cb20f5e8b3b764af5d66c6465d4067ff5c8b25ee3d0b",),
    model_ids=("tiiuae/falcon-11B",),
    name_patterns=own_names(r"falcon(?:2?[-_]|2)11b", "instruct|chat"),
    end_tokens=("<|endoftext|>",),
    known_failures=_ENDLESS,
    notes=(
        "No token ends a turn: a line that begins with a speaker's name ends it.",
        "Messages of a tool, and any other role's, are dropped, and so are calls and tools.",
        "Contents that are not text are refused, None among them.",
        "The user's name is followed by a space and a line break, Falcon's by a line break.",
    ),
)

FALCON3 = ModelFamily(
    name="falcon3",
    line="falcon",
    template="antiphon_falcon:templates/falcon3.jinja",
    grammar="antiphon_falcon.grammars:FALCON3",
    digests=("914ccd80356f5822d1a50d97546e37f60c04ed831fe431aa40346574ec266901",),
    model_ids=(
        "tiiuae/Falcon3-1B-Instruct",
        "tiiuae/Falcon3-3B-Instruct",
        "tiiuae/Falcon3-7B-Instruct",
        "tiiuae/Falcon3-10B-Instruct",
    ),
    name_patterns=own_names(r"falcon[-_]?3(?=[-_]\d+b)", "instruct"),
    arguments="mapping",
    end_tokens=("<|endoftext|>",),
    notes=(
        "Calls and tool results are printed only where tools are given; without tools they are "
        "dropped, and a message without a content is refused; content in parts always is.",
        "An answer that only calls has no header: its calls follow the turn before, after a line "
        "break.",
        "Calls are printed as they were passed, with id, type and function, while the instructions "
        "show a name and arguments.",
        "The system text runs into the instructions for calls without a separator; with tools a "
        "later system message is dropped.",
        "The line break after an answer's end token is missing where it is the last message and "
        "there are no tools, so a generation prompt follows the end token directly.",
        "A tool's result stands in a turn with the assistant's header and without an end token.",
    ),
)

FALCON_H1 = ModelFamily(
    name="falcon-h1",
    line="falcon",
    template="antiphon_falcon:templates/falcon-h1.jinja",
    grammar="antiphon_falcon.grammars:FALCON_H1",
    digests=("b4bb2b3167994b1bfae42fb74d7166f94340bbea2d9dba3f2591e3261adcfb4e",),
    model_ids=(
        "tiiuae/Falcon-H1-0.5B-Instruct",
        "tiiuae/Falcon-H1-1.5B-Instruct",
        "tiiuae/Falcon-H1-1.5B-Deep-Instruct",
        "tiiuae/Falcon-H1-3B-Instruct",
        "tiiuae/Falcon-H1-7B-Instruct",
        "tiiuae/Falcon-H1-34B-Instruct",
    ),
    name_patterns=own_names(r"falcon[-_]h1(?=[-_][\d.]+b)", "deep|instruct|base"),
    end_tokens=("<|im_end|>", "<|end_of_text|>"),
    notes=(
        "With tools the system turn has no end token.",
        "A system message that is not the first is dropped.",
        *_CHATML_FAULTS,
    ),
)

FALCON_MAMBA = ModelFamily(
    name="falcon-mamba",
    line="falcon",
    template="antiphon_falcon:templates/falcon-mamba.jinja",
    grammar="antiphon_falcon.grammars:FALCON_MAMBA",
    # ChatML after a token that begins the text, as core's dialect chatml-bos: the name tells the two apart.
    digests=(
        "a805e50fed68938a076b07e2e602639611b50b1ced0e50f11eb92f1ba25be4dc",
        "386c1484a61472d125667b6cec21082dece739161a586a0a0dc50d77d12de765",
        "49aa7cb516942cc5a17d45ed2939828e3b5e4188dc487a3c4b64a570e5b5111f",
    ),
    model_ids=(
        "tiiuae/falcon-mamba-7b-instruct",
        "tiiuae/Falcon3-Mamba-7B-Instruct",
        "tiiuae/falcon-mamba-tiny-dev",
        "tiiuae/Falcon-E-1B-Instruct",
        "tiiuae/Falcon-E-3B-Instruct",
    ),
    name_patterns=own_names(
        r"falcon(?:[-_]e(?=[-_]\d+b[-_]instruct)|[-_]?3?[-_]mamba)", "instruct"
    ),
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    notes=("Tools are not printed.", *_CHATML_FAULTS),
)

FAMILIES = (FALCON, FALCON_11B, FALCON3, FALCON_H1, FALCON_MAMBA)
