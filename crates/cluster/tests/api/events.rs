//! Events, in the API that the cluster has.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::timeout;
use tombolo_cluster::api::{Clock, Fence, recorder};
use tombolo_model::io::Event;
use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{Kind, ObjectRef};

use crate::fake::{Answer, Fake, refusal};

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn since_boot(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

fn event(message: &str) -> Event {
    let namespace = Namespace::try_new("shop").unwrap();
    Event {
        about: ObjectRef {
            kind: Kind::ServiceExport,
            key: ServiceKey::new(namespace, ObjectName::new("web")),
        },
        uid: "uid-web".into(),
        warning: true,
        reason: "Conflict",
        message: message.into(),
    }
}

/// Sends Events until the server is asked no more.
async fn send(answers: Vec<Answer>, messages: &[&str]) -> Fake {
    let fake = Fake::new(answers);
    let clock: Arc<dyn Clock> = Arc::new(Still);
    let fence = Arc::new(Fence::new(Arc::clone(&clock)));
    fence.extend(Duration::MAX);
    let (sender, recorder) = recorder(fake.server(), fence, clock, "me");
    for message in messages {
        sender.send(event(message));
    }
    drop(sender);
    timeout(Duration::from_mins(1), recorder.run())
        .await
        .unwrap();
    fake
}

const NEWER: &str = "POST /apis/events.k8s.io/v1/namespaces/shop/events?fieldManager=tombolo";
const CORE: &str = "POST /api/v1/namespaces/shop/events?fieldManager=tombolo";

fn made() -> Answer {
    Answer::Json(201, json!({}))
}

#[tokio::test(start_paused = true)]
async fn the_same_again_is_counted_on_the_first() {
    let fake = send(vec![made(), made()], &["a", "a"]).await;
    let path = "/apis/events.k8s.io/v1/namespaces/shop/events/web.3b9aca00";
    let count = format!("PATCH {path}?fieldManager=tombolo");
    assert_eq!(fake.calls(), [NEWER.to_owned(), count]);
    let asked = fake.asked();
    assert_eq!(asked[0].body["note"], "a");
    assert_eq!(asked[0].body["regarding"]["uid"], "uid-web");
    assert_eq!(asked[1].body["series"]["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn where_the_newer_api_is_refused_the_core_api_has_them() {
    let answers = vec![refusal(403, "Forbidden"), made(), made()];
    let fake = send(answers, &["a", "b"]).await;
    assert_eq!(fake.calls(), [NEWER, CORE, CORE]);
    let body = &fake.asked()[1].body;
    assert_eq!(body["apiVersion"], "v1");
    assert_eq!(body["message"], "a");
    assert_eq!(body["involvedObject"]["uid"], "uid-web");
    assert_eq!(body["reportingComponent"], "tombolo.dev/controller");
    assert_eq!(
        (&body["note"], &body["regarding"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test(start_paused = true)]
async fn where_both_are_refused_the_newer_one_is_tried_again() {
    let answers = vec![refusal(403, "Forbidden"), refusal(403, "Forbidden"), made()];
    let fake = send(answers, &["a", "b"]).await;
    assert_eq!(fake.calls(), [NEWER, CORE, NEWER]);
}
