//! Table A of the conformance rows, through the bus: each row in a cell of its own.

mod inbox;
mod rows;
mod script;
