//! Every case of `tests/cases`, through the built binary: a new case is a folder there and nothing
//! here. How a case is written is told in `tests/cases/FORMAT.md`; what is compared, in
//! `tombolo_testkit::cases`.
//!
//! Each case runs as `plan` after each of its steps, as `up --once`, and, where it has steps, as
//! one `up` whose files change; its DNS questions are asked offline (`plan --query`) and, of `up`, over
//! the network.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use tombolo_testkit::cases::{
    Asked, Case, Inputs, Object, Reply, Seen, World, check, check_dns, check_prose, check_report,
    unmatched_prose,
};
use tombolo_testkit::command::{Binary, Finished};
use tombolo_testkit::dns::{self, Transport};
use tombolo_testkit::files;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = trials(&root()).unwrap_or_else(|error| {
        vec![Trial::test("read", move || {
            Err(Failed::from(format!("{error:#}")))
        })]
    });
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn tombolo() -> Binary {
    Binary::new(env!("CARGO_BIN_EXE_tombolo"))
}

/// Three ways to run a case, by the name of its folder, so that listing them reads nothing.
fn trials(root: &Path) -> Result<Vec<Trial>> {
    let mut trials = vec![trial("prose", &root.join("FORMAT.md"), |format| {
        every_prose_check_has_its_text(format.parent().context("no folder")?)
    })];
    let mut dirs: Vec<PathBuf> = fs::read_dir(root)
        .with_context(|| root.display().to_string())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    dirs.sort();
    for dir in dirs.iter().filter(|path| path.is_dir()) {
        trials.push(trial("plan", dir, plan));
        trials.push(trial("up_once", dir, up_once));
        if dir.join("steps").exists() {
            trials.push(trial("up_live", dir, up_live));
        }
    }
    Ok(trials)
}

fn trial(way: &str, path: &Path, run: fn(&Path) -> Result<()>) -> Trial {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let path = path.to_owned();
    Trial::test(format!("{way}::{stem}"), move || {
        run(&path).map_err(|error| Failed::from(format!("{error:#}")))
    })
}

/// No check waits for a text that nobody writes any more.
fn every_prose_check_has_its_text(root: &Path) -> Result<()> {
    let cases = Case::all(root)?;
    fail_for(&unmatched_prose(&cases))
}

/// A case with everything that its runs need.
struct Run {
    case: Case,
    /// The arguments that name clusters.
    sources: Vec<PathBuf>,
    /// The names of the clusters that take part.
    clusters: Vec<String>,
    scratch: tempfile::TempDir,
}

impl Run {
    /// Clusters that have to be refused take no part, the others are given one by one then.
    fn new(dir: &Path) -> Result<Self> {
        let case = Case::load(dir)?;
        let refused: BTreeSet<&str> = case.refused().into_iter().collect();
        let inputs = case.inputs(0)?;
        let clusters: Vec<String> = inputs
            .clusters()
            .iter()
            .filter(|cluster| !refused.contains(cluster.as_str()))
            .cloned()
            .collect();
        let sources = if refused.is_empty() {
            vec![case.clusters_dir()]
        } else {
            clusters
                .iter()
                .map(|cluster| case.clusters_dir().join(cluster))
                .collect()
        };
        let scratch = tempfile::tempdir()?;
        Ok(Self {
            case,
            sources,
            clusters,
            scratch,
        })
    }

    /// Runs `plan` at a stage, with more arguments.
    fn plan(&self, stage: usize, more: &[&str]) -> Result<Finished> {
        let mut args = vec!["plan".to_owned()];
        args.extend(
            self.sources
                .iter()
                .map(|source| source.display().to_string()),
        );
        for step in 1..=stage {
            args.extend([
                "--then".to_owned(),
                self.case.step_dir(step).display().to_string(),
            ]);
        }
        for (cluster, families) in self.case.families() {
            args.extend([
                "--families".to_owned(),
                format!("{cluster}={}", families.join(",")),
            ]);
        }
        args.extend(more.iter().map(|&argument| argument.to_owned()));
        tombolo().run(args)
    }

