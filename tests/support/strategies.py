"""Shared Hypothesis strategies: the events that agents may emit, in any order."""

from __future__ import annotations

from hypothesis import strategies as st

from hermes_trio.core.events import (
    AgentFailed,
    AnsweredBy,
    ApprovalAnswered,
    ApprovalRequest,
    Choice,
    ClientCall,
    Event,
    Finished,
    Reasoning,
    Result,
    Text,
    ToolAnnounced,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
    Verdict,
)
from hermes_trio.core.messages import Usage
from hermes_trio.core.outcome import Reason

# Few ids and names, so that duplicates, reuse, orphans and internal tools are the rule.
call_ids = st.sampled_from(["", "a", "b", "a-2", "call", "call-2"])
tool_names = st.sampled_from(["terminal", "read_file", "_thinking", "_secret", "my tool"])
texts = st.text(max_size=8)
times = st.floats(0, 1000)
args = st.dictionaries(
    st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=4)), max_size=2
)

started = st.builds(ToolStarted, call_ids, tool_names, args, times)
noticed = st.builds(ToolAnnounced, tool_names, args, times)
output = st.builds(ToolOutput, call_ids, texts)
completed = st.builds(ToolCompleted, call_ids, texts, st.booleans(), times)
questions = st.sampled_from(["q", "q2"])
BY_THE_END = {AnsweredBy.RUN_ENDED, AnsweredBy.DEFERRED}
wanted = st.builds(
    ApprovalRequest,
    questions,
    call_ids,
    texts,
    texts,
    st.tuples(texts),
    st.booleans(),
    times,
    times,
)
answered = st.builds(
    ApprovalAnswered,
    questions,
    st.sampled_from(Choice),
    st.sampled_from([by for by in AnsweredBy if by not in BY_THE_END]),
    times,
)
said: st.SearchStrategy[Event] = st.one_of(
    st.builds(Text, texts),
    st.builds(Reasoning, texts),
    started,
    noticed,
    output,
    completed,
    wanted,
    answered,
    st.builds(ClientCall, call_ids, st.sampled_from(["get_weather", "terminal"]), texts),
)

usages = st.builds(Usage, *[st.integers(0, 10_000)] * 5)
results = st.builds(Result, texts, st.sampled_from(Verdict), texts, usages)
last_words: st.SearchStrategy[Event] = st.one_of(
    st.builds(Finished, results, times), st.builds(AgentFailed, texts, st.just("ValueError"), times)
)

scripts = st.lists(said, max_size=25)
cuts = st.sampled_from([reason for reason in Reason if reason is not Reason.NONE])
