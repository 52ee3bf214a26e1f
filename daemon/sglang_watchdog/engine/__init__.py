"""The pure state machine: observations in, changes out. No I/O, no clock, no logging."""
