"""Search for the features that a prediction rests on, instead of climbing to them by gradients.

A predictor that has learned from random masks knows what it would say from any set of features.
`values` asks it about many sets at once, `paths` finds sets that are worth asking about, `choice`
and `context` choose among them, for each row.
"""
