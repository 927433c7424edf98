"""What pyproject.toml cannot say: which packages a wheel holds, and under which names.

In a checkout `kernels` and `viz` are packages of their own at the top. Installed there they would
collide: Hugging Face has a package named kernels, which transformers looks for when it is imported.
So a wheel holds them as `rotatek.kernels` and `rotatek.viz`, the assets as `rotatek/assets`, and
`BuildPy` changes the imports to match. An editable install keeps the checkout's names.

`benchmarks` stay in the checkout.
"""

import ast
import re
import shutil
from pathlib import Path
from typing import Final

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

NESTED: Final = ("kernels", "viz")  # packages of the checkout that a wheel holds inside rotatek
APART: Final = ("benchmarks",)  # packages of the checkout that no wheel holds
FOLDERS: Final = {f"rotatek.{name}": name for name in (*NESTED, "assets")}
ASSETS: Final = [
    "*.css", "*.js", "examples/*", "pocket/*", "pocket-smol/*", "suite/*",
    "results/*.csv.gz",
]  # fmt: skip


def shipped() -> list[str]:
    """The packages of a wheel, by the names they have there."""
    inside = [f"{name}{below}" for name in NESTED for below in ("", ".*")]
    return [
        *find_packages(include=["rotatek", "rotatek.*"]),
        *(f"rotatek.{name}" for name in find_packages(include=inside)),
        "rotatek.assets",
    ]


def renamed(source: bytes, path: str) -> bytes:
    """A module's source with its absolute imports of `NESTED` changed to those inside rotatek.

    Only import statements change, at the places where Python's own parser finds them.

    Args:
        source: UTF-8, as ruff formats it (one space after `from`).
        path: For the message of a refusal.

    Raises:
        SyntaxError: for `import kernels.name`, which would bind `rotatek` in place of `kernels`.
    """
    places = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            places.append((node.lineno, node.col_offset + len("from "), node.module or "", True))
        elif isinstance(node, ast.Import):
            places += [(a.lineno, a.col_offset, a.name, bool(a.asname)) for a in node.names]
    lines = source.splitlines(keepends=True)
    for number, column, name, bound in sorted(places, reverse=True):
        if name.partition(".")[0] not in NESTED:
            continue
        before, after = lines[number - 1][:column], lines[number - 1][column:]
        if not after.startswith(name.encode()) or ("." in name and not bound):
            raise SyntaxError(f"{path}, line {number}: write `from package import module`")
        own = b"" if bound else f" as {name}".encode()
        lines[number - 1] = (
            before + b"rotatek." + name.encode() + own + after.removeprefix(name.encode())
        )
    return b"".join(lines)


def description() -> str:
    """The README for a package index: without the header for Spaces and the pictures beside it."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"\A---\n.*?\n---\n+", "", text, flags=re.DOTALL)
    return re.sub(r"^!\[[^]]*\]\(assets/[^)]*\)\n\n", "", text, flags=re.MULTILINE)


class BuildPy(build_py):
    """Copies modules under a wheel's names."""

    def run(self) -> None:
        """Build from nothing: what an earlier build left behind would end up in the wheel."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()

    def build_module(
        self, module: str, module_file: str, package: str | list[str] | tuple[str, ...]
    ) -> tuple[str, bool]:
        """Copy one module, then change its imports."""
        target, copied = super().build_module(module, module_file, package)
        if not self.editable_mode:
            Path(target).write_bytes(renamed(Path(target).read_bytes(), module_file))
        return target, copied


class Editable(editable_wheel):
    """Links the checkout's packages under the checkout's names."""

    def run(self) -> None:
        """Install the checkout's packages as they stand."""
        tops = ("rotatek", *NESTED, *APART)
        names = [f"{name}{below}" for name in tops for below in ("", ".*")]
        self.distribution.packages = find_packages(include=names)
        self.distribution.package_dir = {}
        self.distribution.package_data = {}
        super().run()


if __name__ == "__main__":
    setup(
        packages=shipped(),
        package_dir=FOLDERS,
        package_data={"rotatek": ["py.typed"], "rotatek.assets": ASSETS},
        long_description=description(),
        long_description_content_type="text/markdown",
        cmdclass={"build_py": BuildPy, "editable_wheel": Editable},
    )
