"""The compressed cache: what each layer holds, how long it is, and what it weighs.

A layer stores visual tokens as its channel method left them (`rotatek.methods.channels.store`), and
prompt, text and generated tokens at full width in buffers that grow (`text_buffer`). Compression
happens inside the prefill's own calls (`rotatek.bridge.attention`), layer by layer, by one plan of
which rows each layer sees (`token_plan`); one prefill may fill several caches (`shared_prefill`).
`rotatek_cache` has `RotateKCache`.
"""
