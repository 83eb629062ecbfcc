"""ChatML, the one dialect that core itself brings, with and without a token that begins the text.

Registered as any plugin's dialect is, so that the same rules hold for it. What the official
templates do not print (tool calls, tool lists, reasoning) these do not print either.
"""

from __future__ import annotations

from antiphon.families import ModelFamily
from antiphon.naming import known_models, own_names
from antiphon.plugins.hookspecs import hookimpl

_MODELS = known_models("antiphon", "chatml_models.json")
_NOTES = (
    "Tools, tool calls and reasoning are not printed.",
    "Contents that are not text are refused, None among them, so a call without a content is too.",
)


def _hermes(line: str) -> tuple[str, ...]:
    """Return the pattern of the own names of a line of Hermes, which are called after their base."""
    bases = r"llama|mistral|mixtral|solar|yi|\d(?:[._]\d)?|\dx\d+b"
    return own_names(
        f"(?:nous-)?hermes-{line}", f"{bases}|dpo|sft|vision|alpha", org="nousresearch"
    )


CHATML = ModelFamily(
    name="chatml",
    line="chatml",
    template="antiphon:templates/chatml.jinja",
    grammar="antiphon.chatml_grammar:CHATML",
    digests=(
        "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e",
        "153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3",
        "278bc1cf3f930a78aa2b96e108bc8012647dbc1596f17a7e974dd7bd9e938f92",
        "2bb0f3528bf8ce8eca58a06cbed92277def5085416ec08a75f114eac9292c76a",
        "58c1a1f04baa7adaeaba1f90267c3d57d9396f0c1f0129bdde9e76d3c6784af7",
        "e7a3df47d72feec173403ca6c63b3632edde3536fc0f5a4413ab432a2cfddb8d",
        "f950548988e50713a9975a11be0eaf1d29c4fe4be0ba22a57daeebbc27a7adb9",
    ),
    model_ids=_MODELS.get("chatml", ()),
    name_patterns=(r"\bchatml\b", *_hermes("[23]")),
    end_tokens=("<|im_end|>",),
    notes=_NOTES,
)
CHATML_BOS = ModelFamily(
    name="chatml-bos",
    line="chatml",
    template="antiphon:templates/chatml-bos.jinja",
    grammar="antiphon.chatml_grammar:CHATML_BOS",
    digests=(
        "a805e50fed68938a076b07e2e602639611b50b1ced0e50f11eb92f1ba25be4dc",
        # InternLM's spellings of it.
        "386c1484a61472d125667b6cec21082dece739161a586a0a0dc50d77d12de765",
        "49aa7cb516942cc5a17d45ed2939828e3b5e4188dc487a3c4b64a570e5b5111f",
    ),
    model_ids=_MODELS.get("chatml-bos", ()),
    name_patterns=_hermes("2-(?:pro|theta)"),
    end_tokens=("<|im_end|>",),
    variant_of="chatml",
    notes=_NOTES,
)


@hookimpl
def antiphon_register_families() -> list[ModelFamily]:
    """Register ChatML."""
    return [CHATML, CHATML_BOS]
