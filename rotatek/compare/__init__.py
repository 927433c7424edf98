"""The only comparison there is: several settings at one budget, from one prefill.

`columns` chooses settings and names them, at one nominal budget; `equal_bytes` at equal live bytes;
`report` collects their results. The engine, the evaluation, the command line, the page, its API and
its exports all go through here.
"""
