"""The only comparison there is: several settings at one budget, from one prefill.

`columns` chooses settings and names them, `prefill` fills their caches together, `report` collects
their results. The engine, the evaluation, the command line, the page, its API and its exports
each of them did. The engine, the evaluation, the command line, the page, its API and its exports
all go through here.
"""
