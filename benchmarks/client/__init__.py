"""The client: a process of its own with raw sockets and epoll, which has to cost less than any server."""
