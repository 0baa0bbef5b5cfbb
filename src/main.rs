//! The tombolo binary: everything is in the runtime crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    tombolo_runtime::run()
}
