"""Hold what an explainer says: the features shown for each row, and how sure that is."""

from unmasked.explanation.explanation import Explanation

__all__ = ["Explanation"]
