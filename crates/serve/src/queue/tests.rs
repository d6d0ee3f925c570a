//! The queue against what it promises: order, limits, no wasted work.

use super::*;
use crate::models::Choice;
use sparing_engine::{Engine, Options};
use sparing_model::{LoadOptions, Precision};
use std::sync::LazyLock;

fn variant() -> Arc<Variant> {
    static ENGINE: LazyLock<Arc<Engine>> = LazyLock::new(|| {
        let model = sparing_builtin::model(&LoadOptions::default()).unwrap();
        Arc::new(Engine::compile(&model, &Options { threads: 1, ..Options::default() }).unwrap())
    });
    let choice = Choice { precision: Precision::F32, attention: Default::default() };
    Arc::new(Variant::new(choice, ENGINE.clone()))
}

type Receiver = oneshot::Receiver<Result<Done, Refusal>>;

fn job(variant: &Arc<Variant>, length: usize, first: u32) -> (Job, Receiver) {
    let (answer, receiver) = oneshot::channel();
    let ids = (0..length as u32).map(|i| first + i).collect();
    let sequence = Sequence { ids, types: vec![] };
    (Job { variant: variant.clone(), want: Want::Head, sequence, since: Instant::now(), answer }, receiver)
}

fn firsts(batch: &[Job]) -> Vec<u32> {
    batch.iter().map(|job| job.sequence.ids[0]).collect()
}

#[test]
fn batches_are_filled_in_order_and_plans_do_not_mix() {
    let (queue, a, b) = (Queue::new(1000, Some(Duration::MAX / 4)), variant(), variant());
    let mut receivers = Vec::new();
    for (variant, length, first) in [(&a, 10, 1), (&b, 10, 2), (&a, 10, 3), (&a, 15, 4), (&a, 1, 5), (&b, 50, 6)] {
        let (job, receiver) = job(variant, length, first);
        receivers.push(receiver);
        queue.push(vec![job]).unwrap();
    }
    assert_eq!(queue.size(), (6, 96));
    // 4 does not fit behind 1 and 3, and 5 does not overtake it.
    assert_eq!(firsts(&queue.take(30).unwrap()), [1, 3]);
    assert_eq!(firsts(&queue.take(30).unwrap()), [2]);
    assert_eq!(firsts(&queue.take(30).unwrap()), [4, 5]);
    // Longer than a batch: alone.
    assert_eq!(firsts(&queue.take(30).unwrap()), [6]);
    assert_eq!(queue.size(), (0, 0));
    queue.close();
    assert!(queue.take(30).is_none());
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let (queue, variant) = (Queue::new(20, Some(Duration::MAX / 4)), variant());
    let (first, _kept) = job(&variant, 15, 1);
    queue.push(vec![first]).unwrap();
    let ((second, _a), (third, _b)) = (job(&variant, 3, 2), job(&variant, 3, 3));
    assert_eq!(queue.push(vec![second, third]).unwrap_err().kind, crate::error::Kind::Overloaded);
    assert_eq!(queue.size(), (1, 15));
    assert_eq!(queue.take(100).unwrap().len(), 1);
    // Alone even a giant is taken.
    let (giant, _c) = job(&variant, 50, 4);
    queue.push(vec![giant]).unwrap();
}

#[test]
fn what_would_wait_for_too_long_is_refused_at_once() {
    let (queue, variant) = (Queue::new(100_000, Some(Duration::from_secs(50))), variant());
    // A second per token: whatever passes while the test runs is nothing.
    variant.note(1, Duration::from_secs(1));
    let mut receivers = Vec::new();
    let mut push = |length: usize| {
        let (job, receiver) = job(&variant, length, 1);
        receivers.push(receiver);
        queue.push(vec![job]).map_err(|refusal| refusal.kind)
    };
    assert_eq!(push(60), Ok(()));
    assert_eq!(push(1), Err(crate::error::Kind::Overloaded));
    assert!(queue.check_room().is_err());
    assert_eq!(queue.take(1000).unwrap().len(), 1);
    // The batch that runs counts as well, but an empty queue takes any request.
    assert!(queue.wait() > Duration::from_secs(55));
    assert_eq!(push(1), Ok(()));
    assert_eq!(push(1), Err(crate::error::Kind::Overloaded));
    assert_eq!(queue.take(1000).unwrap().len(), 1);
    // How long a request is itself does not count against it.
    for length in [20, 25, 40] {
        assert_eq!(push(length), Ok(()));
    }
    assert_eq!(push(1), Err(crate::error::Kind::Overloaded));
    assert_eq!(queue.size(), (3, 85));
}

#[test]
fn nobody_computes_for_a_client_who_left() {
    let (queue, variant) = (Queue::new(100, Some(Duration::MAX / 4)), variant());
    let ((gone, receiver), (here, _kept)) = (job(&variant, 5, 1), job(&variant, 5, 2));
    queue.push(vec![gone, here]).unwrap();
    drop(receiver);
    assert_eq!(firsts(&queue.take(100).unwrap()), [2]);
    assert_eq!(queue.size(), (0, 0));
}

#[test]
fn the_dispatcher_answers_every_job_with_its_own_numbers() {
    let (queue, variant) = (Arc::new(Queue::new(10_000, Some(Duration::MAX / 4))), variant());
    let (jobs, receivers): (Vec<_>, Vec<_>) = (0..20).map(|i| job(&variant, 3 + i % 5, 2000 + i as u32)).unzip();
    let sequences: Vec<Sequence> = jobs.iter().map(|job| job.sequence.clone()).collect();
    queue.push(jobs).unwrap();
    let thread = start(queue.clone(), 32, Arc::default()).unwrap();
    for (receiver, sequence) in receivers.into_iter().zip(sequences) {
        let done = receiver.blocking_recv().unwrap().unwrap();
        let alone = sparing_model::Batch { sequences: vec![sequence], ..Default::default() };
        let alone = variant.run(&alone).unwrap();
        assert!(done.values.iter().zip(&alone.sequences[0]).all(|(a, b)| (a - b).abs() < 1e-4));
    }
    queue.close();
    thread.join().unwrap();
}

#[test]
fn a_batch_that_cannot_run_is_a_backend_error_and_the_next_one_runs() {
    let (queue, variant) = (Arc::new(Queue::new(100_000, Some(Duration::MAX / 4))), variant());
    let thread = start(queue.clone(), 32, Arc::default()).unwrap();
    let ((bad, failed), (good, fine)) = (job(&variant, 3, 4_000_000), job(&variant, 3, 7));
    queue.push(vec![bad]).unwrap();
    assert_eq!(failed.blocking_recv().unwrap().unwrap_err().kind, crate::error::Kind::Backend);
    queue.push(vec![good]).unwrap();
    assert!(fine.blocking_recv().unwrap().is_ok());
    queue.close();
    thread.join().unwrap();
}
