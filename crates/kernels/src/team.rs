//! A team of threads that start together, share tasks and stop together.
//!
//! A forward pass forks and joins a few dozen times, each for tens to thousands of microseconds. Workers
//! therefore spin briefly for the next job and then park: an idle engine costs nothing, and a busy one
//! pays about a microsecond per fork.
//!
//! Nobody waits for a worker that has not begun: whoever calls takes tasks too, and closes the job when none are left. So a
//! machine that is at something else, or a worker that is slow to wake, makes a job take at most as long as the caller alone
//! would, and not a turn of the system's scheduler at every fork.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{JoinHandle, Thread};

/// How often a worker looks for the next job before it parks (tens of microseconds).
const SPINS: u32 = 4_000;

/// A fixed number of threads, the caller's included.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One job at a time; callers on other threads wait.
    turn: Mutex<()>,
}

type Job = *const (dyn Fn(usize, usize) + Sync);

/// In the gate: a worker that is inside.
const INSIDE: u64 = 1;
/// In the gate: nobody may enter any more.
const CLOSED: u64 = 1 << 31;
/// In the gate: where the job's number begins.
const NUMBER: u32 = 32;

struct Shared {
    /// The job's number, whether it is closed, and how many workers are inside. In one word, so that a worker enters the job
    /// that it has seen, while it is open, or none.
    gate: AtomicU64,
    /// The job; written by the leader before the gate opens, read by workers inside.
    job: std::cell::UnsafeCell<Option<Job>>,
    tasks: AtomicUsize,
    next: AtomicUsize,
    panicked: AtomicUsize,
    parked: Mutex<Vec<Option<Thread>>>,
    parked_count: AtomicUsize,
    stop: AtomicUsize,
}

