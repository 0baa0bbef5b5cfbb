//! Lists and watches.

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tombolo_cluster::api::{Report, WatchState, watch};
use tombolo_model::io::{Input, Source};
use tombolo_model::object::Kind;

use crate::fake::{Answer, Fake, refusal, service};

/// What is told, in few words.
fn words(report: &Report) -> Vec<String> {
    let word = |input: &Input| match input {
        Input::Applied(object) => {
            format!(
                "{} {}",
                object.reference().key.name,
                object.resource_version()
            )
        }
        Input::Deleted {
            object,
            resource_version,
        } => {
            format!("{} gone {resource_version}", object.key.name)
        }
        Input::ListBegan(Source::Objects(_)) => "list".to_owned(),
        Input::ListEnded { revision, .. } => format!("listed {revision}"),
        other => format!("{other:?}"),
    };
    match report {
        Report::Inputs(inputs) => inputs.iter().map(word).collect(),
        Report::Rejected { rejected, .. } => vec![format!("rejected {}", rejected.object)],
        Report::Watch { state, .. } => vec![match state {
            WatchState::Forbidden(_) | WatchState::Away(_) => state.as_str().to_owned(),
            WatchState::Listing | WatchState::Live | WatchState::Missing => {
                format!("({})", state.as_str())
            }
        }],
    }
}

/// Watches until `count` words were told.
async fn told(fake: &Fake, kind: Kind, count: usize) -> Vec<String> {
    let (tx, mut rx) = mpsc::channel(64);
    let task = watch(fake.server(), kind, tx);
    let collect = async {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(words(&rx.recv().await.unwrap()));
        }
        all
    };
    tokio::select! {
        () = task => unreachable!("it watches for ever"),
        all = collect => all,
    }
}

fn line(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn bookmark(version: &str, ends_list: bool) -> Value {
    let annotations = if ends_list {
        json!({"k8s.io/initial-events-end": "true"})
    } else {
        json!({})
    };
    let meta = json!({"resourceVersion": version, "annotations": annotations});
    line("BOOKMARK", &json!({"kind": "Service", "metadata": meta}))
}

const SERVICES: &str = "GET /api/v1/services";
const STREAM: &str = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

fn watch_call(query: &str) -> String {
    format!("{SERVICES}?watch=1&allowWatchBookmarks=true&timeoutSeconds=250{query}")
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_goes_on_as_a_watch_and_resumes() {
    let fake = Fake::new(vec![
        Answer::Lines(vec![
            line("ADDED", &service("a", "3")),
            bookmark("5", true),
            line("MODIFIED", &service("a", "6")),
            bookmark("8", false),
        ]),
        Answer::Open(vec![line("DELETED", &service("a", "9"))]),
    ]);
    let told = told(&fake, Kind::Service, 7).await;
    assert_eq!(
        told,
        [
            "(listing)",
            "list",
            "a 3",
            "listed 5",
            "(live)",
            "a 6",
            "a gone 9"
        ]
    );
    assert_eq!(
        fake.calls(),
        [watch_call(STREAM), watch_call("&resourceVersion=8")]
    );
}

#[tokio::test(start_paused = true)]
async fn without_streaming_lists_it_lists_in_pages() {
    let page = |token: &str, items: &Value| {
        Answer::Json(
            200,
            json!({"metadata": {"resourceVersion": "7", "continue": token},
                                 "items": items}),
        )
    };
    let fake = Fake::new(vec![
        refusal(422, "Invalid"),
        page("a+b=", &json!([service("a", "3")])),
        page("", &json!([service("b", "4")])),
        Answer::Open(vec![]),
    ]);
    let told = told(&fake, Kind::Service, 6).await;
    assert_eq!(
        told,
        ["(listing)", "list", "a 3", "b 4", "listed 7", "(live)"]
    );
    let calls = [
        watch_call(STREAM),
        format!("{SERVICES}?limit=500"),
        format!("{SERVICES}?limit=500&continue=a%2Bb%3D"),
    ];
    assert_eq!(fake.calls()[..3], calls);
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_is_too_old_is_listed_again() {
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    let fake = Fake::new(vec![
        Answer::Lines(vec![bookmark("5", true)]),
        Answer::Lines(vec![line("ERROR", &gone)]),
        Answer::Open(vec![line("ADDED", &service("b", "9")), bookmark("9", true)]),
    ]);
    let told = told(&fake, Kind::Service, 9).await;
    let first = ["(listing)", "list", "listed 5", "(live)"];
    let second = ["(listing)", "list", "b 9", "listed 9", "(live)"];
    assert_eq!(told, [&first[..], &second[..]].concat());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_reported_and_the_rest_goes_on() {
    let mut bad = service("bad", "4");
    bad["spec"]["ports"] = json!([{"port": "eighty"}]);
    let fake = Fake::new(vec![Answer::Open(vec![
        line("ADDED", &bad),
        line("ADDED", &service("good", "5")),
        bookmark("5", true),
    ])]);
    let told = told(&fake, Kind::Service, 6).await;
    let expected = [
        "rejected Service shop/bad",
        "bad gone 4",
        "good 5",
        "listed 5",
    ];
    assert_eq!(told[2..6], expected);
}

#[tokio::test(start_paused = true)]
async fn a_restored_server_is_believed_whatever_was_seen_before() {
    let page = |version: &str, items: &Value| {
        Answer::Json(
            200,
            json!({"metadata": {"resourceVersion": version}, "items": items}),
        )
    };
    let fake = Fake::new(vec![
        refusal(422, "Invalid"),
        page("900", &json!([service("a", "850")])),
        refusal(410, "Expired"),
        page("20", &json!([service("a", "15")])),
        Answer::Open(vec![]),
    ]);
    let told = told(&fake, Kind::Service, 10).await;
    assert_eq!(
        told[5..],
        ["(listing)", "list", "a gone ", "a 15", "listed "]
    );
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_comes_later_is_found_in_the_version_it_has() {
    let resources = json!({"kind": "APIResourceList", "groupVersion": "", "resources": [
        {"name": "serviceexports", "singularName": "", "namespaced": true,
         "kind": "ServiceExport", "verbs": []}]});
    let fake = Fake::new(vec![
        refusal(404, "NotFound"),
        refusal(404, "NotFound"),
        refusal(404, "NotFound"),
        Answer::Json(200, resources),
        Answer::Open(vec![bookmark("5", true)]),
    ]);
    let told = told(&fake, Kind::ServiceExport, 5).await;
    assert_eq!(
        told,
        ["(missing)", "(listing)", "list", "listed 5", "(live)"]
    );
    let api = "GET /apis/multicluster.x-k8s.io";
    let [beta, alpha] = ["v1beta1", "v1alpha1"].map(|version| format!("{api}/{version}"));
    let calls = fake.calls();
    assert_eq!(
        calls[..4],
        [beta.clone(), alpha.clone(), beta, alpha.clone()]
    );
    assert!(
        calls[4].starts_with(&format!("{alpha}/serviceexports?watch=1")),
        "{}",
        calls[4]
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_given_up() {
    let fake = Fake::new(vec![
        Answer::Open(vec![bookmark("5", true)]),
        Answer::Open(vec![line("ADDED", &service("a", "6"))]),
    ]);
    let told = told(&fake, Kind::Service, 7).await;
    assert_eq!(told[3..], ["(live)", "away", "(live)", "a 6"]);
    assert_eq!(fake.calls()[1], watch_call("&resourceVersion=5"));
}
