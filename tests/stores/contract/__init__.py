"""The contract suite: classes of tests that every store passes.

A new engine runs them through ``test_contract.py``.
"""