    /// What `plan` prints of a stage, with the answers to these questions.
    fn report(&self, stage: usize, questions: &[String]) -> Result<(Finished, Value)> {
        let mut more = vec!["-o", "json"];
        for question in questions {
            more.extend(["--query", question.as_str()]);
        }
        let json = self.plan(stage, &more)?;
        let report = serde_json::from_str(&json.stdout)
            .with_context(|| format!("stage {stage}: no JSON: {json:?}"))?;
        Ok((json, report))
    }

    /// The answers of all clusters at a stage.
    fn ask(&self, stage: usize, name: &str, kind: &str) -> Result<BTreeMap<String, Reply>> {
        let (_, report) = self.report(stage, &[format!("{name} {kind}")])?;
        let asked = Asked::all(&report)?.into_iter();
        Ok(asked.map(|asked| (asked.cluster, asked.reply)).collect())
    }

    fn check(&self, stage: usize, world: &World) -> Vec<String> {
        check(&self.case, stage, &self.clusters, world)
    }
}

/// `plan`: the state after each step, the report about it, and the exit code.
fn plan(dir: &Path) -> Result<()> {
    let run = Run::new(dir)?;
    let before = files::contents(dir)?;
    let refusal = if run.case.refused().is_empty() {
        None
    } else {
        Some(refuse(&run)?)
    };
    let mut problems = Vec::new();
    for stage in 0..run.case.stages() {
        let found = plan_stage(&run, stage, refusal.as_ref())?;
        problems.extend(
            found
                .into_iter()
                .map(|problem| format!("stage {stage}: {problem}")),
        );
    }
    if files::contents(dir)? != before {
        problems.push("the run changed its input".to_owned());
    }
    fail_for(&problems)
}

/// Gives all clusters, so that some are refused.
fn refuse(run: &Run) -> Result<Finished> {
    let out = run.scratch.path().join("refused");
    let refusal = launch(&[&run.case.clusters_dir()], &out)?;
    ensure!(refusal.code != Some(0), "nothing was refused");
    ensure!(!out.exists(), "a run that was refused wrote something");
    Ok(refusal)
}

fn launch(sources: &[&Path], out: &Path) -> Result<Finished> {
    let mut args = vec![Path::new("plan").as_os_str()];
    args.extend(sources.iter().map(|source| source.as_os_str()));
    args.extend([Path::new("--out").as_os_str(), out.as_os_str()]);
    tombolo().run(args)
}

fn plan_stage(run: &Run, stage: usize, refusal: Option<&Finished>) -> Result<Vec<String>> {
    let out = run.scratch.path().join(format!("out-{stage}"));
    let table = run.plan(stage, &["--out", &out.display().to_string()])?;
    let Ok(world) = World::read(&out) else {
        let error = World::read(&out).err().context("it was readable")?;
        bail!(
            "stage {stage}: {error:#}; exit code {:?}: {}",
            table.code,
            table.stderr
        );
    };
    let mut problems = run.check(stage, &world);
    let scratch = run.scratch.path().join(format!("prose-{stage}"));
    fs::create_dir(&scratch)?;
    problems.extend(check_prose(&Seen {
        case: &run.case,
        stage,
        world: &world,
        run: &table,
        refusal,
        launch: &launch,
        ask: &|name, kind| run.ask(stage, name, kind),
        scratch: &scratch,
    }));
    let questions = run.case.dns(stage)?;
    let questions: Vec<String> = questions
        .iter()
        .map(|query| format!("{} {}", query.name, query.kind))
        .collect();
    let (json, report) = run.report(stage, &questions)?;
    let asked = Asked::all(&report)?;
    problems.extend(check_dns(
        &run.case,
        stage,
        &world,
        &|cluster, name, kind| {
            let found = asked.iter().find(|asked| {
                (&*asked.cluster, &*asked.name, &*asked.kind) == (cluster, name, kind)
            });
            Ok(found.context("not in the report")?.reply.clone())
        },
    ));
    problems.extend(check_report(
        &report,
        &world,
        &run.clusters,
        run.case.families(),
    ));
    let code = if world.is_well() { 0 } else { 2 };
    for finished in [&table, &json] {
        if finished.code != Some(code) {
            problems.push(format!(
                "expected exit code {code}, got {:?}",
                finished.code
            ));
        }
    }
    if table.stdout.trim().is_empty() {
        problems.push("the table is empty".to_owned());
    }
    Ok(problems)
}

