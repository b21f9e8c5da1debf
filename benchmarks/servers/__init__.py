"""The contenders that are not ours.

They run in environments of their own, so they import nothing of ours but each other.
"""
