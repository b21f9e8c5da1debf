"""The commands and their options.

Nothing heavy is imported before a command needs it, so that ``--help`` is fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
from click.core import ParameterSource

from hermes_trio import __version__
from hermes_trio.cli import default_sigint
from hermes_trio.settings import (
    MASK,
    ConfigurationError,
    LoadedSettings,
    Option,
    Profile,
    Settings,
    displayable_value,
    load,
    options,
)
from hermes_trio.settings.channels import SECRETS

PROGRAM = "hermes-trio"
_EXIT_MISUSE = 2
_EXIT_INTERRUPTED = 130
_NOT_SET = "(not set)"
_COMPLETION_VARIABLE = "_HERMES_TRIO_COMPLETE"  # that click derives from the name of the program
_MAX_VALUE_CHARS = 100

_Command = TypeVar("_Command", bound=Callable[..., Any])


class ConfigurationRefused(click.ClickException):
    """A configuration that cannot work. The message is one line."""

    exit_code = _EXIT_MISUSE


class CommandGroup(click.Group):
    """A group that exits quietly on Ctrl-C and reports configuration errors in one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn its exceptions into exit codes."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(_EXIT_INTERRUPTED)
        except ConfigurationError as error:
            raise ConfigurationRefused(_one_line(str(error))) from None


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code.

    Misuse is reported in one line on stderr, with code 2.
    """
    try:
        code = program.main(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return _EXIT_MISUSE
    except click.ClickException as error:
        click.echo(f"Error: {_one_line(error.format_message())}", err=True)
        return _EXIT_MISUSE
    except click.Abort:
        return _EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0


def _config_flag() -> Callable[[_Command], _Command]:
    return click.option(
        "--config",
        metavar="FILE",
        help="TOML file with options. Flags and environment variables override it.",
    )


def _flag(name: str, option: Option, default: Any) -> Callable[[Any], Any]:
    """Make a flag that takes any text. ``load`` checks the values, the same way for all sources."""
    text = option.help
    if isinstance(default, bool):
        text += f"  [default: {'on' if default else 'off'}]"
    elif isinstance(default, (str, int)) and default != "":
        text += f"  [default: {default}]"
    multiple = isinstance(default, tuple)
    return click.option(option.flag, name, metavar=option.metavar, multiple=multiple, help=text)


def settings_flags(command: _Command) -> _Command:
    """Add ``--config`` and a flag for each option that has one to a command."""
    fields = attrs.fields_dict(Settings)
    flags = [
        _flag(name, option, fields[name].default)
        for name, option in options().items()
        if option.flag
    ]
    for add in reversed([_config_flag(), *flags]):
        command = add(command)
    return command


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def program() -> None:
    """An OpenAI-compatible API server for tool-using agents."""


@program.command()
@settings_flags
@click.option("--check", is_flag=True, help="Check the configuration and exit.")
@click.option(
    "--reload",
    is_flag=True,
    help="Restart when Python files in the working directory change; for development.",
)
@click.pass_context
def serve(context: click.Context, /, check: bool, reload: bool, **_values: Any) -> None:
    """Serve an agent until the process is stopped."""
    with default_sigint():
        if reload and not check:
            from hermes_trio.cli import reload as reloading  # noqa: PLC0415  # see the top

            context.exit(reloading.main(sys.argv[1:]))
        loaded = _load(context)
        for note in loaded.notes:
            click.echo(f"Note: {note}", err=True)
        if loaded.settings.workers > 1 and not check:
            from hermes_trio.server import workers  # noqa: PLC0415  # see the top

            context.exit(workers.main(loaded))
        from hermes_trio.server import main as server  # noqa: PLC0415  # slow to import, see the top

        if check:
            server.check(loaded)
            click.echo("configuration ok")
            return
        context.exit(server.main(loaded))


@program.command()
@click.argument("prompt", default="")
@click.option("--session", metavar="NAME", default="", help="Session to continue or create.")
@click.option(
    "--model", metavar="NAME", default="", help="Model id: the server's own, or that of a profile."
)
@click.option(
    "--url", metavar="URL", default="", help="Address of the server. Default: from the settings."
)
@click.option("--key-file", metavar="FILE", help="File with the key. Default: the server's key.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as JSON, one per line.")
@click.option("--plain", is_flag=True, help="Print only the answer, as text.")
@click.option(
    "--approve",
    type=click.Choice(["once", "session", "always", "deny", "wait"]),
    help="Answer to approval requests; 'wait' leaves them to other clients. Default: ask on the terminal, or deny if there is none.",
)
@click.option(
    "--data-dir", metavar="DIR", help="Folder with the server's records and its generated key."
)
@_config_flag()
@click.pass_context
def chat(context: click.Context, /, prompt: str, **_values: Any) -> None:
    """Chat with a server. Without PROMPT, read standard input; on a terminal, line by line."""
    from hermes_trio.cli import chat as chat_command  # noqa: PLC0415  # slow to import, see the top

    names = ("session", "model", "url", "key_file", "as_json", "plain", "approve")
    flags = {name: context.params[name] for name in names if context.params[name] is not None}
    context.exit(
        chat_command.main(_load(context).settings, chat_command.ChatFlags(prompt=prompt, **flags))
    )


def _local_server(command: _Command) -> _Command:
    """Add the flags that find the server of this machine to a command."""
    names = ("host", "port", "api_key_file", "data_dir")
    fields = attrs.fields_dict(Settings)
    flags = [_flag(name, options()[name], fields[name].default) for name in names]
    for add in reversed([_config_flag(), *flags]):
        command = add(command)
    return command


@program.command()
@_local_server
@click.pass_context
def key(context: click.Context, /, **_values: Any) -> None:
    """Print the API key of the server on this machine."""
    from hermes_trio.cli import sign_in  # noqa: PLC0415  # slow to import, see the top

    click.echo(sign_in.read_key(_load(context).settings))


@program.command()
@click.argument("url", default="")
@_local_server
@click.option("--key-file", metavar="FILE", help="File with the key of the gateway at URL.")
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
@click.pass_context
def status(
    context: click.Context, /, url: str, key_file: str | None, as_json: bool, **_values: Any
) -> None:
    """Show whether the server on this machine works, or the gateway at URL.

    Without URL, the gateway of the setting gateway_health_url (GATEWAY_HEALTH_URL), if there is one.
    """
    from hermes_trio.cli import status as status_command  # noqa: PLC0415  # slow to import, see the top

    flags = status_command.StatusFlags(url, key_file, as_json)
    context.exit(status_command.main(_load(context).settings, flags))


@program.command("open")
@_local_server
@click.option("--print", "only_print", is_flag=True, help="Print the link instead.")
@click.pass_context
def open_page(context: click.Context, /, only_print: bool, **_values: Any) -> None:
    """Open the page of the server on this machine in a browser, signed in."""
    from hermes_trio.cli import sign_in  # noqa: PLC0415  # slow to import, see the top

    settings = _load(context).settings
    if only_print or not sign_in.open_in_browser(settings):
        click.echo(sign_in.page_link(settings))


@program.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    For bash, add this line to ~/.bashrc: eval "$(hermes-trio completion bash)"
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415  # rarely needed

    completer = get_completion_class(shell)
    assert completer is not None  # click has all three
    click.echo(completer(program, {}, PROGRAM, _COMPLETION_VARIABLE).source())


@program.command()
@settings_flags
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def doctor(context: click.Context, /, as_json: bool, **_values: Any) -> None:
    """Check what a server needs, and suggest repairs."""
    from hermes_trio.doctor import findings  # noqa: PLC0415  # see the top

    try:
        settings = _load(context).settings
    except ConfigurationError as error:
        found = [findings.fail("settings", _one_line(str(error)), "correct that option")]
    else:
        from hermes_trio.doctor.checks import run_checks  # noqa: PLC0415  # slow to import, see the top

        found = [findings.ok("settings", "can be read"), *run_checks(settings)]
    for line in [findings.format_json(found)] if as_json else findings.format_text(found):
        click.echo(line)
    context.exit(findings.exit_code(found))


@program.group()
def keys() -> None:
    """Manage the keys of a key file."""


def _key_file_flags(command: _Command) -> _Command:
    file = click.option(
        "--file",
        metavar="FILE",
        default="",
        help="Key file. Default: api_key_file of the settings.",
    )
    return file(_config_flag()(command))


def _find_key_file(context: click.Context) -> Path:
    from hermes_trio.cli import keys as key_commands  # noqa: PLC0415  # see the top

    file = context.params["file"]
    return Path(file) if file else key_commands.find_key_file(_load(context).settings)


@keys.command("add")
@click.argument("name")
@_key_file_flags
@click.option(
    "--principal", metavar="NAME", default="", help="Owner of the records. Default: NAME."
)
@click.option(
    "--expires",
    metavar="WHEN",
    default="",
    help="Time such as 12h, 30d or 8w, or a date. Default: never.",
)
@click.option(
    "--route",
    "routes",
    metavar="GROUP",
    multiple=True,
    help="Allow only these routes, such as chat or sessions:read; may be repeated.",
)
@click.option(
    "--profile",
    "profiles",
    metavar="NAME",
    multiple=True,
    help="Allow only these profiles; default is the server's own agent; may be repeated.",
)
@click.option(
    "--tool",
    "tools",
    metavar="TOOL",
    multiple=True,
    help="Allow only these tools; may be repeated.",
)
@click.option("--no-tools", is_flag=True, help="Allow no tool.")
@click.option("--admin", is_flag=True, help="Allow to see the records of all principals.")
@click.option("--max-runs", type=click.IntRange(1), help="Runs at the same time.")
@click.option("--max-runs-per-minute", type=click.IntRange(1), help="Runs that start in a minute.")
@click.option("--max-requests", type=click.IntRange(1), help="Open requests at the same time.")
@click.option("--max-stored-bytes", type=click.IntRange(1), help="Size of the principal's records.")
@click.pass_context
def add_key(context: click.Context, /, name: str, **values: Any) -> None:
    """Add a key to the key file and print it, once: the file holds only its hash."""
    from hermes_trio.cli import keys as key_commands  # noqa: PLC0415  # see the top

    flags = {each: value for each, value in values.items() if each not in ("file", "config")}
    path = _find_key_file(context)
    click.echo(key_commands.add(path, name, key_commands.KeyFlags(**flags)))
    click.echo(f"Added {name} to {path}. {key_commands.RELOAD_HINT}", err=True)


@keys.command("list")
@_key_file_flags
@click.option("--json", "as_json", is_flag=True, help="Print the keys as JSON.")
@click.pass_context
def list_keys(context: click.Context, /, as_json: bool, **_values: Any) -> None:
    """List the keys of the key file: what each allows, and until when. No key is shown."""
    from hermes_trio.cli import keys as key_commands  # noqa: PLC0415  # see the top

    described = key_commands.describe(_find_key_file(context))
    if as_json:
        click.echo(key_commands.format_json(described))
    else:
        for line in key_commands.format_table(described):
            click.echo(line)


@keys.command("revoke")
@click.argument("name")
@_key_file_flags
@click.pass_context
def revoke_key(context: click.Context, /, name: str, **_values: Any) -> None:
    """Remove a key from the key file."""
    from hermes_trio.cli import keys as key_commands  # noqa: PLC0415  # see the top
    from hermes_trio.keys import remove_key  # noqa: PLC0415  # see the top

    path = _find_key_file(context)
    remove_key(path, name)
    click.echo(f"Removed {name} from {path}. {key_commands.RELOAD_HINT}", err=True)


@program.group()
def config() -> None:
    """Inspect the configuration."""


@config.command()
@settings_flags
@click.pass_context
def show(context: click.Context, /, **_values: Any) -> None:
    """Print every option with its value and source."""
    for line in _table(list(_rows(_load(context)))):
        click.echo(line)


@program.group()
def store() -> None:
    """Manage the stored records."""


@store.command()
@click.argument("source_url")
@click.argument("target_url")
@click.pass_context
def migrate(context: click.Context, /, source_url: str, target_url: str) -> None:
    """Copy all records from SQLite (sqlite:///path) to an empty PostgreSQL database (postgresql://…).

    No server may use either database meanwhile. If this is interrupted, run it again to continue.
    """
    from hermes_trio.cli import migrate as migrate_command  # noqa: PLC0415  # slow to import, see the top

    context.exit(migrate_command.main(source_url, target_url))


def _load(context: click.Context) -> LoadedSettings:
    """Load the settings from the flags that were given, the environment and the configuration file."""
    known = {"config", *options()}
    given = {
        name: value
        for name, value in context.params.items()
        if name in known and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    config_file = given.pop("config", None)
    loaded = load(given, os.environ, Path(config_file) if config_file is not None else None)
    for warning in loaded.warnings:
        click.echo(f"Warning: {_one_line(warning)}", err=True)
    return loaded


def _rows(loaded: LoadedSettings) -> Iterator[tuple[str, str, str]]:
    settings = loaded.settings
    for name, option in options().items():
        value = displayable_value(settings, name)
        yield name, _format(value, option.secret), loaded.sources[name].name
    for profile in settings.profiles.values():
        yield from _profile_rows(profile, loaded)
    yield from _channel_rows(loaded)
    if settings.agent_options:
        yield "options", _format(tuple(settings.agent_options)), loaded.sources["options"].name
    for name, server in settings.mcp.items():
        # Only the names of its keys: commands, headers and variables may hold secrets.
        yield f"mcp.{name}", _format(tuple(server)), loaded.sources[f"mcp.{name}"].name


def _channel_rows(loaded: LoadedSettings) -> Iterator[tuple[str, str, str]]:
    whatsapp = loaded.settings.channels.whatsapp
    for option, value in attrs.asdict(whatsapp).items() if whatsapp else ():
        dotted = f"channels.whatsapp.{option}"
        yield dotted, _format(value, is_secret=option in SECRETS), loaded.sources[dotted].name


def _profile_rows(profile: Profile, loaded: LoadedSettings) -> Iterator[tuple[str, str, str]]:
    values = attrs.asdict(profile, recurse=False) | {
        "agent": profile.agent_name,
        "options": tuple(profile.options),
    }
    for option, value in values.items():
        if option != "name":
            dotted = f"profiles.{profile.name}.{option}"
            yield dotted, _format(value, is_secret=option == "api_key"), loaded.sources[dotted].name


def _format(value: object, is_secret: bool = False) -> str:
    if value is None or value in ("", ()):
        return _NOT_SET
    if is_secret:
        return MASK
    if isinstance(value, bool):
        return "on" if value else "off"
    line = _one_line(", ".join(value) if isinstance(value, tuple) else str(value))
    return line if len(line) <= _MAX_VALUE_CHARS else f"{line[:_MAX_VALUE_CHARS]}..."


def _table(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    lines = [("option", "value", "from"), *rows]
    name_width = max(len(name) for name, _, _ in lines)
    value_width = max(len(value) for _, value, _ in lines)
    for name, value, source in lines:
        yield f"{name:{name_width}}  {value:{value_width}}  {source}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
