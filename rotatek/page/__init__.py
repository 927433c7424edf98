"""The page and its API for programs. `build` assembles it, `server` serves it.

`form` lists what a visitor may set, from the registries: `ask/` shows it as controls, `links`
writes it as text, and `api` has its fields. `rotatek.service` answers. `collection/`, `inspect/`
and `results/` are the other tabs. `binding` passes widgets' values to handlers by name,
and `user_errors` shows only the known error messages. `export` makes files and programs of a run,
`confidence` says when to doubt an answer, `upload` is the image box whose bytes
`rotatek.inputs.request` checks, and `zerogpu` answers on a borrowed GPU.
"""
