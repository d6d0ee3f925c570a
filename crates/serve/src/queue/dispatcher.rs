//! The thread that feeds the engine: the moment one batch is done, it takes what has come meanwhile. Nothing is padded,
//! so there is no reason to wait for company.

use super::{Done, Job, Queue, Want};
use crate::error::Refusal;
use crate::metrics::Metrics;
use sparing_model::{Batch, Outputs, Wanted};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// Starts the thread; it ends when the queue is closed and empty.
pub(crate) fn start(queue: Arc<Queue>, batch_tokens: usize, metrics: Arc<Metrics>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("dispatcher".to_string()).spawn(move || {
        while let Some(jobs) = queue.take(batch_tokens) {
            run(jobs, &metrics);
        }
    })
}

/// Runs one batch and answers its jobs.
fn run(mut jobs: Vec<Job>, metrics: &Metrics) {
    let Some(first) = jobs.first() else { return };
    let (variant, want) = (first.variant.clone(), first.want);
    let sequences: Vec<_> = jobs.iter_mut().map(|job| std::mem::take(&mut job.sequence)).collect();
    let wanted = match want {
        Want::Head => Wanted::Head,
        Want::Hidden => Wanted::Hidden,
    };
    let batch = Batch { sequences, wanted };
    let tokens: usize = batch.sequences.iter().map(|s| s.ids.len()).sum();
    metrics.batch(batch.sequences.len(), tokens);
    let began = Instant::now();
    // A defect in one batch must not end the server.
    let outcome = catch_unwind(AssertUnwindSafe(|| variant.run(&batch)));
    let computed = began.elapsed();
    match outcome.unwrap_or_else(|_| Err(sparing_model::Error::new("the engine failed; see the server's log"))) {
        Ok(Outputs { width, sequences }) => {
            variant.note(tokens, computed);
            for (job, values) in jobs.into_iter().zip(sequences) {
                let waited = began.saturating_duration_since(job.since);
                // Nobody is left to answer if the client is gone.
                let _ = job.answer.send(Ok(Done { values, width, waited, computed }));
            }
        }
        Err(error) => {
            let refusal = Refusal::backend(error.to_string());
            jobs.into_iter().for_each(|job| drop(job.answer.send(Err(refusal.clone()))));
        }
    }
}
