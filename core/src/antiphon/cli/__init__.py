"""The command line: ``antiphon`` and its subcommands.

Subcommands are imported when they are used, so that one that needs torch doesn't slow down another.
What goes wrong is told in one sentence, with exit code 1; ``--debug`` anywhere on the line shows
the traceback.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from antiphon.errors import AntiphonError, PluginConflict, PluginError
from antiphon.families import load_object
from antiphon.plugins.records import PluginRecord
from antiphon.plugins.tracing import told

if TYPE_CHECKING:
    from antiphon.plugins import PluginHost

#: Core's commands: the name, where the click command is, one line of help.
COMMANDS: dict[str, tuple[str, str]] = {
    "rollout": ("antiphon.cli.rollout:rollout", "Sample conversations from an environment."),
    "render": ("antiphon.cli.render:render", "Render conversations as a model sees them."),
    "parse": ("antiphon.cli.parse:parse", "Read model output back into messages."),
    "tokenize": ("antiphon.cli.tokenize:tokenize", "Turn a chat data set into tokens and masks."),
    "drift": ("antiphon.cli.drift:drift", "Say where stored ids and a new encoding differ."),
    "check": ("antiphon.cli.check:check", "Check a family against a tokenizer."),
    "view": ("antiphon.cli.view:view", "Look at trajectories."),
    "plugins": ("antiphon.cli.plugins:plugins", "List plugins and find out what is wrong."),
}


_LONGEST_PATH = 400  # characters of it that an error shows


class PluginCommands:
    """What a plugin's ``antiphon_register_commands`` gets: it takes the plugin's commands.

    Attributes:
        faults: One sentence for each command that could not be taken.
    """

    def __init__(self, record: PluginRecord) -> None:
        self.record = record
        self.commands: dict[str, tuple[click.Command | str, str]] = {}
        self.faults: list[str] = []

    @property
    def _who(self) -> str:
        return f"Plugin {self.record.name!r} of {self.record.distribution}"

    def add(self, name: str, target: str, summary: str = "") -> None:
        """Add the click command ``"module:attribute"``; it is imported when it is used."""
        self._take(name, target, summary)

    def add_command(self, command: click.Command, name: str | None = None) -> None:
        """Add a click command that is at hand."""
        self._take(name or command.name or "", command, command.get_short_help_str())

    def failed(self, error: BaseException) -> None:
        """Note that the plugin's hook raised."""
        self.faults.append(f"{self._who} failed in antiphon_register_commands ({told(error)}).")

    def _take(self, name: str, command: click.Command | str, summary: str) -> None:
        if not name:
            self.faults.append(f"{self._who} adds a command without a name.")
        elif name in COMMANDS:
            self.faults.append(
                f"{self._who} adds a command {name!r}, and that is a command of antiphon itself:"
                " its author must choose another name."
            )
        else:
            self.commands[name] = (command, summary)


def plugin_commands(host: PluginHost | None = None) -> list[PluginCommands]:
    """Return what the plugins' command hooks gave, plugin by plugin; by default the process's."""
    from antiphon.plugins import get_host

    given: list[PluginCommands] = []

    def app_of(record: PluginRecord) -> PluginCommands:
        given.append(PluginCommands(record))
        return given[-1]

    (host or get_host()).register_commands(app_of)
    return given


class _Commands(click.Group):
    """A group whose commands come from `COMMANDS` and from plugins, imported one by one on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_core_commands(), *sorted(self._of_plugins())]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        target = _core_commands().get(name)
        if target is not None:
            return _load_command(target)
        claims = self._of_plugins().get(name, [])
        if len(claims) > 1:
            owners = " and ".join(record.distribution for record, _, _ in claims)
            raise PluginConflict(
                f"The command {name!r} is claimed by {owners}, so neither is run: leave one out,"
                f" for example with ANTIPHON_DISABLE_PLUGINS={claims[-1][0].distribution}."
            )
        for _, command, _ in claims:
            return _load_command(command) if isinstance(command, str) else command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name][1]) for name in _core_commands()]
        for name, claims in sorted(self._of_plugins().items()):
            owners = ", ".join(record.distribution for record, _, _ in claims)
            rows.append((name, f"{claims[0][2]} ({owners})".strip()))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    @staticmethod
    def _of_plugins() -> dict[str, list[tuple[PluginRecord, click.Command | str, str]]]:
        found: dict[str, list[tuple[PluginRecord, click.Command | str, str]]] = {}
        for app in plugin_commands():
            for name, (command, summary) in app.commands.items():
                found.setdefault(name, []).append((app.record, command, summary))
        return found


def _core_commands() -> dict[str, str]:
    """Return core's commands that this installation has."""
    return {
        name: target
        for name, (target, _) in COMMANDS.items()
        if importlib.util.find_spec(target.partition(":")[0]) is not None
    }


def _load_command(target: str) -> click.Command:
    command = load_object(target)
    if not isinstance(command, click.Command):
        raise PluginError(f"{target!r} is no click command: name what @click.command() made.")
    return command


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from antiphon.plugins.discovery import core_version

        click.echo(f"antiphon {core_version()}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show tracebacks (may stand anywhere on the line).")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def app(debug: bool) -> None:
    """Conversations for language-model training: exact text, exact tokens, exact masks."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        _write_exactly(stream)
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: What follows ``antiphon`` on the line.
    """
    own, separator, rest = _partition(list(arguments))
    debug = "--debug" in own or os.environ.get("ANTIPHON_DEBUG", "") not in ("", "0")
    line = [argument for argument in own if argument != "--debug"] + separator + rest
    try:
        result = cast("Any", app.main(line, prog_name="antiphon", standalone_mode=False))
        if sys.stdout is not None:  # it is where somebody closed it: antiphon ... >&-
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        # The reader went away (`antiphon ... | head`): nobody is left to tell anything to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("antiphon: interrupted.", err=True)
        return 130
    except (AntiphonError, OSError) as error:
        if debug:
            raise
        click.echo(f"antiphon: {_sentence(error)}", err=True)
        return 1
    except Exception as error:
        # A fault of ours or of a plugin: people get a sentence, and --debug gives what a report
        # needs.
        if debug:
            raise
        click.echo(
            f"antiphon: {type(error).__name__}: {_sentence(error)} This is a fault in the program;"
            " run it again with --debug to see where.",
            err=True,
        )
        return 1
    return result if isinstance(result, int) else 0


def _write_exactly(stream: Any) -> None:
    """Let a file or a pipe get what is read again elsewhere: UTF-8 as it is, half a character as its escape."""
    if not hasattr(stream, "reconfigure"):
        return
    if stream.isatty():
        stream.reconfigure(errors="backslashreplace")
    else:
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning as people read it: the sentence, not the place in the source."""
    click.echo(f"antiphon: warning: {message}", err=True)


def _sentence(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{str(error.filename)[:_LONGEST_PATH]}: "
        text = f"{place}{error.strerror}"
    return text if text.endswith((".", "!", "?", ")")) else text + "."


def _partition(arguments: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Split at the first ``--``: what follows it is not ours to look at."""
    if "--" not in arguments:
        return arguments, [], []
    at = arguments.index("--")
    return arguments[:at], ["--"], arguments[at + 1 :]
