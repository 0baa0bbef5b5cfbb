//! Generated files, architecture check and benchmarks.
fn main() {}
