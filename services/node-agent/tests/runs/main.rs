//! Runs of real commands, each with its shim.

mod bounds;
mod ends;
mod environment;
mod garbage;
mod lease;
mod log;
mod node;
mod plugin;
mod program;
mod restart;
mod stop;
mod user;
