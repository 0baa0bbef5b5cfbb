//! The built binary as a test sees it: arguments in; exit code, output and files out. Everything
//! has a deadline, so that a hang is a failed test and not a stuck run; no test depends on how
//! fast anything is below it.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};

/// Long enough on a machine that is busy with other tests, shorter than what the test runner allows.
const DEADLINE: Duration = Duration::from_secs(45);

/// How often [`Running::eventually`] looks.
const POLL: Duration = Duration::from_millis(20);

/// A binary to run.
#[derive(Clone, Debug)]
pub struct Binary {
    path: PathBuf,
    /// Where it is run; `None` for the test's own directory.
    dir: Option<PathBuf>,
}

/// A run that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Binary {
    /// The binary at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            dir: None,
        }
    }

    /// The same, run from inside a directory.
    #[must_use]
    pub fn within(self, dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: Some(dir.into()),
            ..self
        }
    }

    /// Runs it to its end.
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Finished> {
        finish(self.command(args))
    }

    /// Starts it with both outputs going to files in `logs`.
    pub fn start<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        logs: &Path,
    ) -> Result<Running> {
        let stdout = File::create(logs.join("stdout"))?;
        self.start_with(args, logs, stdout.into())
    }

    /// The same with another standard output, a terminal for example.
    pub fn start_with<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        logs: &Path,
        stdout: Stdio,
    ) -> Result<Running> {
        let mut command = self.command(args);
        command
            .stdout(stdout)
            .stderr(File::create(logs.join("stderr"))?);
        let runtime = runtime()?;
        let child = {
            let _inside = runtime.enter();
            command
                .spawn()
                .with_context(|| self.path.display().to_string())?
        };
        Ok(Running {
            child,
            runtime,
            logs: logs.to_owned(),
        })
    }

    fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args).stdin(Stdio::null()).kill_on_drop(true);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        // Every flag has an environment variable, and the caller's are not this test's.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TOMBOLO_") {
                command.env_remove(name);
            }
        }
        command
    }
}

/// A run that goes on until it is told to end; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    runtime: Runtime,
    logs: PathBuf,
}

impl Running {
    /// The process id.
    pub fn id(&self) -> Result<u32> {
        self.child.id().context("it has ended")
    }

    /// Asks it to end as Ctrl-C does.
    pub fn interrupt(&self) -> Result<()> {
        let id = i32::try_from(self.id()?)?;
        let pid = Pid::from_raw(id).context("no process id")?;
        kill_process(pid, Signal::INT).context("send SIGINT")
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> Result<String> {
        read(&self.logs.join("stdout"))
    }

    /// What it has printed to standard error so far.
    pub fn stderr(&self) -> Result<String> {
        read(&self.logs.join("stderr"))
    }

    /// Looks again and again until `look` finds nothing wrong; after the deadline, or when the
    /// process has ended, what it last found is the error.
    pub fn eventually<T>(&mut self, mut look: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        let start = self.runtime.block_on(async { Instant::now() });
        loop {
            let problem = match look(self) {
                Ok(found) => return Ok(found),
                Err(problem) => problem,
            };
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}: {problem:#}\n{}", self.stderr()?);
            }
            let waited = self.runtime.block_on(async {
                sleep(POLL).await;
                start.elapsed()
            });
            if waited > DEADLINE {
                bail!(
                    "still so after {DEADLINE:?}: {problem:#}\n{}",
                    self.stderr()?
                );
            }
        }
    }

    /// Waits until it ends by itself.
    pub fn finish(mut self) -> Result<Finished> {
        let status: ExitStatus = self
            .runtime
            .block_on(async { timeout(DEADLINE, self.child.wait()).await })
            .map_err(|_| anyhow!("it does not end"))??;
        let stdout = self.logs.join("stdout");
        Ok(Finished {
            code: status.code(),
            stdout: if stdout.exists() {
                read(&stdout)?
            } else {
                String::new()
            },
            stderr: self.stderr()?,
        })
    }
}

/// Runs a command to its end.
fn finish(mut command: Command) -> Result<Finished> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = runtime()?
        .block_on(async { timeout(DEADLINE, command.output()).await })
        .map_err(|_| anyhow!("{command:?} does not end"))?
        .with_context(|| format!("{command:?}"))?;
    Ok(Finished {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).context("stdout is no UTF-8")?,
        stderr: String::from_utf8(output.stderr).context("stderr is no UTF-8")?,
    })
}

fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start a runtime")
}
