//! Writes and what their answers mean.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tombolo_cluster::api::{BootClock, Fence, Writer};
use tombolo_cluster::convert::{Strings, observe_service};
use tombolo_model::io::{Effect, Outcome, RefusalKind};
use tombolo_model::object::Object;

use crate::fake::{Answer, Fake, refusal, service};

fn writer(fake: &Fake) -> Writer {
    let fence = Fence::new(Arc::new(BootClock));
    fence.extend(Duration::MAX);
    Writer::new(fake.server(), Arc::new(fence))
}

fn object(json: Value) -> Object {
    let service = serde_json::from_value(json).unwrap();
    let service = observe_service(&service, &[], &mut Strings::default()).unwrap();
    Object::Service(Arc::new(service))
}

/// The same with another port.
fn update() -> Effect {
    let mut changed = service("a", "3");
    changed["spec"]["ports"] = json!([{"name": "http", "port": 81}]);
    Effect::Update {
        old: object(service("a", "3")),
        new: object(changed),
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_names_only_what_differs() {
    let fake = Fake::new(vec![Answer::Json(200, service("a", "4"))]);
    let outcome = writer(&fake).execute(&update()).await;
    assert_eq!(outcome, Some(Outcome::Written(object(service("a", "4")))));
    let asked = fake.asked();
    let call = "PATCH /api/v1/namespaces/shop/services/a?fieldManager=tombolo";
    assert_eq!((asked.len(), asked[0].call.as_str()), (1, call));
    let ports = json!([{"name": "http", "port": 81, "protocol": "TCP"}]);
    let body = json!({"metadata": {"uid": "uid-a", "resourceVersion": "3"},
                      "spec": {"ports": ports}});
    assert_eq!(asked[0].body, body);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_shows_how_the_object_stands() {
    let answers = vec![
        refusal(409, "Conflict"),
        Answer::Json(200, service("a", "9")),
    ];
    let fake = Fake::new(answers);
    let outcome = writer(&fake).execute(&update()).await;
    let current = object(service("a", "9"));
    assert_eq!(outcome, Some(Outcome::Outdated(Some(current))));
    assert_eq!(fake.calls()[1], "GET /api/v1/namespaces/shop/services/a");
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_of_exactly_this_object() {
    let fake = Fake::new(vec![refusal(404, "NotFound"), refusal(404, "NotFound")]);
    let effect = Effect::Delete(object(service("a", "3")));
    let outcome = writer(&fake).execute(&effect).await;
    assert_eq!(outcome, Some(Outcome::Outdated(None)));
    let preconditions = &fake.asked()[0].body["preconditions"];
    assert_eq!(
        *preconditions,
        json!({"uid": "uid-a", "resourceVersion": "3"})
    );
}

#[tokio::test(start_paused = true)]
async fn an_address_is_waited_for_and_then_told_to_be_taken() {
    let causes = json!([{"reason": "FieldValueInvalid", "field": "spec.clusterIPs",
        "message": "failed to allocate IP 10.0.0.1: provided IP is already allocated"}]);
    let status = json!({"code": 422, "reason": "Invalid", "message": "m",
                        "details": {"causes": causes}});
    let answers = (0..6).map(|_| Answer::Json(422, status.clone()));
    let fake = Fake::new(answers.collect());
    let effect = Effect::Create(object(service("a", "")));
    let outcome = writer(&fake).execute(&effect).await;
    let Some(Outcome::Refused(refusal)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(refusal.kind, RefusalKind::AddressTaken);
    let call = "POST /api/v1/namespaces/shop/services?fieldManager=tombolo";
    assert_eq!(fake.calls(), [call; 6]);
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_the_outcome_is_unknown() {
    let fake = Fake::new(vec![Answer::Never]);
    let outcome = writer(&fake).execute(&update()).await;
    assert!(matches!(outcome, Some(Outcome::Unknown(_))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn behind_a_fallen_fence_nothing_is_sent() {
    let fake = Fake::new(vec![]);
    let fence = Arc::new(Fence::new(Arc::new(BootClock)));
    let writer = Writer::new(fake.server(), fence);
    let outcome = writer.execute(&update()).await;
    assert!(matches!(outcome, Some(Outcome::Unknown(_))), "{outcome:?}");
    assert_eq!(fake.calls(), [""; 0]);
}
