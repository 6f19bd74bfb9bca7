"""Programs over several sockets: all of them in one process, or one in each of several processes."""
