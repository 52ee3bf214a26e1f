"""The daemon: the only place with a TaskGroup, queues and signals."""
