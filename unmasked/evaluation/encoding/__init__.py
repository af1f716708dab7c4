"""The encoding test: how much the *choice* of features says about y beyond the values shown."""

from unmasked.evaluation.encoding.networks import forest, network_encoding_test
from unmasked.evaluation.encoding.result import Encoding
from unmasked.evaluation.encoding.tables import encoding_test

__all__ = ["Encoding", "encoding_test", "forest", "network_encoding_test"]
