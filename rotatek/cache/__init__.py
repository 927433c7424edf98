"""The compressed cache: the tensors of each layer, its length, and its bytes.

A layer keeps visual tokens as its channel method stored them (`rotatek.methods.channels.base`),
and prompt, text and generated tokens at full width in buffers that grow (`text_buffer`).
Layers fill themselves inside the prefill's own calls (`rotatek.bridge.attention`, `prefill_layer`),
by one plan of which rows each layer sees (`token_plan`); one prefill may fill several caches.
`rotatek_cache` has `RotateKCache`.
"""
