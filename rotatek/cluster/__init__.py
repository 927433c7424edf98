"""Beyond one process, on Ray: replicas of a model behind one page and one API.

`messages` is what crosses between processes, `replica` answers with a model of its own, `router`
brings a follow-up to the replica that holds its cache, and `remote_engine` is an engine for page
and API whose answers are computed by replicas, and elsewhere again when one is lost. `gateway`
makes the application of them, and `local` runs it on this machine.
"""
