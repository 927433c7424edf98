"""The page. `build` assembles it, `server` serves it.

`form` lists what a visitor may set, from the registries: `ask/` shows it as controls, and `links`
writes it as text. `rotatek.service` answers. `inspect/`, `collection/`
and `results` are the other parts. `binding` passes widgets' values to handlers by name, and
shows only the known error messages. `export` makes files and programs of a run,
`upload` is the image box whose bytes `rotatek.inputs.request`
checks, and `zerogpu` answers on a borrowed GPU.
"""
