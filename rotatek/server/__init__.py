"""The OpenAI chat API, on the same engines as the page.

`chat_request` turns a request's JSON into checked settings and a `rotatek.inputs.request.Request`,
`reply` turns events into the API's answers, `follow_ups` finds the warm cache that a follow-up can
go on from, `worker_pool` computes answers in threads and bounds how many there are, and `chat_app`
is the application: keys, limits, errors and `metrics`. `uvicorn_server` serves it.
"""