// SAFETY: `job` is written only while the gate is closed and nobody is inside, before the gate opens (released),
// and read only by workers that have entered (acquired).
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(threads: usize) -> Arc<Shared> {
        Arc::new(Shared {
            gate: AtomicU64::new(CLOSED),
            job: std::cell::UnsafeCell::new(None),
            tasks: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            panicked: AtomicUsize::new(0),
            parked: Mutex::new(vec![None; threads]),
            parked_count: AtomicUsize::new(0),
            stop: AtomicUsize::new(0),
        })
    }

    fn work(&self, worker: usize, job: &(dyn Fn(usize, usize) + Sync)) {
        let tasks = self.tasks.load(Ordering::Relaxed);
        loop {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            job(task, worker);
        }
    }

    /// Waits for a job other than number `seen`: its number.
    fn wait_for(&self, worker: usize, seen: u64) -> u64 {
        let number = |order| self.gate.load(order) >> NUMBER;
        let mut spins = 0;
        while number(Ordering::Acquire) == seen {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
                continue;
            }
            self.parked.lock().unwrap_or_else(|e| e.into_inner())[worker] = Some(std::thread::current());
            self.parked_count.fetch_add(1, Ordering::SeqCst);
            while number(Ordering::SeqCst) == seen {
                std::thread::park();
            }
            self.parked.lock().unwrap_or_else(|e| e.into_inner())[worker] = None;
            self.parked_count.fetch_sub(1, Ordering::SeqCst);
        }
        number(Ordering::Acquire)
    }

    /// Opens the next job to workers.
    fn open(&self) {
        let number = (self.gate.load(Ordering::Relaxed) >> NUMBER).wrapping_add(1);
        self.gate.store(number << NUMBER, Ordering::SeqCst);
        self.wake();
    }

    /// Whether a worker may take tasks of this job: not if it is over.
    fn enter(&self, number: u64) -> bool {
        let may = |gate: u64| (gate >> NUMBER == number && gate & CLOSED == 0).then_some(gate + INSIDE);
        self.gate.fetch_update(Ordering::Acquire, Ordering::Relaxed, may).is_ok()
    }

    /// The end of what a worker does inside.
    fn leave(&self) {
        self.gate.fetch_sub(INSIDE, Ordering::Release);
    }

    /// Lets nobody in any more and waits for those who are inside.
    fn close(&self) {
        self.gate.fetch_or(CLOSED, Ordering::Relaxed);
        let mut spins = 0u32;
        while self.gate.load(Ordering::Acquire) & (CLOSED - 1) != 0 {
            spins += 1;
            // On a busy machine the worker may have lost its core in the middle: let it have this one.
            if spins.is_multiple_of(SPINS) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    fn wake(&self) {
        if self.parked_count.load(Ordering::SeqCst) > 0 {
            for thread in self.parked.lock().unwrap_or_else(|e| e.into_inner()).iter().flatten() {
                thread.unpark();
            }
        }
    }
}

impl Team {
    /// A team of `threads` (at least one: the caller).
    pub fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        let shared = Shared::new(threads);
        let workers = (1..threads)
            .map(|worker| {
                let shared = shared.clone();
                std::thread::Builder::new()
                    .name(format!("sparing-{worker}"))
                    .spawn(move || {
                        let mut seen = 0;
                        loop {
                            seen = shared.wait_for(worker, seen);
                            if shared.stop.load(Ordering::Acquire) == 1 {
                                return;
                            }
                            if !shared.enter(seen) {
                                continue;
                            }
                            // SAFETY: the leader stored the job before it opened the gate and does not return (so the
                            // closure lives) until everybody who entered has left.
                            let job = unsafe { &*(*shared.job.get()).expect("a job comes with every opening") };
                            let outcome =
                                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared.work(worker, job)));
                            if outcome.is_err() {
                                shared.panicked.store(1, Ordering::Relaxed);
                            }
                            shared.leave();
                        }
                    })
                    .expect("the system can start a thread")
            })
            .collect();
        Team { shared, workers, turn: Mutex::new(()) }
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(task, worker)` once for every task in `0..tasks`, on all threads, in any order, and returns when
    /// all are done. `worker` is below [`Team::threads`] and no two calls with the same worker overlap.
    ///
    /// # Panics
    /// If a task does. Must not be called from within a task of the same team.
    pub fn run(&self, tasks: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        let _turn = self.turn.lock().unwrap_or_else(|e| e.into_inner());
        if tasks <= 1 || self.workers.is_empty() {
            for task in 0..tasks {
                f(task, 0);
            }
            return;
        }
        let shared = &*self.shared;
        // SAFETY: extends the closure's lifetime for the workers; this function waits for those inside below,
        // also when the caller's own share panics.
        let job: Job = unsafe { std::mem::transmute::<*const (dyn Fn(usize, usize) + Sync + '_), Job>(f) };
        // SAFETY: the gate is closed and nobody inside (`turn` is held, the last run closed it and waited), so nobody reads `job` now.
        unsafe { *shared.job.get() = Some(job) };
        shared.tasks.store(tasks, Ordering::Relaxed);
        shared.next.store(0, Ordering::Relaxed);
        shared.panicked.store(0, Ordering::Relaxed);
        shared.open();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared.work(0, f)));
        shared.close();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
        assert!(shared.panicked.load(Ordering::Relaxed) == 0, "a worker thread panicked");
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(1, Ordering::Release);
        self.shared.open();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

/// One value per worker of a [`Team`], such as scratch memory.
pub struct PerWorker<T>(Vec<Mutex<T>>);

impl<T> PerWorker<T> {
    /// One value for each of `threads` workers.
    pub fn new(threads: usize, mut make: impl FnMut() -> T) -> Self {
        PerWorker((0..threads).map(|_| Mutex::new(make())).collect())
    }

    /// The worker's own value. Never contended when each worker asks for its own.
    pub fn get(&self, worker: usize) -> MutexGuard<'_, T> {
        self.0[worker].lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_over_many_rounds() {
        let team = Team::new(3);
        let rounds = if cfg!(miri) { 3 } else { 300 };
        for round in 0..rounds {
            let tasks = round % 17;
            let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            team.run(tasks, &|task, worker| {
                assert!(worker < 3);
                counts[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            if round % 50 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(2)); // let workers park
            }
        }
    }

    #[test]
    fn nobody_waits_for_a_worker_that_does_not_come() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let absent = std::thread::spawn(move || wait.recv().unwrap_or_default());
        let team = Team { shared: Shared::new(2), workers: vec![absent], turn: Mutex::new(()) };
        for _ in 0..3 {
            let ran = AtomicUsize::new(0);
            team.run(5, &|_, worker| {
                assert_eq!(worker, 0);
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.load(Ordering::Relaxed), 5);
        }
        drop(go);
    }

    #[test]
    fn who_comes_late_finds_the_job_closed() {
        let shared = Shared::new(2);
        assert!(!shared.enter(0), "nothing was ever opened");
        shared.open();
        assert!(!shared.enter(0) && !shared.enter(2), "another job");
        assert!(shared.enter(1));
        shared.leave();
        shared.close();
        assert!(!shared.enter(1));
        shared.open();
        assert!(!shared.enter(1) && shared.enter(2));
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_team_survives() {
        let team = Team::new(2);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            team.run(8, &|task, _| assert!(task != 5));
        }));
        assert!(result.is_err());
        let ran = AtomicUsize::new(0);
        team.run(4, &|_, _| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let team = Team::new(2);
        let ran = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..20 {
                        team.run(3, &|_, _| {
                            ran.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(ran.load(Ordering::Relaxed), 4 * 20 * 3);
    }
}
