"""A tool loop on any OpenAI-compatible chat-completions endpoint.

``wire`` builds requests and ``completion`` reads responses, both pure; ``client`` makes one model
call, ``loop`` executes tools and combines both into a turn, and ``provider`` holds what turns share.
"""
