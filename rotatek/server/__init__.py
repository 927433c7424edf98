"""The door that programs know: the OpenAI chat API, on the same engines as the page.

`call` turns a request's JSON into checked settings and a `rotatek.inputs.request.Request`, `reply`
turns events into the API's answers, `turns` finds the warm cache that a follow-up can go on from,
`runs` computes answers in threads and bounds how many there are, and `door` is the application:
keys, limits, errors and `meters`. `process` serves it.
"""
