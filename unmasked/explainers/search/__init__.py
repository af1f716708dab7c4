"""Search for the features that a prediction rests on, instead of climbing to them by gradients.

A predictor that has learned from random masks knows what it would say from any set of features.
`rounds` trains it and drops columns that nothing shows, `screen` looks at wide tables first,
`values` asks it about many sets at once, `find` and `choice` choose among them: for each row, or by
what is shown.
"""
