//! What waits for the engine. One queue for all models: the machine has one set of cores.

mod dispatcher;
mod patience;

use crate::error::Refusal;
use crate::models::Variant;
use sparing_model::Sequence;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

use patience::Patience;

pub(crate) use dispatcher::start;

/// What is wanted of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// What the head says.
    Head,
    /// The last hidden state of every token.
    Hidden,
}

/// One sequence that waits.
pub(crate) struct Job {
    /// The plan that computes it. A model that is replaced meanwhile lives on in here.
    pub(crate) variant: Arc<Variant>,
    pub(crate) want: Want,
    pub(crate) sequence: Sequence,
    pub(crate) since: Instant,
    /// Closed when the client has left.
    pub(crate) answer: oneshot::Sender<Result<Done, Refusal>>,
}

/// What came of a sequence.
#[derive(Debug)]
pub(crate) struct Done {
    /// Rows of `width` numbers.
    pub(crate) values: Vec<f32>,
    pub(crate) width: usize,
    pub(crate) waited: Duration,
    pub(crate) computed: Duration,
}

/// A queue that is bounded in tokens and in time, first come first served.
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    more: Condvar,
    most_tokens: usize,
}

struct Inner {
    jobs: VecDeque<Job>,
    tokens: usize,
    /// When the engine will be free, as far as can be told.
    busy_until: Instant,
    patience: Patience,
    closed: bool,
}

impl Queue {
    /// A queue for this many tokens, in which nobody waits for more than `wait`; `None`: than half of what long requests take
    /// alone.
    pub(crate) fn new(most_tokens: usize, wait: Option<Duration>) -> Queue {
        let inner = Inner {
            jobs: VecDeque::new(),
            tokens: 0,
            busy_until: Instant::now(),
            patience: Patience::new(wait),
            closed: false,
        };
        Queue { inner: Mutex::new(inner), more: Condvar::new(), most_tokens }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds all jobs of a request, or none if they do not fit or would wait for too long. An empty queue takes any request.
    pub(crate) fn push(&self, jobs: Vec<Job>) -> Result<(), Refusal> {
        let tokens: usize = jobs.iter().map(Job::tokens).sum();
        let alone: Duration = jobs.iter().map(Job::expected).sum();
        let mut inner = self.lock();
        inner.patience.note(alone);
        let full = inner.tokens + tokens > self.most_tokens || inner.wait() > inner.patience.limit();
        if inner.closed || (full && !inner.jobs.is_empty()) {
            return Err(Refusal::overloaded());
        }
        inner.tokens += tokens;
        inner.jobs.extend(jobs);
        drop(inner);
        self.more.notify_one();
        Ok(())
    }

    /// Refuses early what [`Queue::push`] would refuse however short it is.
    pub(crate) fn check_room(&self) -> Result<(), Refusal> {
        let inner = self.lock();
        let full = inner.tokens >= self.most_tokens || inner.wait() > inner.patience.limit();
        if full && !inner.jobs.is_empty() { Err(Refusal::overloaded()) } else { Ok(()) }
    }

    /// How long a request that comes now will wait, as far as can be told.
    pub(crate) fn wait(&self) -> Duration {
        self.lock().wait()
    }

    /// Jobs and tokens that wait.
    pub(crate) fn size(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.jobs.len(), inner.tokens)
    }

    /// Lets the dispatcher end once everything is done.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.more.notify_all();
    }

    /// Waits for work, and takes as much as fits: the first job, and in order of arrival what can run with it. Jobs whose
    /// clients have left are dropped. `None`: closed and empty.
    fn take(&self, most: usize) -> Option<Vec<Job>> {
        let mut inner = self.lock();
        loop {
            let batch = inner.batch(most);
            if !batch.is_empty() {
                return Some(batch);
            }
            if inner.closed {
                return None;
            }
            inner = self.more.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Inner {
    /// What the batch that runs and all that waits will still take.
    fn wait(&self) -> Duration {
        let running = self.busy_until.saturating_duration_since(Instant::now());
        running + self.jobs.iter().map(Job::expected).sum::<Duration>()
    }

    fn batch(&mut self, most: usize) -> Vec<Job> {
        let mut batch: Vec<Job> = Vec::new();
        let mut others = VecDeque::new();
        let mut tokens = 0;
        while let Some(job) = self.jobs.pop_front() {
            let length = job.tokens();
            if job.answer.is_closed() {
                self.tokens -= length;
            } else if batch.first().is_some_and(|first| !first.runs_with(&job)) {
                others.push_back(job);
            } else if !batch.is_empty() && tokens + length > most {
                others.push_back(job);
                break;
            } else {
                self.tokens -= length;
                tokens += length;
                batch.push(job);
            }
        }
        others.append(&mut self.jobs);
        self.jobs = others;
        self.busy_until = Instant::now() + batch.iter().map(Job::expected).sum::<Duration>();
        batch
    }
}

impl Job {
    fn tokens(&self) -> usize {
        self.sequence.ids.len()
    }

    /// What it will take; nothing while its plan has never run.
    fn expected(&self) -> Duration {
        self.variant.expected(self.tokens()).unwrap_or_default()
    }

    /// Whether two jobs can be one batch.
    fn runs_with(&self, other: &Job) -> bool {
        Arc::ptr_eq(&self.variant, &other.variant) && self.want == other.want
    }
}

#[cfg(test)]
mod tests;
