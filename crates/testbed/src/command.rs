//! Running helper programs to completion, with errors that say what was run and what it wrote.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// How a command looks in a message: its program and arguments.
pub(crate) fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Runs to completion and returns standard output; failure carries standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    text_of(command, &output)
}

/// Like [`output`], with `input` on standard input.
pub(crate) fn output_with_input(command: &mut Command, input: &str) -> Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let input = input.to_owned();
    // From a thread of its own: the program may write much before it has read all.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    // A program that ended early did not read all; its exit code tells.
    drop(writer.join());
    text_of(command, &output)
}

fn text_of(command: &Command, output: &Output) -> Result<String> {
    if !output.status.success() {
        bail!(
            "{} failed ({}): {}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command line that is split at spaces: for those without quoting.
pub(crate) fn run(line: &str) -> Result<String> {
    let mut words = line.split_whitespace();
    let program = words.next().context("empty command")?;
    output(Command::new(find(program).unwrap_or_else(|| program.into())).args(words))
}

/// Where a program is, in `$PATH` or in the places of system programs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(
            [
                "/usr/sbin",
                "/sbin",
                "/usr/bin",
                "/bin",
                "/usr/local/go/bin",
            ]
            .map(PathBuf::from),
        )
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_tells_command_and_message() {
        let error = output(Command::new("sh").args(["-c", "echo no >&2; exit 3"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sh -c echo no >&2; exit 3 failed (exit status: 3): no"
        );
    }

    #[test]
    fn input_reaches_the_program() {
        let text = output_with_input(&mut Command::new("cat"), "hello").unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn system_programs_are_found() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-here"), None);
    }
}
