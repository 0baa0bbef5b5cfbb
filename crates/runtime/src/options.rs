//! Options that mean nothing for the sources that they are given with: refused, not ignored.

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::args::{Command, SourceArgs, UpArgs};
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

/// Those of a clusterset that others are in too.
const OF_REGISTRY: [&str; 12] = [
    "hold",
    "keep_last",
    "read_only",
    "region",
    "registry_ca",
    "registry_cert",
    "registry_key",
    "registry_password_file",
    "registry_root",
    "registry_server_name",
    "registry_user",
    "take_over",
];

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
    if let Command::Up(args) = command {
        wrong.extend(check_registry(args, matches));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Refusal::usage(wrong))
    }
}

/// What does not go with a registry, or without one.
fn check_registry(args: &UpArgs, matches: &ArgMatches) -> Vec<String> {
    if !is_given(matches, "registry") {
        let text = "only with --registry URL";
        let flags = given(matches, &OF_REGISTRY);
        return flags.map(|flag| format!("{flag}: {text}")).collect();
    }
    if args.once && !args.join.read_only {
        let text = "--once: with --registry only with --read-only, as a cluster that joins and \
                    ends is one that is not heard of";
        return vec![text.to_owned()];
    }
    Vec::new()
}

/// A clusterset is joined only if the command line says so: the environment is also that of
/// someone who looks into its registry.
pub(crate) fn ignore_registry_of_environment(command: &mut Command, matches: &ArgMatches) {
    if let Command::Up(args) = command
        && let Some((_, matches)) = matches.subcommand()
        && !is_given(matches, "registry")
    {
        args.join.registry.registry.clear();
    }
}

fn is_given(matches: &ArgMatches, option: &str) -> bool {
    matches.ids().any(|id| id.as_str() == option)
        && matches.value_source(option) == Some(ValueSource::CommandLine)
}

/// Those of the options that are on the command line.
fn given<'a>(matches: &'a ArgMatches, options: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    let options = options.iter().filter(|option| is_given(matches, option));
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
    fn options_of_a_registry_are_refused_without_one() {
        assert_eq!(
            wrong("tombolo up a --read-only --hold 1m --registry-ca x"),
            [
                "--hold: only with --registry URL",
                "--read-only: only with --registry URL",
                "--registry-ca: only with --registry URL",
            ]
        );
        let registry = "--registry https://etcd:2379";
        assert_eq!(
            wrong(&format!("tombolo up a {registry} --hold 1m")).len(),
            0
        );
        let once = wrong(&format!("tombolo up a {registry} --once"));
        assert!(once[0].contains("only with --read-only"), "{once:?}");
        let looks = format!("tombolo up a {registry} --once --read-only");
        assert_eq!(wrong(&looks).len(), 0);
    }

    #[test]
    fn every_option_is_one() {
        let command = Cli::command();
        let up = command.find_subcommand("up").unwrap();
        let all = OF_CONTEXTS.iter().chain(&OF_DIRECTORIES);
        for option in all.chain(&OF_REGISTRY) {
            let is_there = up.get_arguments().any(|arg| arg.get_id() == option);
            assert!(is_there, "{option}");
        }
    }
}
