"""The house rules that a machine can check: floors, prints, state, paths, lengths, names."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(
    path
    for folder in ("rotatek", "kernels", "viz")
    for path in (ROOT / folder).rglob("*.py")
    if not {"__pycache__", "tests"} & {*path.relative_to(ROOT).parts}
) + [path for path in [ROOT / "app.py"] if path.exists()]


# Each module may import from its own floor or any lower one. Longest prefix wins; the package
# itself is no prefix: a new module of its names its floor.
FLOORS = {
    "rotatek.errors": 0,
    "rotatek.paths": 0,
    "rotatek.bridge": 1,
    "rotatek.inputs": 1,
    "rotatek.methods": 2,
    "rotatek.cache": 3,
    "rotatek.inspect": 4,
    "rotatek.models": 4,
    "rotatek.engine": 5,
    "rotatek.compare": 6,
    "rotatek.evaluation": 7,
    "rotatek.pictures": 7,
    "rotatek.service": 7,
    "rotatek.page": 8,
    "rotatek.server": 8,
    "rotatek.cluster": 9,
    "rotatek.cli": 10,
    "rotatek.__main__": 11,
    "app": 11,
}
PAGE_FLOOR = FLOORS["rotatek.page"]
KERNELS_MAY_IMPORT = {"torch", "triton", "kernels"} | set(sys.stdlib_module_names)
VIZ_MAY_IMPORT = {"numpy", "viz"} | set(sys.stdlib_module_names)
COMMAND_LINES = {"__main__.py"}
COMMANDS = ROOT / "rotatek" / "cli"


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor(module: str) -> int | None:
    if module == "rotatek":
        return 0
    prefix = module
    while prefix and prefix != "rotatek":
        if prefix in FLOORS:
            return FLOORS[prefix]
        prefix = prefix.rpartition(".")[0]
    return None


def imports(path: Path) -> Iterator[str]:
    """Every imported module; `from package import module` counts as package.module."""
    package = (
        module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    )
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                candidate = f"{base}.{alias.name}"
                file = ROOT / Path(*candidate.split("."))
                known = file.with_suffix(".py").exists() or file.is_dir()
                yield candidate if known else base


@pytest.mark.unversioned
@pytest.mark.parametrize("path", SHIPPED, ids=relative)
def test_imports_point_down(path: Path) -> None:
    # The package loads its public names when they are asked for, from wherever they are.
    own = max(FLOORS.values()) if module_name(path) == "rotatek" else floor(module_name(path))
    for name in imports(path):
        top = name.partition(".")[0]
        if path.is_relative_to(ROOT / "kernels"):
            assert top in KERNELS_MAY_IMPORT, f"kernels must not import {name}"
        elif path.is_relative_to(ROOT / "viz"):
            assert top in VIZ_MAY_IMPORT, f"viz must not import {name}"
        elif top in ("rotatek", "benchmarks"):
            target = floor(name)
            assert own is not None, f"{relative(path)} has no floor: add it to FLOORS"
            assert target is not None and target <= own, (
                f"{relative(path)} imports {name}, above it"
            )
        elif top == "ray":
            assert path.is_relative_to(ROOT / "rotatek" / "cluster"), f"Ray is in {relative(path)}"
        elif top in ("viz", "app", "gradio", "plotly"):
            assert own is not None and own >= PAGE_FLOOR, f"{relative(path)} must not import {name}"


@pytest.mark.unversioned
def test_no_import_circle() -> None:
    graph = {module_name(path): set(imports(path)) for path in SHIPPED}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join([*trail[trail.index(module) :], module])
        if module not in done:
            for target in graph.get(module, set()) & graph.keys() - {module}:
                # A package's __init__ may gather its own modules, which may import the package's
                # siblings but not the package.
                visit(target, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


# What is made from the registries knows no method: one that is added appears there by itself.
NAMELESS = [
    path
    for path in SHIPPED
    if relative(path).startswith(("rotatek/page/", "rotatek/cli/", "rotatek/compare/", "viz/"))
    or relative(path)
    in (
        "rotatek/inspect/trace.py",
        "rotatek/inspect/trace_analysis.py",
    )
]


@pytest.mark.unversioned
@pytest.mark.parametrize("path", NAMELESS, ids=relative)
def test_no_method_is_named_where_registries_are_read(path: Path) -> None:
    names = {*CHANNELS.own, *TOKENS.own} - {"none"}  # which is a word of its own, too
    labels = {kind.label for kind in CHANNELS.own.values() if kind.label != "RotateK"}
    labels |= {kind.label for kind in TOKENS.own.values()}
    tree = ast.parse(path.read_text())
    prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            said = [label for label in labels if label in node.value]
            assert node.value not in names - {"rotatek"} and not said, f"line {node.lineno}"
        if isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            assert name not in {"RotateK", "ThinK", "SparK", "FastV", "VisionZip"}, name


@pytest.mark.unversioned
@pytest.mark.parametrize("path", SHIPPED, ids=relative)
def test_no_print_outside_command_lines(path: Path) -> None:
    if path.name in COMMAND_LINES or path.is_relative_to(COMMANDS):
        return
    if 'if __name__ == "__main__":' in path.read_text():
        return
    calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
    lines = [n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id == "print"]
    assert not lines, f"print on line {lines}"


def is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    makers = {"list", "dict", "set", "defaultdict", "OrderedDict", "deque", "Lock", "local"}
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else None
        name = value.func.id if isinstance(value.func, ast.Name) else name
        return name in makers
    return False


@pytest.mark.unversioned
@pytest.mark.parametrize("path", SHIPPED, ids=relative)
def test_no_mutable_state_at_module_level(path: Path) -> None:
    """Tables spelt in capitals are constants, which the next test holds to; nothing else is."""
    tree = ast.parse(path.read_text())
    assert not [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Global)], "a global statement"
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not is_mutable(node.value):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        allowed = names == ["__all__"] or all(name.isupper() for name in names)
        assert allowed, f"line {node.lineno}: {names} is a mutable variable of the module"


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, from the repository's root."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


LIBRARY = sorted(
    module_name(path)
    for path in SHIPPED
    if module_name(path).split(".")[0] in ("rotatek", "kernels")
    and path.name != "__main__.py"
    and not path.is_relative_to(ROOT / "rotatek" / "page")  # the page's own, above the engine
)


def test_a_fresh_interpreter_imports_transformers_and_all_of_the_library() -> None:
    """Hugging Face has a package named kernels; ours must not be taken for it, or the other way
    round. The library needs neither gradio nor plotly nor lmms_eval: they are blocked."""
    foreign = (
        "rotatek.evaluation.lmms_manifest",
        "rotatek.evaluation.lmms_model",
    )
    guarded = [name for name in LIBRARY if "triton" not in name and name not in foreign]
    code = (
        "import sys, importlib\n"
        "for name in ('gradio', 'plotly', 'lmms_eval'): sys.modules[name] = None\n"
        "import transformers, kernels, pathlib\n"
        "from transformers import AutoModelForImageTextToText, Qwen2_5_VLForConditionalGeneration\n"
        "assert pathlib.Path(kernels.__file__).parent == pathlib.Path('kernels').resolve()\n"
        "assert not hasattr(kernels, '__version__')\n"
        f"for name in {guarded}: importlib.import_module(name)\n"
    )
    result = python(code)
    assert result.returncode == 0, result.stderr


def requirement_lines() -> set[str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def test_requirements_agree_with_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert requirement_lines() == {
        *project["dependencies"],
        *project["optional-dependencies"]["app"],
    }
    assert "torchvision" not in "".join(requirement_lines())


def test_nothing_heavy_or_private_is_tracked() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    present = [path for path in files if path.exists()]
    large = [relative(p) for p in present if p.stat().st_size > 10_000_000]
    assert not large, f"a Space refuses plain files above 10 MB: {large}"
    assert sum(p.stat().st_size for p in present) < 62_000_000
