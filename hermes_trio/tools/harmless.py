"""The reviewed list of commands that run without approval, with their harmless arguments.

A command is on the list if it can neither change a file nor start a program that is not on the
list, whatever the named files contain. Options are listed one by one unless every option of the
program is harmless. What is not on the list is not necessarily dangerous; it is only not known to
be harmless.

Entries assume Linux programs. An option that is listed as taking a value must really take one, or
the next word would escape the review; the other way round, the command only asks too often.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from posixpath import split
from types import MappingProxyType

from attrs import frozen


@frozen
class Word:
    """A word of a command, without its quotes.

    The last three say what the shell may replace it by: by something else at all, by several words,
    by a word that begins with a dash.
    """

    text: str
    is_computed: bool = False
    can_split: bool = False
    can_be_option: bool = False


Review = Callable[[Sequence[Word]], bool]
"""Return True if a program is harmless with these arguments."""

PROGRAM_DIRECTORIES = frozenset({"", "/bin", "/usr/bin", "/usr/local/bin"})


def is_harmless(words: Sequence[Word]) -> bool:
    """Return True if a command is on the list."""
    review = find_review(words[0]) if words else None
    return review is not None and review(words[1:])


def find_review(program: Word) -> Review | None:
    """Return the entry of a program, or None if it is not on the list."""
    directory, name = split(program.text)
    if program.is_computed or directory not in PROGRAM_DIRECTORIES:
        return None
    if re.fullmatch(r"(python|pip)[23]?(\.\d+)?", name):
        name = re.sub(r"[\d.]+$", "", name)
    return PROGRAMS.get(name)


def _anything(_arguments: Sequence[Word]) -> bool:
    return True


def _nothing(arguments: Sequence[Word]) -> bool:
    return not arguments


@frozen
class _OptionReview:
    """Reviews options and other arguments one by one."""

    flags: re.Pattern[str]
    valued: re.Pattern[str]
    others: re.Pattern[str]
    most: int | None

    def __call__(self, arguments: Sequence[Word]) -> bool:
        words = iter(arguments)
        others: list[Word] = []
        for word in words:
            if word == Word("--"):
                others += words
            elif word.can_be_option:
                return False
            elif not word.text.startswith("-") or word.text == "-":
                others.append(word)
            elif self.valued.fullmatch(word.text):
                if next(words, Word("")).can_split:
                    return False
            elif word.is_computed or not self.flags.fullmatch(word.text):
                return False
        return self._are_harmless(others)

    def _are_harmless(self, others: Sequence[Word]) -> bool:
        if self.most is not None and (
            len(others) > self.most or any(word.can_split for word in others)
        ):
            return False
        return not self.others.pattern or all(
            not word.is_computed and self.others.fullmatch(word.text) for word in others
        )


def _options(flags: str, valued: str = "", others: str = "", most: int | None = None) -> Review:
    """Make a review of options and other arguments.

    Args:
        flags: a regular expression for the options that are harmless, each as one word.
        valued: the same, for options whose value is the next word.
        others: the same, for the other arguments; by default, all are harmless.
        most: how many other arguments are harmless; by default, any number.
    """
    flag, value, other = (re.compile(each, re.DOTALL) for each in (flags, valued, others))
    return _OptionReview(flag, value, other, most)


def _one_of(*commands: str) -> Review:
    """Make a review that accepts only these arguments, each given as one line."""
    accepted = {tuple(command.split()) for command in commands}
    return lambda arguments: (
        not any(word.is_computed for word in arguments)
        and tuple(word.text for word in arguments) in accepted
    )


def _after(first: str, rest: Review) -> Review:
    """Make a review of the arguments that follow a particular one."""
    return lambda arguments: bool(arguments) and arguments[0] == Word(first) and rest(arguments[1:])


def _either(*reviews: Review) -> Review:
    return lambda arguments: any(review(arguments) for review in reviews)


# -- programs with a syntax of their own --

_UNARY = frozenset(
    {
        "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k", "-L", "-n", "-N", "-O", "-G", "-p", "-r",
        "-s", "-S", "-t", "-u", "-w", "-x", "-z",
    }
)  # fmt: skip
_BINARY = frozenset(
    {
        "=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef",
    }
)  # fmt: skip


def _review_test(arguments: Sequence[Word]) -> bool:
    """Accept comparisons whose operator is in plain sight.

    With ``-v`` and ``-R``, bash evaluates its operand, which can contain a command.
    """
    words = list(arguments)
    if words and words[0] == Word("!"):
        words = words[1:]
    if any(word.can_split for word in words):
        return False
    match words:
        case [operator, _]:
            return not operator.is_computed and operator.text in _UNARY
        case [_, operator, _]:
            return not operator.is_computed and operator.text in _BINARY
        case _:
            return len(words) == 1


def _review_bracket(arguments: Sequence[Word]) -> bool:
    return bool(arguments) and arguments[-1] == Word("]") and _review_test(arguments[:-1])


def _review_printf(arguments: Sequence[Word]) -> bool:
    """Accept a format in plain sight: ``printf -v`` of bash sets a variable."""
    return bool(arguments) and not (arguments[0].can_be_option or arguments[0].text.startswith("-"))


def _review_timeout(arguments: Sequence[Word]) -> bool:
    return (
        bool(arguments)
        and not arguments[0].is_computed
        and re.fullmatch(r"\d+(\.\d+)?[smh]?", arguments[0].text) is not None
        and is_harmless(arguments[1:])
    )


_XARGS_FLAG = re.compile(
    r"-[0rtx]+|--null|--no-run-if-empty|-[nPL]\d+|-I\S+|-d\S+|--(max-args|max-procs)=\d+"
)


def _review_xargs(arguments: Sequence[Word]) -> bool:
    """Accept programs that are harmless with any arguments."""
    words = list(arguments)
    while words and not words[0].is_computed and words[0].text.startswith("-"):
        if words[0].text in ("-n", "-P", "-L", "-I", "-d"):
            words = words[2:]
        elif _XARGS_FLAG.fullmatch(words[0].text):
            words = words[1:]
        else:
            return False
    return not words or (not words[0].is_computed and words[0].text in _FREE_PROGRAMS)


def _review_tar(arguments: Sequence[Word]) -> bool:
    """Accept a list of the contents. A colon in the name of an archive means another machine."""
    match arguments:
        case [mode, *files] if re.fullmatch(r"-?t[vzjJ]*f", mode.text):
            return not mode.is_computed and _options("", others=r"[^:]+")(files)
        case _:
            return False


_ADDRESS = r"(\d+|\$|/[^/\\\n]*/)"
_SED_SCRIPT = re.compile(
    rf"({_ADDRESS}(,{_ADDRESS})?)?([pdq=]|s/[^/\\\n]*/[^/\\\n]*/[gpIi\d]*)"
    rf"(;{_ADDRESS}(,{_ADDRESS})?[pdq=])*"
)


def _review_sed(arguments: Sequence[Word]) -> bool:
    """Accept scripts that print, delete or replace; the commands e and w start programs and write files."""
    scripts = [word for word in arguments if not word.text.startswith("-")]
    return (
        _options(r"-[nErs]+|--(quiet|silent|regexp-extended)")(arguments)
        and bool(scripts)
        and not scripts[0].is_computed
        and _SED_SCRIPT.fullmatch(scripts[0].text) is not None
    )


_FIND = _options(
    r"-(name|iname|path|ipath|wholename|regex|iregex|regextype|type|xtype|maxdepth|mindepth|size"
    r"|mtime|ctime|atime|mmin|cmin|amin|newer|newer[aBcm][aBcmt]|anewer|cnewer|empty|print|print0"
    r"|printf|ls|not|o|or|a|and|prune|depth|mount|xdev|follow|perm|user|group|nouser|nogroup|readable"
    r"|writable|executable|links|inum|samefile|true|false|quit|daystart|L|P|H|[\d.]+\w?)"
)

# -- git --

_LOG = (
    r"-\d+|-[nUM]\d+|-[pucswbzatR]|-[SGLM].+|--(oneline|graph|all|decorate|no-decorate|stat|shortstat|numstat|dirstat"
    r"|summary|name-only|name-status|patch|no-patch|raw|cached|staged|merges|no-merges|first-parent"
    r"|reverse|follow|abbrev-commit|no-abbrev-commit|word-diff|color-words|no-color|color|minimal|patience|histogram"
    r"|check|quiet|exit-code|no-ext-diff|no-textconv|no-renames|find-renames|full-index|branches|tags"
    r"|remotes|topo-order|date-order|simplify-by-decoration|left-right|cherry-pick|cherry|no-index"
    r"|ignore-all-space|ignore-space-change|ignore-blank-lines|relative|merge-base|compact-summary"
    r"|no-walk|source|cc|text|binary|function-context|regexp-ignore-case)"
    r"|--(format|pretty|date|since|until|after|before|author|committer|grep|max-count|skip|stat|color"
    r"|decorate|diff-filter|unified|abbrev|word-diff|branches|tags|remotes|diff-algorithm|find-renames"
    r"|relative|submodule|ignore-submodules|inter-hunk-context)=.*"
)
_LOG_VALUED = r"-n|-S|-G|-L|--(since|until|after|before|author|grep|max-count|skip)"
_GIT: Mapping[str, Review] = MappingProxyType(
    {
        "status": _options(
            r"-[sbvz]+|-u(no|normal|all)?|--(short|branch|long|verbose|show-stash|ignored|porcelain|untracked-files)(=\w+)?"
        ),
        "log": _options(_LOG, _LOG_VALUED),
        "show": _options(_LOG, _LOG_VALUED),
        "diff": _options(_LOG, _LOG_VALUED),
        "shortlog": _options(rf"-[sne]+|{_LOG}", _LOG_VALUED),
        "rev-list": _options(rf"--count|{_LOG}", _LOG_VALUED),
        "branch": _either(
            _options(
                r"-[arv]+|-vv|--(show-current|all|remotes|no-color)|--(merged|no-merged|contains|sort|format)=.*",
                r"--(merged|no-merged|contains)",
                most=0,
            ),
            _after("--list", _options(r"-[arv]+|-vv|--(sort|format)=.*")),
        ),
        "tag": _either(
            _nothing,
            _after("--list", _options(r"-n\d*|--(sort|format)=.*")),
            _after("-l", _options(r"-n\d*|--(sort|format)=.*")),
        ),
        "remote": _either(
            _one_of("", "-v"), _after("get-url", _options("--all", most=1)),
        ),
        "rev-parse": _options(
            r"--(show-toplevel|show-prefix|git-dir|git-common-dir|is-inside-work-tree|is-bare-repository|verify|quiet"
            r"|absolute-git-dir|abbrev-ref|short|symbolic-full-name|short=\d+)|-q"
        ),
        "ls-files": _options(
            r"-[cdmosiztv]+|--(cached|deleted|modified|others|stage|ignored|exclude-standard|full-name|error-unmatch|directory)"
        ),
        "ls-tree": _options(r"-[rdtlz]+|--(name-only|name-status|long|full-name|full-tree)"),
        "cat-file": _options(r"-[ptse]"),
        "blame": _options(r"-[westlfMC]+|-L.+|--(date=.*|porcelain|show-email)", "-L"),
        "describe": _options(r"--(tags|always|dirty|long|all|contains|exact-match)|--(abbrev|match)=.*"),
        "grep": _options(
            r"-[niIlLcwvEFPhHr]+|-[ABC]\d+|--(cached|untracked|count|line-number|ignore-case|files-with-matches|name-only|heading|break|all-match|and|or|not)",
            r"-e|-[ABC]",
        ),
        "merge-base": _options(r"--(all|is-ancestor|fork-point|octopus)"),
        "stash": _one_of("list"),
        "worktree": _one_of("list", "list --porcelain"),
        "reflog": _options(r"-\d+|-n\d+|--oneline", "-n", others="show|HEAD", most=2),
        "count-objects": _options(r"-[vH]+"),
        "version": _nothing,
        "--version": _nothing,
    }
)  # fmt: skip
"""Sub-commands of git that only read. Options that write files, or start the programs that a
repository's configuration names, are left out; see :data:`UNASKED_ENVIRONMENT`."""

