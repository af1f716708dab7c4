"""Tensor types that carry their shape: ``Float[Tensor, "batch features"]``.

With jaxtyping installed (it is a development dependency) the shapes are checked at run time in
the tests; without it the annotations stay readable and cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool as Bool
    from jaxtyping import Float as Float
else:
    try:
        from jaxtyping import Bool, Float
    except ImportError:

        class _Unchecked:
            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = _Unchecked

ImageShape = tuple[int, int, int]
"""Channels, height, width."""
