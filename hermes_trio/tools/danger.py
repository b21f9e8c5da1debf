"""Decide which shell commands need a person's approval before they run.

A command runs unasked only if all of it is understood and every program that it starts is on the
reviewed list of :mod:`hermes_trio.tools.harmless`. Everything else asks: programs that are not on
the list, output that goes to a file, and whatever :mod:`hermes_trio.tools.shell_syntax` refuses.
The rules in this module do not decide; they give the reason for asking a better name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from posixpath import basename, normpath

from attrs import frozen

from hermes_trio.core.shorten import shorten
from hermes_trio.tools.harmless import Word, find_review, is_harmless
from hermes_trio.tools.shell_syntax import (
    Assignment,
    ParsedCommand,
    ProgramStart,
    Redirection,
    UnreadableCommand,
    parse_command,
)

_SECRETS = re.compile(
    r"(^|[/=:~])(\.ssh|\.gnupg|\.aws|\.kube|\.docker|\.netrc|\.pgpass|\.npmrc|\.pypirc|\.git-credentials)(/|$)"
    r"|/etc/(g?shadow|sudoers)|/proc/[^/]+/(environ|mem|maps|root|cwd|fd|task)\b|(^|/)\.env(\.|$)"
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
    _rule("sets-variable", "sets a variable that can change what programs do", "export|declare|typeset|local|readonly|unset|unsetenv|read|getopts"),
    # code
    _rule("code", "runs code that is among its arguments, in a file or in its input",
          r"(ba|da|z|k|fi|a)?sh|\.|source|eval|exec|trap|alias|(python|pypy|perl|ruby|node|php|lua|deno|bun)[\d.]*|nodejs|[gm]?awk|osascript|pwsh"),
    _rule("starts-programs", "starts a program that is among its arguments",
          "env|nohup|nice|ionice|timeout|time|command|builtin|xargs|stdbuf|setsid|chroot|busybox|toybox|flock|strace"
          "|unshare|nsenter|parallel|systemd-run|taskset|chrt|watch|ssh|script"),
    _rule("starts-programs", "starts a program that is among its arguments", "find", _has(r"-(exec|ok)(dir)?")),
    _rule("network", "uses the network", "curl|wget|nc|ncat|socat|telnet|ftp|sftp|scp|rsync|aria2c|ping|dig|nslookup"),
    _rule("install", "installs packages", "pip[23]?|uv|npm|pnpm|yarn|apt|apt-get|dnf|yum|apk|brew|cargo|gem|conda|pipx",
          _has("install|add|i|sync|upgrade|update|remove|uninstall")),
    _rule("changes-files", "creates, changes or deletes files",
          "rm|rmdir|unlink|mv|cp|ln|install|touch|mkdir|truncate|tee|sponge|dd|chmod|chown|patch|tar|unzip|gzip|split"),
    _rule("changes-files", "creates, changes or deletes files", "sed", _has(r"-\w*i.*|--in-place.*")),
)  # fmt: skip


@frozen
class Danger:
    """One reason to ask for approval: a stable key, and a description for the user.

    Without ``allows_permanent``, the same words can do something else the next time, so that an
    approval must not be remembered for all sessions.
    """

    key: str
    description: str
    allows_permanent: bool = True


UNREADABLE = Danger("unreadable", "cannot be analysed before it runs", allows_permanent=False)
COMPUTED_PROGRAM = Danger(
    "computed-program", "starts a program that is only known at run time", allows_permanent=False
)
COMPUTED_ARGUMENTS = Danger(
    "computed-arguments", "has arguments that are only known at run time", allows_permanent=False
)
PIPED = Danger(
    "piped", "passes output to a program that is not known to be harmless", allows_permanent=False
)
PIPE_TO_SHELL = Danger(
    "pipe-to-shell", "runs the output of another program as code", allows_permanent=False
)
WRITES_FILE = Danger("writes-file", "writes its output to a file")
SYSTEM_FILES = Danger("system-files", "writes to system files, keys or shell startup files")
READS_SECRETS = Danger("reads-secrets", "reads keys or passwords")
# Lower-case variables change nothing but the script itself; PATH, IFS or LD_PRELOAD change what
# programs do.
_HARMLESS_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*|LC_[A-Z]+|LANG|TZ")
SETS_VARIABLE = Danger("sets-variable", "sets a variable that can change what programs do")


def find_dangers(command: str, allowed: Sequence[str] = ()) -> tuple[Danger, ...]:
    """Return the reasons to ask before a command runs, without duplicates; none if it is harmless.

    Never raises, and takes at most a fraction of a second.

    Args:
        command: for ``/bin/sh -c``.
        allowed: commands that the operator considers harmless, such as ``make test``. More words
            may follow.
    """
    prefixes = tuple(prefix for each in allowed if (prefix := tuple(shlex.split(each))))
    try:
        parsed = parse_command(command)
    except UnreadableCommand:
        return (UNREADABLE,)
    return tuple(dict.fromkeys(_in_command(parsed, prefixes)))


def _in_command(parsed: ParsedCommand, allowed: Sequence[tuple[str, ...]]) -> Iterator[Danger]:
    for assignment in parsed.assignments:
        yield from _in_assignment(assignment)
    for redirection in parsed.redirections:
        yield from _in_redirection(redirection)
    for program in parsed.programs:
        if any(_SECRETS.search(word.text) for word in program.words):
            yield READS_SECRETS
        if not (is_harmless(program.words) or _is_allowed(program.words, allowed)):
            yield from _in_program(program)


def _in_assignment(assignment: Assignment) -> Iterator[Danger]:
    value = assignment.value or Word("")
    # Bash can evaluate a dollar sign in a value when the variable is used.
    is_literal_code = not value.is_computed and "$" in value.text
    if is_literal_code or not _HARMLESS_VARIABLE.fullmatch(assignment.name):
        yield SETS_VARIABLE


def _in_redirection(redirection: Redirection) -> Iterator[Danger]:
    target = redirection.target
    match redirection.operator:
        case "<":
            if _SECRETS.search(target.text):
                yield READS_SECRETS
        case ">&" | "<&" if target in (Word("0"), Word("1"), Word("2")):
            pass
        case ">" | ">>" if target == Word("/dev/null"):
            pass
        case _:
            yield SYSTEM_FILES if is_protected_path(target.text) else WRITES_FILE
            if target.is_computed:
                yield COMPUTED_ARGUMENTS


def _in_program(program: ProgramStart) -> Iterator[Danger]:
    """Yield the reasons to ask about a program that is not known to be harmless."""
    first, arguments = program.words[0], program.words[1:]
    if first.is_computed:
        yield COMPUTED_PROGRAM
        return
    name, texts = basename(first.text), [word.text for word in arguments]
    matching = [rule for rule in RULES if rule.applies(name, texts)]
    for rule in matching:
        yield Danger(rule.key, rule.description)
    if not matching:
        shown = shorten(name, 60)
        if find_review(first):
            description = f"runs {shown} with arguments that are not known to be harmless"
            yield Danger("unknown-arguments", description)
        else:
            yield Danger("unknown-program", f"runs {shown}, which is not known to be harmless")
    if any(word.is_computed for word in arguments):
        yield COMPUTED_ARGUMENTS
    if program.reads_pipe:
        yield PIPE_TO_SHELL if any(rule.key == "code" for rule in matching) else PIPED


def _is_allowed(words: Sequence[Word], allowed: Sequence[tuple[str, ...]]) -> bool:
    return any(words[: len(prefix)] == tuple(Word(text) for text in prefix) for prefix in allowed)
