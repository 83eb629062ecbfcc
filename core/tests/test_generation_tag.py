"""The `generation` tag: what stands inside is printed as transformers prints it, and its variables stay inside."""

from __future__ import annotations

import pytest
from antiphon import render
from antiphon.errors import RenderError
from rendering_helpers import SPECIAL, oracle

MESSAGES = [
    {"role": "user", "content": "hello <b>"},
    {"role": "assistant", "content": "world & co"},
]
SHORT = {
    "[[": "{% generation %}",
    "]]": "{% endgeneration %}",
    "@each": "{% for m in messages %}",
    "@end": "{% endfor %}",
    "@first": "messages[0].content",
}
# [[ and ]] stand for the tag, @each and @end for the loop over messages, @first for the first content.
TEMPLATES = (
    "{% set x='o' %}@each[[{% set x = x + m.content %}{{ x }}]]{{ x }}|@end{{ x }}",
    "{% set x='o' %}@each[[{{ x }}{% set x = m.content %}{{ x }}]]{{ x }}|@end{{ x }}",
    "{% set x='o' %}[[{{ x }}{% set x = 'i' %}{{ x }}]]{{ x }}",
    "[[{% set y = 'i' %}{{ y }}]][{{ y }}]",
    "[[{% set bos_token = 'i' %}{{ bos_token }}]][{{ bos_token }}]",
    "[[{{ bos_token }}{% set bos_token = 'i' %}{{ bos_token }}]][{{ bos_token }}]",
    "{% set n = namespace(a=0) %}@each[[{% set n.a = n.a + 1 %}{{ loop.index }}{{ loop.last }}{{ n.a }}]]@end{{ n.a }}",
    "@each[[{% if loop.first %}{% break %}{% endif %}{{ m.content }}]]@end",
    "@each[[{% for c in m.content %}{% if c == 'l' %}{% break %}{% endif %}{{ c }}@end]]@end",
    "@each[[{% if loop.first %}{% continue %}{% endif %}{{ m.content }}]]@end",
    "{% macro f(a) %}[[<{{ a }}>{% set a = 'z' %}{{ a }}]]{{ a }}{% endmacro %}@each{{ f(m.content) }}@end",
    "{% macro f(a) %}({{ caller() }}){% endmacro %}{% call f(1) %}[[{{ @first }}]]{% endcall %}",
    "{% macro f(a) %}[[({{ caller() }})]]{% endmacro %}{% call f(1) %}x{% endcall %}",
    "{% macro f(a) %}[[({{ varargs }}{{ kwargs }})]]{% endmacro %}{{ f(1,2,b=3) }}",
    "[[{% macro g(a) %}[{{ a }}]{% endmacro %}{{ g(@first) }}]]{{ g is defined }}",
    "[[[[{{ @first }}]]{% set q=1 %}{{ q }}]]{{ q }}",
    "{% set t %}[[{{ @first }} ]]{% endset %}{{ t | trim }}!{{ t|length }}",
    "{% filter upper %}[[{{ @first }}]]{% endfilter %}",
    "[[{% filter upper %}{{ @first }}{% endfilter %}]]",
    "[[\n  {{ @first }}\n]]\n  x",
    "{%- generation -%}  {{ @first }}  {%- endgeneration -%}  x",
    "[[]]a",
    "@each[[{% set z = m.content %}]]{{ z }}@end",
    "{% if messages %}{% set z='1' %}[[{{ z }}{% if true %}{% set z='2' %}{% endif %}{{ z }}]]{{ z }}{% endif %}",
    "{% for m in messages recursive %}[[{{ m.content }}]]@end",
    "{% block b %}[[{{ @first }}]]{% endblock %}{{ self.b() }}",
    "{% autoescape true %}[[<{{ @first }}>]]{% endautoescape %}",
    "[[{% with a = 1 %}{{ a }}{% endwith %}{{ a }}]]",
    "{% set x = 1 %}[[@each{% set x = x + 1 %}{{ x }}@end{{ x }}]]",
    "[[{{ 5 }}{{ none }}{{ true }}{{ messages[0] }}]]",
    "[[{{ loop is defined }}{{ caller is defined }}]]",
    "@each[[{{ loop is defined }}{{ loop.index0 }}{{ loop.nextitem is defined }}]]@end",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}[[{% set x = 2 %}{{ m() }}{{ x }}]]{{ m() }}",
)


@pytest.mark.parametrize("template", TEMPLATES)
def test_what_stands_in_a_generation_block_is_printed_as_transformers_does(template: str) -> None:
    for short, long in SHORT.items():
        template = template.replace(short, long)
    try:
        wanted = oracle(template, MESSAGES, **SPECIAL)
    except SyntaxError:  # transformers lets Python's own through
        wanted = None
    if wanted is None:
        with pytest.raises(RenderError):
            render(MESSAGES, chat_template=template, **SPECIAL)
    else:
        assert render(MESSAGES, chat_template=template, **SPECIAL).text == wanted


def test_loop_controls_outside_of_loops_are_no_valid_template() -> None:
    for control in ("break", "continue"):
        with pytest.raises(RenderError, match="no valid program: '?" + control):
            render(MESSAGES, chat_template="{% " + control + " %}x")


def test_text_in_a_generation_block_keeps_its_origin() -> None:
    template = (
        "{% for m in messages %}{% generation %}<{{ m.content }}>{% endgeneration %}{% endfor %}"
    )
    rendering = render(MESSAGES, chat_template=template)
    assert [rendering.text[s.start : s.end] for s in rendering.spans] == ["hello <b>", "world & co"]
    assert [span.message for span in rendering.spans] == [0, 1]
