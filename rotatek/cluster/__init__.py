"""Beyond one process, on Ray: replicas of a model behind one page and one API.

`messages` defines what processes exchange, `replica` answers with a model of its own, and
`remote_engine` is an engine for page and API whose answers are computed by replicas. If a replica
is lost, another one answers. `gateway` builds the application, in which a follow-up goes to the
replica that holds its cache, and `local_cluster` runs it on this machine.
"""
