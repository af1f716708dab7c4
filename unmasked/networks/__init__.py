"""Networks for tables and for images."""

from unmasked.networks.tables import MLP, Factory, SetMLP

__all__ = ["MLP", "Factory", "SetMLP"]
