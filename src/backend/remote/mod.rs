//! Processes on another machine, through a connection.
