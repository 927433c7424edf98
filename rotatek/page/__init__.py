"""The page. `server` assembles and serves it; `ask`, `inspect`, `collection` and `results` are its
parts; `settings` lists what a visitor may set, and `binding` passes widgets' values to handlers."""
