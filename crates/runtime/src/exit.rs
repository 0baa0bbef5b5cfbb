//! Exit codes, the same for every command.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Well,
    /// It could not be done.
    Failed,
    /// It was done, but there are conflicts or invalid objects.
    NotWell,
    /// The command line cannot be understood.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Well => 0,
            Exit::Failed => 1,
            Exit::NotWell => 2,
            // EX_USAGE of sysexits.h.
            Exit::Usage => 64,
        })
    }
}
