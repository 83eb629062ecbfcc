"""Names of models: patterns for those that a line itself has, and lists of others that were seen.

A name counts only where nothing stands in it but the line, sizes, the line's own words and marks of
packaging (AWQ, GGUF, 4bit). Any other word makes it a stranger's: a fine-tune may speak another
format than its base, and a distill speaks its teacher's or its student's.
"""

from __future__ import annotations

import importlib.resources
import json

_SIZE = r"\d+(?:[._]\d+)?[bm]|a\d+(?:[._]\d+)?b|\d+e"
_PACKAGING = (
    r"hf|gguf|ggml|awq|gptq|exl[23]|mlx|mlc|onnx|openvino|bnb|hqq|autoround|torchao|imatrix|dwq"
    r"|unsloth|dynamic|static|sharded|original|quantized|safetensors|tokenizer|qat|kv"
    r"|nf4|fp4|nvfp4(?:a16)?|mxfp[48]|bf16|fp16|fp8|int[48](?:wo)?|i1|i?q\d\w*|w\d+a\d+|g\d+|\d+g"
    r"|ud|\d(?:[._]\d+)?(?:-?bits?|bpw)"
)


def own_names(start: str, words: str = "", *, org: str = "", without: str = "") -> tuple[str, ...]:
    """Return the pattern of a line's own names, for `ModelFamily.name_patterns`.

    Args:
        start: An expression for the line, at the start of the name.
        words: Expressions, separated by ``|``, for the words that may follow besides sizes and
            packaging.
        org: An expression for the organisation, which file names put in front (``Org_Name``).
        without: An expression for what must not follow: another dialect's.
    """
    prefix = rf"(?:{org}[-_]{{1,2}})?" if org else ""
    other = rf"(?!.*(?:{without}))" if without else ""
    known = "|".join(filter(None, (_SIZE, words, _PACKAGING)))
    return (rf"^{prefix}{start}{other}(?:[-_. ]+(?:{known})(?![a-z0-9]))*$",)


def known_models(package: str, file: str = "models.json") -> dict[str, tuple[str, ...]]:
    """Return the public models, by dialect, that carry its template under a name that does not say so.

    Args:
        package: The package that has the file.
        file: A JSON file with a list of hub names for each dialect; ``tools/known_models.py`` writes it.
    """
    text = importlib.resources.files(package).joinpath(file).read_text(encoding="utf-8")
    return {name: tuple(models) for name, models in json.loads(text).items()}
