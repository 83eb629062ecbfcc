"""The descriptor of DialoGPT: contents one after the other, each closed by the end token."""

from __future__ import annotations

from antiphon.families import ModelFamily

DIALOGPT = ModelFamily(
    name="dialogpt",
    line="dialogpt",
    template="antiphon_dialogpt:templates/dialogpt.jinja",
    grammar="antiphon_dialogpt.grammars:DIALOGPT",
    digests=("5e038197c89daee5d4e03d3e0c8ac0fab5a25e2dc88f203f9c948f68889e416f",),
    model_ids=(
        "microsoft/DialoGPT-small",
        "microsoft/DialoGPT-medium",
        "microsoft/DialoGPT-large",
        "techpro-saida/banking-slm-v1",
    ),
    name_patterns=(r"^dialo-?gpt(?=$|[-_. ])",),
    end_tokens=("<|endoftext|>",),
    notes=(
        "No role is printed: a system message, a tool's and a user's look alike, and reading back "
        "takes the speakers in turns, a user first.",
        "add_generation_prompt, tools, calls and reasoning print nothing.",
        "A missing content prints nothing, None and parts are printed as Python prints them.",
    ),
)

FAMILIES = (DIALOGPT,)
