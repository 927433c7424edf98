"""The only comparison there is: which settings stand side by side, at one budget, from one prefill.

`columns` chooses settings and names them, `prefill` fills their caches together, `report` says what
each of them did. The engine, the evaluation, the command line, the page, its API and its exports
all go through here.
"""
