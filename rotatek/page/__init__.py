"""The page, and the same as a service for programs. `build` puts it together, `server` serves it.

What a visitor may set is a `form`, made from the registries: `ask/` shows it as controls, `links`
write it as text, and `api` has its fields. `service` answers; `state` is what one comparison has
shown so far; `conversations` keeps caches that wait for a follow-up question. `binding` hands
widgets' values to handlers by name, and `refusals` lets only calm sentences through. `export` makes
files and programs of a run, `confidence` says when to doubt an answer, `upload` is the image box
whose bytes pass through `rotatek.inputs.request`, and `zerogpu` answers on a GPU that is lent.
"""
