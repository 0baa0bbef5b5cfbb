//! Options that mean nothing for the sources that they are given with: refused, not ignored.

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::args::{Command, SourceArgs};
use crate::input::{Refusal, context_of};

/// Those of clusters of a kubeconfig, by name with underscores.
const OF_CONTEXTS: [&str; 9] = [
    "admin",
    "clean",
    "export_gvr",
    "import_gvr",
    "kubeconfig",
    "lease_name",
    "lease_namespace",
    "log",
    "log_format",
];

/// Those of directories, where `up` follows them.
const OF_DIRECTORIES: [&str; 7] = ["dns", "no_dns", "once", "out", "ttl", "vip_cidr", "zone"];

/// Refuses a command line with options that nothing would come of. Variables of the environment
/// are for all commands, and may be there.
pub(crate) fn check(command: &Command, matches: &ArgMatches) -> Result<(), Refusal> {
    let (sources, is_up) = match command {
        Command::Plan(args) => (&args.sources, false),
        Command::Up(args) => (&args.sources, true),
        _ => return Ok(()),
    };
    let Some((_, matches)) = matches.subcommand() else {
        return Ok(());
    };
    let SourceArgs { sources, .. } = sources;
    let has_context = sources.iter().any(|source| context_of(source).is_some());
    let has_directory = sources.iter().any(|source| context_of(source).is_none());
    let mut wrong = Vec::new();
    if !has_context {
        let text = "only for a source context:NAME";
        wrong.extend(given(matches, &OF_CONTEXTS).map(|flag| format!("{flag}: {text}")));
    }
    if is_up && !has_directory {
        let text = "only for a source that is a directory";
        wrong.extend(given(matches, &OF_DIRECTORIES).map(|flag| format!("{flag}: {text}")));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Refusal::usage(wrong))
    }
}

/// Those of the options that are on the command line.
fn given<'a>(matches: &'a ArgMatches, options: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    let is_given = |option: &&&str| {
        matches.ids().any(|id| id.as_str() == **option)
            && matches.value_source(option) == Some(ValueSource::CommandLine)
    };
    let options = options.iter().filter(is_given);
    options.map(|option| format!("--{}", option.replace('_', "-")))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;
    use crate::args::Cli;

    fn wrong(line: &str) -> Vec<String> {
        let matches = Cli::command().get_matches_from(line.split(' '));
        let cli = Cli::from_arg_matches(&matches).unwrap();
        check(&cli.command, &matches).map_or_else(|refusal| refusal.messages, |()| Vec::new())
    }

    #[test]
    fn options_of_contexts_are_refused_for_directories() {
        assert_eq!(
            wrong("tombolo up a b --clean --admin off --namespaces x=y"),
            [
                "--admin: only for a source context:NAME",
                "--clean: only for a source context:NAME"
            ]
        );
        assert_eq!(wrong("tombolo up a context:b --clean --no-dns").len(), 0);
        assert_eq!(wrong("tombolo plan a --kubeconfig k").len(), 1);
    }

    #[test]
    fn options_of_directories_are_refused_for_contexts() {
        assert_eq!(
            wrong("tombolo up context:a --out x"),
            ["--out: only for a source that is a directory"]
        );
        assert_eq!(wrong("tombolo plan context:a --out x").len(), 0);
    }

    #[test]
    fn every_option_is_one() {
        let command = Cli::command();
        let up = command.find_subcommand("up").unwrap();
        for option in OF_CONTEXTS.iter().chain(&OF_DIRECTORIES) {
            let is_there = up.get_arguments().any(|arg| arg.get_id() == option);
            assert!(is_there, "{option}");
        }
    }
}
