"""What an explainer says: which features of each row are shown, and how sure that is."""

from unmasked.explanation.explanation import Explanation

__all__ = ["Explanation"]