/// `up --once`: the same objects from the command that also runs live.
fn up_once(dir: &Path) -> Result<()> {
    let run = Run::new(dir)?;
    let out = run.scratch.path().join("out");
    let mut args = vec!["up".to_owned(), "--once".to_owned()];
    args.extend(
        run.sources
            .iter()
            .map(|source| source.display().to_string()),
    );
    args.extend(["--out".to_owned(), out.display().to_string()]);
    let finished = tombolo().run(args)?;
    let world = World::read(&out).with_context(|| format!("{finished:?}"))?;
    let mut problems = run.check(0, &world);
    if !matches!(finished.code, Some(0 | 2)) {
        problems.push(format!("exit code {:?}", finished.code));
    }
    fail_for(&problems)
}

/// `up`: the case's steps are done to the files while it runs.
fn up_live(dir: &Path) -> Result<()> {
    let run = Run::new(dir)?;
    let clusters = run.scratch.path().join("clusters");
    let out = run.scratch.path().join("out");
    lay_out(&clusters, &Inputs::default(), &run.case.inputs(0)?)?;
    let clusters_arg = clusters.display().to_string();
    let out_arg = out.display().to_string();
    let mut up = tombolo().start(["up", &clusters_arg, "--out", &out_arg], run.scratch.path())?;
    for stage in 0..run.case.stages() {
        if stage > 0 {
            lay_out(
                &clusters,
                &run.case.inputs(stage - 1)?,
                &run.case.inputs(stage)?,
            )?;
        }
        up.eventually(|up| {
            let world = World::read(&out)?;
            let mut problems = run.check(stage, &world);
            problems.extend(check_dns(
                &run.case,
                stage,
                &world,
                &|cluster, name, kind| ask_live(&up.stdout()?, cluster, name, kind),
            ));
            fail_for(&problems)
        })
        .with_context(|| format!("stage {stage}"))?;
    }
    up.interrupt()?;
    let finished = up.finish()?;
    ensure!(
        finished.code == Some(0),
        "Ctrl-C ended it with {:?}",
        finished.code
    );
    Ok(())
}

/// Asks the DNS server of a cluster at the address that `up` prints.
fn ask_live(stdout: &str, cluster: &str, name: &str, kind: &str) -> Result<Reply> {
    let line = format!("{cluster} dns ");
    let address = stdout.lines().find_map(|text| text.strip_prefix(&line));
    let server = address
        .with_context(|| format!("no line {line}"))?
        .parse()?;
    let answer = dns::ask(server, name, kind, Transport::Udp)?;
    // D05: a negative answer says for how long it may be kept, which is the TTL of all answers.
    let soa = dns::negative_ttl(&answer);
    let is_negative = answer.metadata.authoritative && answer.answers.is_empty();
    ensure!(soa == is_negative.then_some(5), "the SOA of {answer}");
    Ok(dns::reply(&answer))
}

/// Brings a directory per cluster, with a file per object, from one state to another.
fn lay_out(clusters: &Path, before: &Inputs, after: &Inputs) -> Result<()> {
    for object in before
        .objects()
        .filter(|object| get(after, object).is_none())
    {
        let path = path_of(clusters, &object);
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    for object in after.objects() {
        if get(before, &object) != Some(object.value) {
            files::write(&path_of(clusters, &object), &object.value.to_string())?;
        }
    }
    for cluster in after.clusters() {
        fs::create_dir_all(clusters.join(cluster))?;
    }
    Ok(())
}

fn get<'a>(inputs: &'a Inputs, object: &Object<'_>) -> Option<&'a Value> {
    inputs.get(object.cluster, object.kind, object.namespace, object.name)
}

fn path_of(clusters: &Path, object: &Object<'_>) -> PathBuf {
    let name = format!("{}-{}-{}.json", object.kind, object.namespace, object.name);
    clusters.join(object.cluster).join(name)
}

fn fail_for(problems: &[String]) -> Result<()> {
    ensure!(problems.is_empty(), "\n{}", problems.join("\n"));
    Ok(())
}
