# ruff: noqa: E501 - templates and lists stand on one line each
"""Templates are foreign code: what runs for ever or builds gigabytes is refused, and the process lives."""

from __future__ import annotations

import time

import antiphon
import pytest
from antiphon.errors import TemplateInvalid, TemplateLimitExceeded, TemplateRefused

HOSTILE = {
    "nested loops": "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
    "a long text doubled": "{% set ns = namespace(x='aaaaaaaa') %}{% for a in range(90) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "doubled by ~": "{% set ns = namespace(x='aaaaaaaa') %}{% for a in range(90) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "a list doubled": "{% set ns = namespace(x=[1]) %}{% for a in range(90) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "multiplied": "{{ 'a' * 10000000000 }}",
    "multiplied content": "{{ messages[0].content * 10000000000 }}",
    "a list multiplied": "{{ ([0] * 10000000000) | length }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "big product": "{% set ns = namespace(x=99999999) %}{% for a in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "centred": "{{ 'a' | center(10000000000) }}",
    "centred method": "{{ 'a'.center(10000000000) }}",
    "justified content": "{{ messages[0].content.ljust(10000000000) }}",
    "printf": "{{ '%10000000000d' % 1 }}",
    "printf filter": "{{ '%10000000000d' | format(1) }}",
    "format": "{{ '{:>10000000000}'.format(1) }}",
    "format content": "{{ messages[0].content.format(1) }}",
    "replaced": "{% set ns = namespace(x='aaaaaaaa') %}{% for a in range(30) %}{% set ns.x = ns.x | replace('a', 'aaaaaaaa') %}{% endfor %}",
    "replaced method": "{% set ns = namespace(x='aaaaaaaa') %}{% for a in range(30) %}{% set ns.x = ns.x.replace('a', 'aaaaaaaa') %}{% endfor %}",
    "replace in one expression": "{{ 'aaaaaaaa'" + " | replace('a', 'aaaaaaaa')" * 20 + " }}",
    "recursive macro": "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "macro tree": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursive loop": "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "indented": "{{ messages[0].content | indent(10000000000, true) }}",
    "joined": "{% set ns = namespace(x=['aaaaaaaa']) %}{% for a in range(60) %}{% set ns.x = [ns.x | join('aaaa'), ns.x | join('b')] %}{% endfor %}",
    "macro text": "{% macro d(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='aaaa') %}{% for a in range(60) %}{% set ns.x = d(ns.x) %}{% endfor %}",
    "list of a loop": "{% for a in range(90000) %}{% set b = messages | list %}{% for c in range(90000) %}{% endfor %}{% endfor %}",
    "json indent": "{{ messages | tojson(indent=1000000000) }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refused_within_seconds(name: str) -> None:
    content = "{:>10000000000}" if name == "format content" else "hello"
    start = time.monotonic()
    with pytest.raises((TemplateLimitExceeded, TemplateRefused)):
        antiphon.render([{"role": "user", "content": content}], chat_template=HOSTILE[name])
    assert time.monotonic() - start < 60  # a bound on the hang, not a measure of speed


def test_megabytes_of_content_are_rendered() -> None:
    text = "long words " * 500_000
    rendering = antiphon.render(
        [{"role": "user", "content": text}], chat_template="{{ messages[0].content + '!' }}"
    )
    assert rendering.text == text + "!"


def test_a_template_that_is_not_jinja_is_named_so() -> None:
    with pytest.raises(TemplateInvalid, match="line 1"):
        antiphon.render([{"role": "user", "content": "hi"}], chat_template="{% for %}")


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages[0]._antiphon_origin.x }}",
        "{% set ns = namespace(_x=1) %}",
        "{{ '{0.__class__.__mro__}'.format(messages).join('x') + messages[0]._x.y }}",
    ],
)
def test_the_sandbox_holds(template: str) -> None:
    with pytest.raises(TemplateRefused):
        antiphon.render([{"role": "user", "content": "hi"}], chat_template=template)