UNASKED_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": "false",
        "GIT_CONFIG_KEY_1": "safe.bareRepository",
        "GIT_CONFIG_VALUE_1": "explicit",
    }
)
"""Variables for commands that run unasked. Without them, a folder in the workspace that looks like
a bare repository could make ``git status`` start any program."""


def _review_git(arguments: Sequence[Word]) -> bool:
    words = list(arguments)
    while words and words[0].text in ("--no-pager", "-P", "-C"):
        if words[0].text == "-C" and (len(words) < 2 or words[1].can_split):
            return False
        words = words[2:] if words[0].text == "-C" else words[1:]
    review = None if not words or words[0].is_computed else _GIT.get(words[0].text)
    return review is not None and review(words[1:])


# -- the list --

# Harmless with all options and files: they print what they read.
_FREE_PROGRAMS = frozenset(
    {
        "basename", "cat", "cksum", "cmp", "comm", "cut", "df", "diff", "dirname", "du", "echo",
        "egrep", "expand", "fgrep", "fold", "grep", "head", "ls", "md5sum", "nl", "od", "paste",
        "readlink", "realpath", "rev", "seq", "sha1sum", "sha224sum", "sha256sum", "sha384sum",
        "sha512sum", "stat", "sum", "tac", "tail", "tr", "unexpand", "wc",
    }
)  # fmt: skip
_FREE_BUILTINS = frozenset(
    {
        ":", "arch", "cal", "cd", "exit", "false", "free", "groups", "id", "locale", "lscpu",
        "nproc", "printenv", "pwd", "sleep", "true", "type", "uname", "uptime", "which", "whoami",
        "yes",
    }
)  # fmt: skip

