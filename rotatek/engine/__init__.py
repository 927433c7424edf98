"""One model for many visitors: requests go in, events come out.

`engine` has the class `Engine`. `scheduler` decodes all active rows in one step (continuous
batching); `batch` is the cache that the model sees in that step, `row_group` and `row_group_layer`
store rows of one storage form together, `sequences` chooses their tokens, `memory` lets them
in, `image_features` keeps what the vision tower computed, `passes` fills caches of several
settings from one prompt, `conversation` keeps them for follow-up questions, and `events` is what a
caller receives, with the answer that they make.
"""
