"""All it names is not there: a template, a grammar, a module, an attribute."""

from antiphon.families import BackendSpec, EnvSpec, ModelFamily
from antiphon.plugins import RewardSpec, hookimpl


@hookimpl
def antiphon_register_families():
    return [
        ModelFamily("no-template", "bird", "antiphon:templates/no-such-bird.jinja"),
        ModelFamily(
            "no-grammar",
            "bird",
            "antiphon:templates/chatml.jinja",
            "antiphon.chatml_grammar:NO_SUCH",
        ),
        ModelFamily("no-jinja", "bird", "", source="{% if %}"),
    ]


@hookimpl
def antiphon_register_backends():
    return [BackendSpec("no-module", "no_such_module:Backend")]


@hookimpl
def antiphon_register_envs():
    return [EnvSpec("no-attribute", "json:NoSuchEnv")]


@hookimpl
def antiphon_register_rewards():
    return [RewardSpec("needs", "json:loads", requires=("no-such-distribution",))]
