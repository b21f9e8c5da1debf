"""Detect shell commands that need a person's approval before they run.

A command is parsed as a shell would parse it, and each program that it would start is matched
against the rules, including programs started by other programs. A command that cannot be parsed
counts as dangerous. This guards against a model that goes astray, not against one that hides what
it does: no analysis can tell what a script generated at run time will do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from posixpath import basename, normpath

from attrs import frozen

from hermes_trio.tools.shell_parser import (
    COMPUTED,
    Pipeline,
    SimpleCommand,
    UnparsableScript,
    parse_script,
)

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "ash", ".", "source"})
INTERPRETERS = frozenset(
    {
        "python", "python2", "python3", "perl", "ruby", "node", "nodejs", "php", "deno", "bun", "lua",
        "osascript", "pwsh", "awk", "gawk",
    }
)  # fmt: skip
# They run a command that is among their arguments.
WRAPPERS = frozenset(
    {
        "sudo", "doas", "pkexec", "env", "nohup", "nice", "ionice", "timeout", "time", "exec", "command",
        "builtin", "xargs", "stdbuf", "setsid", "chroot", "busybox", "toybox", "flock", "strace", "unshare",
        "nsenter", "runuser", "parallel", "systemd-run", "caffeinate", "chronic", "taskset", "chrt",
    }
)  # fmt: skip
# They only display their arguments or input: SQL in their arguments is not executed.
DISPLAY_PROGRAMS = frozenset(
    {
        "grep", "egrep", "fgrep", "rg", "ag", "ack", "echo", "printf", "cat", "less", "head", "tail", "wc",
        "sort", "uniq", "git", "ls", "find", "tee", "sed", "awk", "cut", "diff",
    }
)  # fmt: skip
DESTRUCTIVE_SQL = re.compile(
    r"\bdrop\s+(table|database|schema|keyspace)\b|\btruncate\s+(table\s+)?\w+\s*(;|$)"
    r"|\bdelete\s+from\s+[\w.\"`]+\s*(;|$)|\bdropDatabase\(|\bflushall\b|\bflushdb\b",
    re.IGNORECASE | re.MULTILINE,
)
SIDE_EFFECT_CODE = re.compile(
    r"rmtree|\bunlink\b|os\.remove|removedirs|rmSync|rmdirSync|rm_rf|remove_entry"
    r"|os\.system|os\.exec|os\.popen|subprocess|child_process|\bsystem\s*\(|\bexec\s*\("
)

_HOME = re.compile(r"^(?:~\w*|\$HOME|/home/[^/]+|/Users/[^/]+)(?=/|$)")
_SYSTEM = re.compile(
    r"^/(etc|boot|usr|bin|sbin|lib\w*|sys|proc|root|private/etc|System|Library)(/|$)|^/$"
)
_DEVICE = re.compile(r"^/dev/(?!(null|zero|full|tty|stdin|stdout|stderr|fd/\d+|shm/.*)$)")
_CREDENTIALS_AND_STARTUP = re.compile(
    r"(^|/)(\.ssh|\.gnupg|\.aws|\.kube|\.docker|cron\.\w+|authorized_keys|sudoers)(/|$)"
    r"|(^|/)\.(bashrc|bash_profile|bash_login|bash_logout|profile|zshrc|zshenv|zprofile|zlogin|netrc|gitconfig|npmrc|pypirc)$"
)

ArgumentTest = Callable[[Sequence[str]], bool]


def is_protected_path(path: str) -> bool:
    """Return True for system files, devices, keys, home directories and shell startup files."""
    normalized = normpath(re.sub(r"^/+", "/", path)) if path else ""
    return any(
        pattern.search(normalized) for pattern in (_SYSTEM, _DEVICE, _CREDENTIALS_AND_STARTUP)
    ) or bool(_HOME.fullmatch(normalized))


@frozen
class DangerRule:
    """Matches programs by name and by their arguments."""

    key: str
    description: str
    programs: re.Pattern[str]
    test: ArgumentTest

    def applies(self, program: str, arguments: Sequence[str]) -> bool:
        """Return True if a command matches the rule."""
        return self.programs.fullmatch(program) is not None and self.test(arguments)


def _always(_arguments: Sequence[str]) -> bool:
    return True


def _has(pattern: str) -> ArgumentTest:
    """Match if any argument matches the whole pattern."""
    compiled = re.compile(pattern)
    return lambda arguments: any(compiled.fullmatch(argument) for argument in arguments)


def _both(*tests: ArgumentTest) -> ArgumentTest:
    return lambda arguments: all(test(arguments) for test in tests)


def _either(*tests: ArgumentTest) -> ArgumentTest:
    return lambda arguments: any(test(arguments) for test in tests)


def _any_protected_path(arguments: Sequence[str]) -> bool:
    values = [re.sub(r"^(-[a-zA-Z](?=[/~$])|-?-?[\w-]+=)", "", argument) for argument in arguments]
    return any(is_protected_path(value) for value in values if value and not value.startswith("-"))


def _protected_target(arguments: Sequence[str]) -> bool:
    """Test the last path only, and target options: the others are only read."""
    words = [argument for argument in arguments if not argument.startswith("-")]
    named = [each for each in arguments if re.match(r"-t.|--target-directory=", each)]
    after_t = [
        arguments[index + 1]
        for index, each in enumerate(arguments[:-1])
        if each in ("-t", "-o", "-O")
    ]
    return _any_protected_path([*words[-1:], *named, *after_t])


def _kills_all(arguments: Sequence[str]) -> bool:
    """Match process 1 (init) and -1 (every process) as the last argument.

    An earlier -1 is a signal number.
    """
    return bool(arguments) and arguments[-1] in ("-1", "1")


_RECURSIVE = r"-\w*[rR]\w*|--recursive"
_FORCE = r"-\w*f\w*|--force\b.*"


def _rule(key: str, description: str, programs: str, test: ArgumentTest = _always) -> DangerRule:
    return DangerRule(key, description, re.compile(programs), test)


RULES: tuple[DangerRule, ...] = (
    # files
    _rule("delete-recursive", "deletes directories recursively", "rm|srm", _has(_RECURSIVE)),
    _rule("delete-recursive", "deletes directories recursively", "find", _has("-delete")),
    _rule("delete-recursive", "deletes directories recursively", "rsync", _has("--del(ete.*)?")),
    _rule("delete-recursive", "deletes directories recursively", "rimraf|trash-empty"),
    _rule("delete-unrecoverably", "overwrites files beyond recovery", "shred|wipe|scrub"),
    _rule("system-files", "writes to system files, keys or shell startup files",
          "rm|mv|rmdir|unlink|tee|touch|mkdir|truncate|chmod|chown|chgrp|chattr|setfacl|sponge|patch", _any_protected_path),
    _rule("system-files", "writes to system files, keys or shell startup files",
          "cp|ln|install|rsync|scp|curl|wget|tar|unzip", _protected_target),
    _rule("system-files", "writes to system files, keys or shell startup files",
          "sed|perl|ruby", _both(_has(r"-\w*i.*|--in-place.*"), _any_protected_path)),
    _rule("system-files", "writes to system files, keys or shell startup files", "ssh-copy-id|visudo"),
    _rule("open-rights", "makes files writable by every user, or set-user-ID", "chmod",
          _has(r"[0-7]?[0-7]{2}[2367]|[2467][0-7]{3}|[ugo]*[ao][ugoa]*[+=][rxXst]*w.*|[+=]\w*w\w*|[ugoa]*[+=]\w*s\w*")),
    _rule("change-owner", "changes ownership recursively", "chown|chgrp", _has(_RECURSIVE)),
    _rule("change-rights", "changes permissions recursively", "chmod", _both(_has(_RECURSIVE), _any_protected_path)),
    # disks
    _rule("format-disk", "formats or partitions a disk",
          r"mkfs(\..*)?|mke2fs|mkswap|fdisk|cfdisk|sfdisk|gdisk|sgdisk|parted|wipefs|cryptsetup|lvremove|vgremove|pvremove|blkdiscard|hdparm"),
    _rule("format-disk", "formats or partitions a disk", "zpool|zfs", _has("destroy")),
    _rule("format-disk", "formats or partitions a disk", "diskutil", _has("(?i)erase.*|partition.*")),
    _rule("write-device", "writes to a device", "dd", lambda args: any(
        is_protected_path(each[3:]) for each in args if each.startswith("of="))),
    _rule("mount", "changes mounted file systems", "mount|umount|swapoff|losetup", bool),
    # rights
    _rule("other-user", "runs as another user", "sudo|doas|su|pkexec|runuser|sudoedit"),
    _rule("users", "changes users or passwords",
          "useradd|userdel|usermod|adduser|deluser|groupadd|groupdel|passwd|chpasswd|vipw"),
    # the machine
    _rule("shutdown", "stops or restarts the machine", "shutdown|reboot|halt|poweroff|telinit"),
    _rule("shutdown", "stops or restarts the machine", "init", _has("[0-6]")),
    _rule("services", "stops or changes services", "systemctl",
          _has("stop|disable|mask|kill|poweroff|reboot|halt|restart|isolate|suspend|hibernate|kexec|emergency|rescue")),
    _rule("services", "stops or changes services", "service|rc-service", _has("stop|restart")),
    _rule("services", "stops or changes services", "launchctl", _has("unload|bootout|remove|stop|kill")),
    _rule("kill-many", "kills processes that it does not name one by one", "kill", _kills_all),
    _rule("kill-many", "kills processes that it does not name one by one", "killall|pkill|killall5|skill"),
    _rule("kernel", "changes the running kernel", "insmod|rmmod|modprobe|kexec"),
    _rule("kernel", "changes the running kernel", "sysctl", _has(r"-\w*[wp].*|--write|--system|.*=.*")),
    _rule("firewall", "changes the firewall", "iptables|ip6tables|nft|ufw|firewall-cmd|ipfw|pfctl"),
    _rule("schedule", "changes scheduled jobs", "crontab", lambda args: "-l" not in args),
    _rule("schedule", "changes scheduled jobs", "at|batch"),
    # version control
    _rule("git-force-push", "rewrites or deletes published branches of a repository", "git",
          _both(_has("push"), _has(f"{_FORCE}|-\\w*d\\w*|--delete|--mirror|--prune|\\+.+|:.+"))),
    _rule("git-discard", "discards uncommitted work", "git", _either(
        _both(_has("reset"), _has("--hard|--merge")),
        _both(_has("clean"), _has(_FORCE)),
        _both(_has("checkout|restore|switch"), _has(r"\.|:/|--force|-f|--discard-changes")),
        _both(_has("stash"), _has("drop|clear")))),
    _rule("git-rewrite", "deletes branches or rewrites history", "git", _either(
        _both(_has("branch|tag"), _has(r"-\w*[dD]\w*|--delete")),
        _both(_has("reflog"), _has("expire|delete")),
        _both(_has("update-ref"), _has("-d")),
        _both(_has("worktree"), _has("remove")),
        _has("filter-branch|filter-repo"))),
    # elsewhere
    _rule("containers", "deletes containers, images or volumes", "docker|podman|nerdctl", _either(
        _has("prune"), _both(_has("volume|system|image|container|network"), _has("rm|remove")),
        _both(_has("rm|rmi|kill"), _has(_FORCE)), _both(_has("compose|down"), _has("-v|--volumes")))),
    _rule("containers", "gives a container access to the host", "docker|podman|nerdctl",
          _has(r"--privileged|--pid=host|(-v|--volume=)?/:.*")),
    _rule("cluster", "deletes cluster or cloud resources", "kubectl|oc|helm", _has("delete|uninstall|drain")),
    _rule("cluster", "deletes cluster or cloud resources", "terraform|tofu|pulumi", _has("destroy")),
    _rule("cluster", "deletes cluster or cloud resources", "aws|gcloud|az|gsutil|s3cmd|rclone", _has(
        r"rm|rb|purge|delete|delete-.*|terminate-.*")),
    _rule("cluster", "deletes cluster or cloud resources", "gh|glab", _has("delete")),
    _rule("sql-destroy", "drops or empties a database table", "dropdb|dropuser"),
    _rule("publish", "publishes a package", "npm|yarn|pnpm|cargo|poetry|uv|flit|hatch|gem", _has("publish|push|unpublish|yank")),
    _rule("publish", "publishes a package", "twine", _has("upload")),
    _rule("computed-program", "starts a program that is only known at run time", "alias", bool),
)  # fmt: skip


@frozen
class Danger:
    """One reason to ask for approval: a stable key, and a description for the user."""

    key: str
    description: str


UNREADABLE = Danger("unreadable", "cannot be analysed before it runs")
COMPUTED_PROGRAM = Danger("computed-program", "starts a program that is only known at run time")
FORK_BOMB = Danger("fork-bomb", "starts processes without limit")
PIPE_TO_SHELL = Danger("pipe-to-shell", "runs the output of another program as code")
SQL_DESTROY = Danger("sql-destroy", "drops or empties a database table")
CODE_ACTS = Danger("code-acts", "runs code that deletes files or starts programs")
SYSTEM_FILES = Danger("system-files", "writes to system files, keys or shell startup files")

_MAX_DEPTH = 8
_MAX_INNER_WORDS = 200
_WORK_BUDGET = 1_000_000  # characters of scripts
_COMMAND_COST = 200  # in the same unit
_FORK_BOMB_PATTERN = re.compile(r"(?<![\w:.])([\w:.]{1,40})\(\)\{\1\|\1&\};?\1")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_RESERVED = frozenset(
    {
        "!", "{", "}", "if", "then", "elif", "else", "fi", "do", "done", "while", "until", "time", "case", "esac",
    }
)  # fmt: skip
_SCRIPT_PROGRAMS = frozenset({"eval", "ssh", "watch", "trap", "parallel"})
_OPTION_C_PROGRAMS = SHELLS | {"su", "runuser", "script"}
_STARTERS = WRAPPERS | _SCRIPT_PROGRAMS | _OPTION_C_PROGRAMS | {"find"}
_DOWNLOADS = frozenset({"curl", "wget", "fetch", "aria2c", "http", "nc"})


def find_dangers(command: str) -> tuple[Danger, ...]:
    """Return the dangers of a command without duplicates; empty if it needs no approval."""
    found = [FORK_BOMB] if _FORK_BOMB_PATTERN.search(re.sub(r"\s", "", command)) else []
    try:
        found.extend(_DangerFinder().in_script(command, 0))
    except UnparsableScript:
        found.append(UNREADABLE)
    return tuple(dict.fromkeys(found))


class _DangerFinder:
    """Walks a command and everything it would start, within a work budget, and visits the same words only once.

    Its methods raise :class:`UnparsableScript`.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()
        self._budget = _WORK_BUDGET

    def in_script(self, script: str, depth: int) -> Iterator[Danger]:
        """Yield the dangers of a script."""
        self._spend(len(script))
        if depth > _MAX_DEPTH:
            raise UnparsableScript("nested too deeply")
        for pipeline in parse_script(script):
            yield from self._in_pipeline(pipeline, depth)

    def _spend(self, cost: int) -> None:
        self._budget -= cost
        if self._budget < 0:
            raise UnparsableScript("too complex")

    def _in_pipeline(self, pipeline: Pipeline, depth: int) -> Iterator[Danger]:
        names = [_program_name(_strip_prefix(command.words)) for command in pipeline]
        for number, command in enumerate(pipeline):
            yield from self._in_command(command, depth)
            if number and _runs_input(_strip_prefix(command.words), names[:number]):
                yield PIPE_TO_SHELL
        texts = [text for command in pipeline for text in (*command.words, *command.documents)]
        if not set(names) <= DISPLAY_PROGRAMS and any(
            DESTRUCTIVE_SQL.search(text) for text in texts
        ):
            yield SQL_DESTROY

    def _in_command(self, command: SimpleCommand, depth: int) -> Iterator[Danger]:
        if any(
            "<" not in each.operator and is_protected_path(each.target)
            for each in command.redirects
        ):
            yield SYSTEM_FILES
        words = _strip_prefix(command.words)
        yield from self._in_words(words, depth)
        if _program_name(words) in SHELLS:
            for document in command.documents:
                yield from self.in_script(document, depth + 1)

    def _in_words(self, words: Sequence[str], depth: int) -> Iterator[Danger]:
        """Yield the dangers of the program that these words start, and of the programs that it starts."""
        if not words or tuple(words) in self._seen:
            return
        self._seen.add(tuple(words))
        self._spend(_COMMAND_COST + len(words))
        name, arguments = _program_name(words), list(words[1:])
        if _is_computed(words[0]):
            yield COMPUTED_PROGRAM
        yield from (
            Danger(rule.key, rule.description) for rule in RULES if rule.applies(name, arguments)
        )
        if name in INTERPRETERS and any(
            SIDE_EFFECT_CODE.search(argument) for argument in arguments
        ):
            yield CODE_ACTS
        yield from self._in_arguments(name, arguments, depth)

    def _in_arguments(self, name: str, arguments: list[str], depth: int) -> Iterator[Danger]:
        if name in _STARTERS and len(arguments) > _MAX_INNER_WORDS:
            raise UnparsableScript("too many words")
        for script in _scripts(name, arguments):
            yield from self.in_script(script, depth + 1)
        for words in _inner_commands(name, arguments):
            yield from self._in_words(words, depth)


