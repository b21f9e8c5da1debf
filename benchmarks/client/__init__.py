"""The client: a separate process with raw sockets and epoll, cheaper than any of the servers."""
