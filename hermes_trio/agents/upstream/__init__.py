"""A tool loop on any OpenAI-compatible chat-completions endpoint.

``wire`` builds requests and ``completion`` reads responses, both pure; ``client`` makes one model
call, ``tool_calls`` executes tools, ``loop`` combines them into a turn, and ``provider`` holds what
turns share.
"""
