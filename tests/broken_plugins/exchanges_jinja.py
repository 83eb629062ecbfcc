"""It is the first to import Jinja and transformers' tokenizers, and exchanges functions of both."""

import functools

import jinja2.defaults
from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


def shouting(function):
    @functools.wraps(function)
    def shout(*arguments, **options):
        return function(*arguments, **options).upper()

    return shout


jinja2.Template.render = shouting(jinja2.Template.render)
jinja2.defaults.DEFAULT_FILTERS["trim"] = lambda text: text + "!"


@hookimpl
def antiphon_register_families():
    return [ModelFamily("parrot", "parrot", "antiphon:templates/chatml.jinja")]