def _scripts(name: str, arguments: list[str]) -> Sequence[str]:
    """Return the arguments that are scripts themselves."""
    if name in _OPTION_C_PROGRAMS and any(re.match(r"-\w*c|--command", each) for each in arguments):
        return [
            each.removeprefix("--command=")
            for each in arguments
            if not re.match(r"-(?!-command=)", each)
        ]
    if name in _SCRIPT_PROGRAMS:
        return [" ".join(arguments), *arguments]
    return ()


def _inner_commands(name: str, arguments: list[str]) -> Sequence[Sequence[str]]:
    """Return commands among the arguments.

    Where options end is unknown, so every argument may start one.
    """
    if name == "find":
        marks = [
            index for index, word in enumerate(arguments) if re.fullmatch(r"-(exec|ok)(dir)?", word)
        ]
        return [arguments[index + 1 :] for index in marks]
    if name in WRAPPERS | _SCRIPT_PROGRAMS:
        return [
            rest for index in range(len(arguments)) if (rest := _strip_prefix(arguments[index:]))
        ]
    return ()


def _runs_input(words: Sequence[str], sources: Sequence[str]) -> bool:
    """Return True if a program executes what it reads from a pipe."""
    programs = (
        {_program_name(words[index:]) for index in range(len(words))}
        if _is_wrapper(words)
        else {_program_name(words)}
    )
    files = [word for word in words[1:] if not word.startswith("-") and word != "/dev/stdin"]
    if programs & SHELLS:
        return not files or "-s" in words or _is_wrapper(words)
    return bool(programs & INTERPRETERS and set(sources) & _DOWNLOADS)


def _is_wrapper(words: Sequence[str]) -> bool:
    return _program_name(words) in WRAPPERS


def _strip_prefix(words: Sequence[str]) -> list[str]:
    """Return the words without leading assignments and reserved words."""
    first = 0
    while first < len(words) and (words[first] in _RESERVED or _ASSIGNMENT.match(words[first])):
        first += 3 if words[first] == "case" else 1  # case WORD in
    return list(words[first:])


def _program_name(words: Sequence[str]) -> str:
    return basename(words[0]) if words else ""


def _is_computed(word: str) -> bool:
    """Return True if the name of a program is only known at run time."""
    return word != "()" and (
        COMPUTED in word or any(mark in word for mark in "$*?") or "{" in word[:1]
    )
