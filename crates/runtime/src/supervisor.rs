//! The one place that spawns: every task has a name, and none ends unobserved.
//!
//! Tasks run until the process is told to stop. One that ends before, by itself or by a panic, ends
//! the process: half a controller is worse than one that is started again.

use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, info, info_span, warn};

/// Why a process ends that was not told to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// A task has ended.
    #[error("the task {name:?} ended by itself")]
    Ended {
        /// Which.
        name: String,
    },
    /// A task has panicked.
    #[error("the task {name:?} failed")]
    Panicked {
        /// Which.
        name: String,
        /// How.
        source: JoinError,
    },
}

/// All tasks of a process.
#[derive(Debug, Default)]
pub(crate) struct Supervisor {
    tasks: JoinSet<()>,
    names: Vec<(Id, String)>,
    stop: CancellationToken,
}

impl Supervisor {
    /// What tells all tasks to end.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts a task that runs until it is told to stop.
    pub(crate) fn spawn(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let name = name.into();
        let span = info_span!("task", name);
        let handle = self.tasks.spawn(task.instrument(span));
        self.names.push((handle.id(), name));
    }

    /// Starts a task that knows nothing of stopping: it is dropped then.
    pub(crate) fn spawn_endless(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let stop = self.stop.clone();
        self.spawn(name, async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Waits until `told` to stop, then for all tasks, at most for the grace period.
    ///
    /// # Errors
    /// When a task ends before; the others are stopped all the same.
    pub(crate) async fn run(
        mut self,
        told: impl Future<Output = ()>,
        grace: Duration,
    ) -> Result<(), TaskError> {
        let early = tokio::select! {
            biased;
            () = told => None,
            Some(ended) = self.tasks.join_next_with_id() => Some(ended),
        };
        let result = match early {
            None => {
                info!("stopping");
                Ok(())
            }
            Some(Ok((id, ()))) => Err(TaskError::Ended {
                name: self.name(id),
            }),
            Some(Err(source)) => Err(TaskError::Panicked {
                name: self.name(source.id()),
                source,
            }),
        };
        self.stop.cancel();
        let rest = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                if let Err(error) = ended {
                    error!(%error, "a task failed while stopping");
                }
            }
        };
        if timeout(grace, rest).await.is_err() {
            warn!("tasks did not stop in time, they are dropped");
        }
        result
    }

    fn name(&self, id: Id) -> String {
        let named = self.names.iter().find(|(known, _)| *known == id);
        named.map_or_else(String::new, |(_, name)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn all_tasks_stop_when_told() {
        let mut supervisor = Supervisor::default();
        let stop = supervisor.stop();
        supervisor.spawn("polite", async move { stop.cancelled().await });
        supervisor.spawn_endless("endless", std::future::pending());
        supervisor.run(async {}, GRACE).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_by_itself_ends_all() {
        let mut supervisor = Supervisor::default();
        supervisor.spawn("short", async {});
        supervisor.spawn_endless("endless", std::future::pending());
        let error = supervisor.run(std::future::pending(), GRACE).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "the task \"short\" ended by itself"
        );
    }
}
