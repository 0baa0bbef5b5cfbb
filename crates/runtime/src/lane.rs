//! Actions under way, at most so many at a time, and writes to the registry as one kind of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::Instant;
use tombolo_model::io::{Action, ActionId, Effect, Outcome, Refusal, RefusalKind};
use tombolo_registry::error::Error;
use tombolo_registry::registry::Registry;

use crate::input::chain;

/// Registry writes at a time: each is a transaction of one service.
pub(crate) const PUBLISH_MAX: usize = 32;

/// Actions of one kind: those that run and those that wait.
pub(crate) struct Lane {
    pub(crate) running: FuturesUnordered<BoxFuture<'static, Done>>,
    pub(crate) waiting: VecDeque<Action>,
    running_max: usize,
}

/// An action that ended.
pub(crate) struct Done {
    pub(crate) id: ActionId,
    pub(crate) kind: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

impl Lane {
    pub(crate) fn new(running_max: usize) -> Self {
        Self {
            running: FuturesUnordered::new(),
            waiting: VecDeque::new(),
            running_max,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len() + self.waiting.len()
    }

    /// Starts what there is room for.
    pub(crate) fn start(&mut self, begin: impl Fn(Action) -> BoxFuture<'static, Done>) {
        while self.running.len() < self.running_max
            && let Some(action) = self.waiting.pop_front()
        {
            self.running.push(begin(action));
        }
    }

    /// One that has ended by now.
    pub(crate) fn ended(&mut self) -> Option<Done> {
        self.running.next().now_or_never().flatten()
    }
}

/// Writes the records of an action.
pub(crate) fn publish<R: Registry + 'static>(
    registry: &Arc<R>,
    action: Action,
) -> BoxFuture<'static, Done> {
    let registry = Arc::clone(registry);
    let Action { id, effect } = action;
    let kind = effect_word(&effect);
    let began = Instant::now();
    async move {
        let writes = effect.into_records().unwrap_or_default();
        let outcome = match registry.apply(writes).await {
            Ok(revision) => Outcome::Published(revision),
            Err(error) => unpublished(&error),
        };
        Done {
            id,
            kind,
            outcome,
            took: began.elapsed(),
        }
    }
    .boxed()
}

fn unpublished(error: &Error) -> Outcome {
    let message: Arc<str> = chain(error).into();
    if error.may_have_written() {
        return Outcome::Unknown(message);
    }
    Outcome::Refused(Refusal {
        kind: RefusalKind::Other,
        message,
    })
}

pub(crate) fn effect_word(effect: &Effect) -> &'static str {
    match effect {
        Effect::Create(_) => "create",
        Effect::Update { .. } => "update",
        Effect::UpdateStatus { .. } => "update-status",
        Effect::Delete(_) => "delete",
        Effect::Publish { .. } => "publish",
        Effect::Synced(_) => "synced",
        Effect::Report(_) => "report",
        Effect::Event(_) => "event",
    }
}
