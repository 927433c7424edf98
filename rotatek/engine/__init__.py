"""Continuous batching: one scheduler a model that decodes every visitor's rows in one step.

`slots` lays rows of one storage form side by side, `batch` is the cache that the model's forward
pass sees, `scheduler` takes turns between prefills and steps and hands each visitor its tokens,
`admission` says who has to wait for memory, `pictures` keeps what the vision tower saw, and `rows`
decodes many filled caches to their ends, for the evaluation.
"""
