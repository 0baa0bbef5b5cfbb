//! The tombolo binary.
fn main() {}
