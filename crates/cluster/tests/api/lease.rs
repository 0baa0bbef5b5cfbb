//! Leadership.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tombolo_cluster::api::{Clock, Fence, LeaseConfig, LeaseKeeper, Standing};

use crate::fake::{Answer, Fake, refusal};

/// The paused time of a test, and what a suspended machine has slept beside it.
struct TestClock {
    start: Instant,
    slept: Mutex<Duration>,
}

impl Clock for TestClock {
    fn since_boot(&self) -> Duration {
        self.start.elapsed() + *self.slept.lock()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

struct Bench {
    fake: Fake,
    clock: Arc<TestClock>,
    fence: Arc<Fence>,
    keeper: LeaseKeeper,
}

fn bench(answers: Vec<Answer>) -> Bench {
    let clock = Arc::new(TestClock {
        start: Instant::now(),
        slept: Mutex::default(),
    });
    let fake = Fake::new(answers);
    let fence = Arc::new(Fence::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let config = LeaseConfig::new("tombolo-system", "tombolo-controller", "me");
    let keeper = LeaseKeeper::new(
        fake.server(),
        config,
        Arc::clone(&clock) as Arc<dyn Clock>,
        Arc::clone(&fence),
    );
    Bench {
        fake,
        clock,
        fence,
        keeper,
    }
}

fn lease(holder: &str, version: &str) -> Answer {
    let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15});
    let meta = json!({"name": "tombolo-controller", "namespace": "tombolo-system",
                      "resourceVersion": version});
    Answer::Json(200, json!({"metadata": meta, "spec": spec}))
}

impl Bench {
    /// Keeps the lease for some time.
    async fn keep(&mut self, secs: u64) {
        timeout(Duration::from_secs(secs), self.keeper.keep())
            .await
            .ok();
    }

    fn leads(&self) -> bool {
        *self.keeper.standing().borrow() == Standing::Leading
    }

    fn methods(&self) -> Vec<String> {
        let calls = self.fake.calls().into_iter();
        calls
            .map(|call| call.split(' ').next().unwrap_or_default().to_owned())
            .collect()
    }

    fn body(&self, index: usize) -> Value {
        self.fake.asked()[index].body.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_renewed_and_given_back() {
    let answers = vec![
        refusal(404, "NotFound"),
        lease("me", "1"),
        lease("me", "2"),
        lease("", "3"),
    ];
    let mut bench = bench(answers);
    bench.keep(3).await;
    assert!(bench.leads() && bench.fence.stands());
    bench.keeper.release().await;
    assert!(!bench.leads() && !bench.fence.stands());
    assert_eq!(bench.methods(), ["GET", "POST", "PUT", "PUT"]);
    assert_eq!(bench.body(2)["spec"]["holderIdentity"], "me");
    let released = bench.body(3);
    assert_eq!(released["spec"]["holderIdentity"], "");
    assert_eq!(released["metadata"]["resourceVersion"], "2");
}

#[tokio::test(start_paused = true)]
async fn another_ones_lease_is_taken_after_it_was_silent_for_its_time() {
    let mut answers: Vec<Answer> = (0..15).map(|_| lease("other", "1")).collect();
    answers.push(lease("me", "2"));
    let mut bench = bench(answers);
    bench.keep(13).await;
    assert!(!bench.leads() && !bench.fence.stands());
    bench.keep(2).await;
    assert!(bench.leads() && bench.fence.stands());
}

#[tokio::test(start_paused = true)]
async fn past_the_deadline_nothing_is_sent_any_more() {
    let mut bench = bench(vec![refusal(404, "NotFound"), lease("me", "1")]);
    bench.keep(9).await;
    assert!(bench.fence.stands(), "until the deadline");
    bench.keep(6).await;
    assert!(!bench.fence.stands() && !bench.leads());
}

#[tokio::test(start_paused = true)]
async fn time_of_a_suspended_machine_counts() {
    let mut bench = bench(vec![refusal(404, "NotFound"), lease("me", "1")]);
    bench.keep(1).await;
    assert!(bench.fence.stands());
    *bench.clock.slept.lock() = Duration::from_secs(10);
    assert!(!bench.fence.stands());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_refused_to_up() {
    let renewed = json!({"metadata": {"resourceVersion": "2"}, "spec": {
        "holderIdentity": "other", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let mut bench = bench(vec![lease("other", "1"), Answer::Json(200, renewed)]);
    let holder = bench.keeper.take_unless_held().await.unwrap();
    assert_eq!(holder.as_deref(), Some("other"));
}