PROGRAMS: Mapping[str, Review] = MappingProxyType(
    dict.fromkeys(_FREE_PROGRAMS | _FREE_BUILTINS, _anything)
    | dict.fromkeys(("make", "gcc", "node", "perl", "ruby", "bash", "uv"), _one_of("--version"))
    | {
        "[": _review_bracket,
        "base64": _options(r"-[di]|-w\d+|--decode|--wrap=\d+", "-w"),
        "column": _options(r"-[txe]+|-s.+|--table", "-s"),
        "command": _after("-v", _anything),
        "date": _options(
            r"-[uR]|-I\w*|-d.+|--(utc|universal|iso-8601|rfc-email|debug)|--(date|iso-8601|rfc-3339|reference)=.*",
            r"-[dr]|--date|--reference",
            others=r"\+.*",
        ),
        "env": _nothing,
        "file": _options(r"-[bhiLk]+|--(brief|mime|mime-type|mime-encoding|dereference)"),
        "find": _FIND,
        "git": _review_git,
        "hostname": _options(r"-[fsiId]|--(fqdn|short|ip-address)", most=0),
        "java": _one_of("-version", "--version"),
        "jq": _options(
            r"-[rcnesSajMC]+|--(raw-output|compact-output|null-input|exit-status|slurp|sort-keys|join-output|tab)"
        ),
        "pip": _either(
            _one_of("--version", "-V", "list"),
            _after("show", _options("-f|--files")),
        ),
        "printf": _review_printf,
        "ps": _options(r"-e|-ef|-A|-f|-l", r"-[opCu]", others=r"aux(f|w{1,2})?|ax"),
        "python": _one_of("--version", "-V", "-VV"),
        "rg": _options(
            r"-[ilnNwcvFSsoUPuHIaxhLp0]+|-[ABCmd]\d+|-[gtT].+|--(files|files-with-matches|files-without-match|count"
            r"|count-matches|ignore-case|smart-case|fixed-strings|word-regexp|line-number|no-line-number|hidden"
            r"|no-ignore|no-heading|heading|multiline|only-matching|invert-match|json|stats|type-list|follow"
            r"|no-filename|with-filename|vimgrep|trim|version)"
            r"|--(glob|iglob|type|type-not|max-count|max-depth|context|after-context|before-context|color|sort|sortr|regexp)=.*",
            r"-[egtTABCmrd]|--(glob|iglob|type|type-not|max-count|max-depth|context|regexp)",
        ),
        "sed": _review_sed,
        "set": _either(
            _options("-[eux]+", most=0), _one_of("-o pipefail", "-eo pipefail", "-euo pipefail", "-euxo pipefail")
        ),
        "sort": _options(
            r"-[bdfgiMhnRrVsuzcCm]*(k[\d.,bdfgiMhnRrV]+)?|-t.|--(reverse|numeric-sort|unique|human-numeric-sort"
            r"|version-sort|ignore-case|general-numeric-sort)|--(key|field-separator)=.*",
            r"-[bdfgiMhnRrVsuz]*k|-t|--key|--field-separator",
        ),
        "tar": _review_tar,
        "test": _review_test,
        "time": is_harmless,
        "timeout": _review_timeout,
        "tree": _options(r"-[adfishCDFL]+|--(dirsfirst|noreport|du|gitignore)|-L\d+", r"-[LIP]"),
        "uniq": _options(r"-[cdui]+|-[fsw]\d+|--(count|repeated|unique|ignore-case)", "-[fsw]", most=1),
        "unzip": _after("-l", _options("", most=1)),
        "wait": _nothing,
        "xargs": _review_xargs,
        "xxd": _options(r"-[pubir]|-[clsg]\d+", "-[clsg]", most=1),
    }
)  # fmt: skip
