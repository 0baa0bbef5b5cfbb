//! `tombolo crds`: the CRDs of the Multi-Cluster Services API.

use tombolo_cluster::api::{Access, Installed, apply_crds};

use crate::args::{CrdsArgs, CrdsCommand};
use crate::exit::Exit;
use crate::input::{Refusal, chain};
use crate::print;

/// Runs the command.
pub(crate) async fn run(args: CrdsArgs) -> Result<Exit, Refusal> {
    match args.command {
        CrdsCommand::Print => {
            let mut text = String::new();
            for crd in mcs_api::crds() {
                let yaml = serde_saphyr::to_string(&crd);
                let yaml = yaml.map_err(|error| Refusal::failed(chain(&error)))?;
                text.push_str("---\n");
                text.push_str(&yaml);
            }
            print::say(text.trim_end());
        }
        CrdsCommand::Apply(access) => {
            let access = Access::from(&access);
            let server = access.server().await;
            let server = server.map_err(|error| Refusal::failed(chain(&error)))?;
            let results = apply_crds(&server).await;
            for (name, installed) in results.map_err(|error| Refusal::failed(chain(&error)))? {
                let what = match installed {
                    Installed::Created => "created".to_owned(),
                    Installed::Upgraded(from) => format!("upgraded from {from}"),
                    Installed::Unchanged => "unchanged".to_owned(),
                    Installed::Newer(release) => format!("left alone: {release} is newer"),
                };
                print::say(&format!("{name} {what}"));
            }
        }
    }
    Ok(Exit::Well)
}
