"""Print size and shape of the package: ``python -m scripts.metrics [PACKAGE]``.

* modules, with and without the files of packages (``__init__``), and lines;
* the length of functions, from ``def`` to the last line, nested functions included: median, 90th percentile, maximum;
* class names that are defined more than once;
* lonely modules: under 100 lines, imported by exactly one other module of the package.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import define, field, frozen

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "hermes_trio"
LONELY_LINES = 100


@frozen
class FunctionLength:
    """A function and its length in lines."""

    lines: int
    name: str
    module: str


@define
class Metrics:
    """Everything measured of one package."""

    lines: Mapping[str, int]  # by module
    packages: frozenset[str]
    functions: list[FunctionLength] = field(factory=list)
    classes: dict[str, list[str]] = field(factory=lambda: defaultdict(list))  # name -> modules
    importers: dict[str, set[str]] = field(factory=lambda: defaultdict(set))

    @property
    def duplicate_classes(self) -> dict[str, list[str]]:
        """Class names with more than one definition, and the modules that hold them."""
        return {name: where for name, where in sorted(self.classes.items()) if len(where) > 1}

    @property
    def lonely_modules(self) -> list[tuple[str, int, str]]:
        """Short modules with one importer: name, lines, importer."""
        return [
            (module, lines, next(iter(self.importers[module])))
            for module, lines in sorted(self.lines.items())
            if lines < LONELY_LINES
            and len(self.importers[module]) == 1
            and module not in self.packages
        ]

    def percentile(self, share: float) -> int:
        """Return the length that a share of all functions does not exceed."""
        lengths = sorted(function.lines for function in self.functions)
        return lengths[min(int(share * len(lengths)), len(lengths) - 1)]


def measure(package: Path = PACKAGE) -> Metrics:
    """Read every module of a package."""
    paths = {_module_name(path, package): path for path in sorted(package.rglob("*.py"))}
    texts = {module: path.read_text(encoding="utf-8") for module, path in paths.items()}
    metrics = Metrics(
        {module: len(text.splitlines()) for module, text in texts.items()},
        frozenset(module for module, path in paths.items() if path.name == "__init__.py"),
    )
    for module, text in texts.items():
        _measure_module(module, ast.parse(text), metrics)
    return metrics


def _module_name(path: Path, package: Path) -> str:
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def _measure_module(module: str, tree: ast.Module, metrics: Metrics) -> None:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name):
                metrics.classes[name].append(module)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                metrics.functions.append(FunctionLength(lines, node.name, module))
            case ast.Import() | ast.ImportFrom():
                for imported in _imported(node):
                    if imported in metrics.lines and imported != module:
                        metrics.importers[imported].add(module)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The dotted names that may be modules; the package has no relative imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif node.module is not None:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def report(metrics: Metrics) -> Iterator[str]:
    """Yield the lines to print."""
    longest = max(metrics.functions, key=lambda function: function.lines)
    median = statistics.median(function.lines for function in metrics.functions)
    modules = len(metrics.lines)
    yield f"modules           {modules}, {modules - len(metrics.packages)} without packages"
    yield f"lines             {sum(metrics.lines.values())}"
    yield f"functions         {len(metrics.functions)}"
    yield f"function length   median {median:g}, p90 {metrics.percentile(0.9)}, max {longest.lines} ({longest.module}.{longest.name})"
    yield f"duplicate classes {len(metrics.duplicate_classes)}"
    yield from (
        f"  {name}: {', '.join(where)}" for name, where in metrics.duplicate_classes.items()
    )
    yield f"lonely modules    {len(metrics.lonely_modules)}"
    yield from (f"  {module} ({lines} lines): {by}" for module, lines, by in metrics.lonely_modules)


def main(arguments: list[str]) -> None:
    """Measure this package, or the one in the arguments."""
    package = Path(arguments[0]).resolve() if arguments else PACKAGE
    sys.stdout.writelines(f"{line}\n" for line in report(measure(package)))


if __name__ == "__main__":
    main(sys.argv[1:])
