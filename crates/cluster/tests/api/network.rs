//! The families and networks of Services.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tombolo_cluster::api::{Report, watch_network};
use tombolo_model::io::Input;

use crate::fake::{Answer, Fake, refusal};

const LIST: &str = "GET /apis/networking.k8s.io/v1/servicecidrs";

fn cidrs(revision: &str, cidrs: &[&str]) -> Answer {
    let item = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}});
    Answer::Json(
        200,
        json!({"metadata": {"resourceVersion": revision}, "items": [item]}),
    )
}

fn line(kind: &str) -> Value {
    json!({"type": kind, "object": {"metadata": {"name": "more"}}})
}

fn watch_of(revision: &str) -> String {
    format!("{LIST}?watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion={revision}")
}

/// The families and service networks that are told within a time, each time that they are.
async fn told(fake: &Fake, time: Duration) -> Vec<String> {
    let (tx, mut rx) = mpsc::channel(64);
    let mut told = Vec::new();
    let collect = async {
        while let Some(report) = rx.recv().await {
            if let Report::Inputs(inputs) = report {
                let families = inputs.iter().map(|input| match input {
                    Input::Families(families) => format!("{families:?}"),
                    Input::ServiceCidrs(cidrs) => format!("{cidrs:?}"),
                    other => format!("{other:?}"),
                });
                told.extend(families);
            }
        }
    };
    let both = async { tokio::join!(watch_network(fake.server(), tx), collect) };
    timeout(time, both).await.expect_err("it watches for ever");
    told
}

#[tokio::test(start_paused = true)]
async fn a_changed_service_cidr_is_seen_at_once() {
    let fake = Fake::new(vec![
        cidrs("7", &["10.1.0.0/16"]),
        Answer::Lines(vec![line("BOOKMARK"), line("ADDED")]),
        cidrs("9", &["10.1.0.0/16", "fd00::/112"]),
        Answer::Open(vec![line("BOOKMARK")]),
    ]);
    let told = told(&fake, Duration::from_secs(2)).await;
    assert_eq!(
        told,
        [
            "[10.1.0.0/16]",
            "[V4]",
            "[10.1.0.0/16, fd00::/112]",
            "[V4, V6]"
        ]
    );
    let wanted = [
        LIST.to_owned(),
        watch_of("7"),
        LIST.to_owned(),
        watch_of("9"),
    ];
    assert_eq!(fake.calls(), wanted);
}

#[tokio::test(start_paused = true)]
async fn a_network_that_may_not_be_watched_is_looked_at_now_and_then() {
    let fake = Fake::new(vec![
        cidrs("7", &["10.1.0.0/16"]),
        refusal(403, "Forbidden"),
        cidrs("7", &["10.1.0.0/16"]),
        Answer::Open(vec![]),
    ]);
    let told = told(&fake, Duration::from_mins(4)).await;
    assert_eq!(told, ["[10.1.0.0/16]", "[V4]"]);
    assert_eq!(fake.calls(), [LIST.to_owned(), watch_of("7")]);
}
