//! Subcommands of the tombolo binary: arguments, wiring and output.
