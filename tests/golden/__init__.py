"""The golden wire corpus: what the server sends and stores, byte for byte, for a fixed set of scenarios.

``test_golden.py`` plays every scenario and compares the transcript with ``corpus/NAME.json``.
``python -m tests.golden`` records the corpus again. Do that only when a change of the wire is intended, and review the
diff of the corpus as part of that change.

The corpus does not depend on time, chance or batching: clocks move when the script says so, ids are a function of the
request that they are made for, and the agent waits between two events until every other task is blocked.

Modules:

* ``driver``: the only module that knows names of the server. Adapt it when these change.
* ``client``: plain ASGI messages.
* ``agent``: the scripted agent; it uses the public agent interface only.
* ``transcript``: from exchanges and records to the text of a corpus file.
* ``play``: one scenario's server, clients and transcript.
* ``scripts``: what the agent does.
* ``dialects``: each script, by each API, streamed and in one piece.
* ``flows``, ``flows_*``: everything that takes more than one request and its answer.
* ``scenarios``: all of them, by name.
"""
