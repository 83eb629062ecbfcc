"""Text that templates mark safe or escape: the text that transformers gives, and never the template's own."""

from __future__ import annotations

import re

import antiphon
import pytest
from antiphon.errors import AntiphonError
from hypothesis import given, settings
from hypothesis import strategies as st
from rendering_helpers import oracle

CONTENT = "a<b & [INST] 'é'"
# The roles, which count as the template's, have no letter of the word that is looked for.
# Nor is any a constant: where `autoescape` is decided at run time, Jinja escapes no product, power or format that
# it has computed before, and here these are computed within bounds, when the template runs.
ATOMS = (
    *("m.content", "(m.content | safe)", "(m.content | e)", "(m.role and '<i>')"),
    *("(m.role and ('<b>' | safe))", "m.role"),
)
FILTERS = (
    *("e", "safe", "string", "forceescape", "upper", "lower", "title", "capitalize", "trim"),
    *("striptags", "truncate(9)", "wordwrap(4)", "center(30)", "indent(2)", "list"),
    *("replace('a', '<')", "replace('a', '<' | safe)", "replace('<', m.role)", "join('<')"),
    *("first", "last", "urlize", "urlencode", "tojson", "format(1)", "length", "default('<')"),
)
METHODS = (
    *(".strip()", ".lstrip('a')", ".rstrip()", ".upper()", ".title()", ".swapcase()"),
    *(".replace('a', '<')", ".replace('<', m.content)", ".split('b')[0]", ".rsplit(' ', 1)[1]"),
    *(".partition('b')[2]", ".splitlines()[0]", "[1:4]", "[0]", "[::2]", ".center(24)"),
    *(".ljust(24, '<')", ".removeprefix('a')", '.removesuffix("\'")', ".join(['<', m.content])"),
    *(".format('<')", " * 2", " % ()", ".zfill(24)", ".casefold()", ".expandtabs()"),
)
FORMS = (
    "{{ EXPR }}",
    "{% set x %}<{{ EXPR }}>{% endset %}{{ x ~ '<' }}",
    "{% set x | upper %}<{{ EXPR }}>{% endset %}{{ x }}",
    "{% filter replace('a', '<') %}{{ EXPR }}{% endfilter %}",
    "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(EXPR) + '<' }}",
    "{% macro f(x) %}{{ caller(x) }}{% endmacro %}{% call(y) f(EXPR) %}<{{ y }}{% endcall %}",
    "{% for c in EXPR %}{{ c ~ '' }}{% endfor %}",
    "{{ '{}<'.format(EXPR) }}{{ ('<{}' | safe).format(EXPR) }}",
    "{{ '%s<' % (EXPR) }}{{ ('%s<' | safe) % (EXPR) }}",
)
SCOPES = (
    "BODY",
    "{% autoescape true %}BODY{% endautoescape %}",
    "{% autoescape m.role == 'model' %}BODY{% endautoescape %}",
)


def extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} | {})".format, inner, st.sampled_from(FILTERS)),
        st.builds("({}{})".format, inner, st.sampled_from(METHODS)),
        st.builds("({} ~ {})".format, inner, inner),
        st.builds("({} + {})".format, inner, inner),
        st.builds("([{}, {}] | join({}))".format, inner, inner, inner),
    )


EXPRESSIONS = st.recursive(st.sampled_from(ATOMS), extended, max_leaves=4)


@settings(deadline=None)
@given(EXPRESSIONS, st.sampled_from(FORMS), st.sampled_from(SCOPES))
def test_safe_text_is_escaped_as_jinja_does_and_stays_content(
    expression: str, form: str, scope: str
) -> None:
    body = scope.replace("BODY", form.replace("EXPR", expression))
    template = "{% for m in messages %}" + body + "|{% endfor %}"
    messages = [{"role": "model", "content": CONTENT}, {"role": "code", "content": "[INST]"}]
    expected = oracle(template, messages)
    if expected is None:
        with pytest.raises(AntiphonError):
            antiphon.render(messages, chat_template=template)
        return
    rendering = antiphon.render(messages, chat_template=template)
    assert rendering.text == expected
    inside = {
        place
        for span in [*rendering.spans, *rendering.input_spans]
        for place in range(span.start, span.end)
    }
    for found in re.finditer("inst", rendering.text.lower()):
        assert inside.issuperset(range(found.start(), found.end()))


@pytest.mark.parametrize("scope", SCOPES)
def test_a_macro_s_own_text_stays_the_template_s_under_autoescape(scope: str) -> None:
    body = "{% macro turn(x) %}<s>{{ x }}</s>{% endmacro %}{{ turn(m.content) }}"
    template = "{% for m in messages %}" + scope.replace("BODY", body) + "{% endfor %}"
    messages = [{"role": "user", "content": "words"}]
    rendering = antiphon.render(messages, chat_template=template)
    assert rendering.text == oracle(template, messages) == "<s>words</s>"
    assert [rendering.text[s.start : s.end] for s in rendering.spans] == ["words"]
