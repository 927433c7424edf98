"""Counts what would be launched on a GPU, without one: operations that compute or copy."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Launches(TorchDispatchMode):
    """Counts operations in its context, without views.

    Attributes:
        count: operations so far.
    """

    FREE = (
        "aten::empty",
        "aten::new_empty",
        "aten::lift_fresh",
        "aten::_local_scalar_dense",
        "aten::detach",
    )

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        returned = [one.alias_info for one in func._schema.returns]
        views = any(alias is not None and not alias.is_write for alias in returned)
        if func.name().startswith("aten::_foreach"):  # one each, where they are not dense
            self.count += len(args[0])
        else:
            self.count += not views and not func.name().startswith(self.FREE)
        return func(*args, **(kwargs or {}))
