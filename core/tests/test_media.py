"""Masks and message indices follow what real processors write in the place of images."""

from __future__ import annotations

from typing import Any

import antiphon
import pytest
from antiphon.engine.media import media_expansions
from antiphon.errors import InvalidParameter
from rendering_helpers import hub_templates, tokenizer

pytest.importorskip("PIL", reason="pillow, which makes the images, is not installed")

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
    {"role": "user", "content": [{"type": "text", "text": "And\n"}, {"type": "image"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "A dog."}]},
]


def images() -> list[Any]:
    from PIL import Image

    return [Image.new("RGB", (90, 60), (200, 10, 10)), Image.new("RGB", (400, 300), (20, 10, 10))]


def gemma() -> tuple[Any, str, str]:
    """Line breaks and marks around a run of other tokens, which merge with their neighbours."""
    from transformers import Gemma3Processor
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    processor = Gemma3Processor(Gemma3ImageProcessorPil(), tokenizer("gemma3"), image_seq_length=4)
    template = next(t for t in hub_templates().values() if "start_of_image" in t)
    return processor, template, "<start_of_image>"


def llava() -> tuple[Any, str, str]:
    """The placeholder, repeated."""
    from transformers import LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    processor = LlavaProcessor(
        CLIPImageProcessorPil(),
        tokenizer("qwen3"),
        patch_size=14,
        vision_feature_select_strategy="default",
        image_token="<|image_pad|>",
    )
    return processor, hub_templates()["Qwen-Qwen2.5-VL-7B-Instruct"], "<|image_pad|>"


def idefics() -> tuple[Any, str, str]:
    """Rows and columns with marks of their own, as many as the size of the image asks for."""
    from transformers import AutoTokenizer, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    own = AutoTokenizer.from_pretrained(tokenizer("qwen3").name_or_path)
    marks = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"]
    own.add_special_tokens({"additional_special_tokens": [*marks, "<row_1_col_1>"]})
    processor = Idefics3Processor(Idefics3ImageProcessorPil(), own, image_seq_len=3)
    return processor, hub_templates()["HuggingFaceTB-SmolVLM-256M-Base"], "<image>"


@pytest.mark.parametrize("make", [gemma, llava, idefics])
@pytest.mark.filterwarnings("ignore")
def test_ids_are_the_processors_and_masks_follow(make: Any) -> None:
    processor, template, placeholder = make()
    own = processor.tokenizer
    rendering = antiphon.render(MESSAGES, own, chat_template=template)
    wide = rendering.expand(placeholder, media_expansions(processor, placeholder, images=images()))
    tokens = wide.tokenize()
    theirs = processor(text=[rendering.text], images=[images()], add_special_tokens=False)
    assert tokens.input_ids == list(theirs["input_ids"][0])
    before = rendering.tokenize()
    for message in range(4):
        shown = [
            own.decode(
                [t for t, m in zip(each.input_ids, each.message_index, strict=True) if m == message]
            )
            for each in (before, tokens)
        ]
        assert shown[0] == shown[1] != ""
    masked = [
        own.decode([t for t, m in zip(each.input_ids, each.assistant_mask, strict=True) if m])
        for each in (before, tokens)
    ]
    assert masked[0] == masked[1] != ""
    assert [wide.text[t.start : t.end] for t in wide.turns] == [
        rendering.text[t.start : t.end] for t in rendering.turns
    ]


def test_a_placeholder_that_a_user_typed_is_text() -> None:
    own = tokenizer("qwen3")
    template = hub_templates()["Qwen-Qwen2.5-VL-7B-Instruct"]
    parts = [{"type": "text", "text": "not <|image_pad|> one"}, {"type": "image"}]
    rendering = antiphon.render([{"role": "user", "content": parts}], own, chat_template=template)
    wide = rendering.expand("<|image_pad|>", ["<|image_pad|>" * 3])
    pad = own.convert_tokens_to_ids("<|image_pad|>")
    assert wide.tokenize().input_ids.count(pad) == 3
    assert "not <|image_pad|> one" in wide.text
    (span,) = wide.spans
    assert wide.text[span.start : span.end] == "not <|image_pad|> one"


def test_the_number_of_media_must_be_that_of_the_placeholders() -> None:
    template = hub_templates()["Qwen-Qwen2.5-VL-7B-Instruct"]
    rendering = antiphon.render(MESSAGES, chat_template=template)
    with pytest.raises(InvalidParameter, match="printed 2 placeholders"):
        rendering.expand("<|image_pad|>", ["x"])
    with pytest.raises(InvalidParameter, match="empty"):
        rendering.expand("", ["x"])
