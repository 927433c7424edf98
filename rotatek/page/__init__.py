"""The page. `server` assembles and serves it.

`settings` lists what a visitor may set, from the registries: `ask/` shows it as controls, and
`export` writes it as a link, and a run as a file or a program. `rotatek.service` answers.
`inspect/`, `collection/` and `results` are the other parts. `binding` passes widgets' values to
handlers by name, and shows only the known error messages; `zerogpu` answers on a borrowed GPU.
"""
