//! A team of threads that start together, share tasks and stop together.
//!
//! A forward pass forks and joins a few dozen times, each for tens to thousands of microseconds. Workers
//! therefore spin briefly for the next job and then park: an idle engine costs nothing, and a busy one
//! pays about a microsecond per fork.

use std::sync::atomic::{AtomicUsize, Ordering};
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

struct Shared {
    /// Odd part of the protocol: workers run job number `epoch` once.
    epoch: AtomicUsize,
    /// The job; written by the leader before `epoch` grows, read by workers after.
    job: std::cell::UnsafeCell<Option<Job>>,
    tasks: AtomicUsize,
    next: AtomicUsize,
    running: AtomicUsize,
    panicked: AtomicUsize,
    parked: Mutex<Vec<Option<Thread>>>,
    parked_count: AtomicUsize,
    stop: AtomicUsize,
}

// SAFETY: `job` is written only while no worker runs (`running == 0`), before `epoch` is released,
// and read only by workers that acquired that `epoch`.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
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

    fn wait_for(&self, worker: usize, seen: usize) {
        let mut spins = 0;
        while self.epoch.load(Ordering::Acquire) == seen {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
                continue;
            }
            self.parked.lock().unwrap_or_else(|e| e.into_inner())[worker] = Some(std::thread::current());
            self.parked_count.fetch_add(1, Ordering::SeqCst);
            while self.epoch.load(Ordering::SeqCst) == seen {
                std::thread::park();
            }
            self.parked.lock().unwrap_or_else(|e| e.into_inner())[worker] = None;
            self.parked_count.fetch_sub(1, Ordering::SeqCst);
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
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            job: std::cell::UnsafeCell::new(None),
            tasks: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            panicked: AtomicUsize::new(0),
            parked: Mutex::new(vec![None; threads]),
            parked_count: AtomicUsize::new(0),
            stop: AtomicUsize::new(0),
        });
        let workers = (1..threads)
            .map(|worker| {
                let shared = shared.clone();
                std::thread::Builder::new()
                    .name(format!("sparing-{worker}"))
                    .spawn(move || {
                        let mut seen = 0;
                        loop {
                            shared.wait_for(worker, seen);
                            seen += 1;
                            if shared.stop.load(Ordering::Acquire) == 1 {
                                return;
                            }
                            // SAFETY: the leader stored the job before it released this epoch and does not
                            // return (so the closure lives) until `running` is back to zero.
                            let job = unsafe { &*(*shared.job.get()).expect("a job comes with every epoch") };
                            let outcome =
                                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared.work(worker, job)));
                            if outcome.is_err() {
                                shared.panicked.store(1, Ordering::Relaxed);
                            }
                            shared.running.fetch_sub(1, Ordering::Release);
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
        // SAFETY: extends the closure's lifetime for the workers; this function waits for all of them below,
        // also when the caller's own share panics.
        let job: Job = unsafe { std::mem::transmute::<*const (dyn Fn(usize, usize) + Sync + '_), Job>(f) };
        // SAFETY: no worker is running (`turn` is held and the last run waited), so nobody reads `job` now.
        unsafe { *shared.job.get() = Some(job) };
        shared.tasks.store(tasks, Ordering::Relaxed);
        shared.next.store(0, Ordering::Relaxed);
        shared.panicked.store(0, Ordering::Relaxed);
        shared.running.store(self.workers.len(), Ordering::Relaxed);
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        shared.wake();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared.work(0, f)));
        let mut spins = 0u32;
        while shared.running.load(Ordering::Acquire) != 0 {
            spins += 1;
            // On a busy machine the worker may not be scheduled at all: let it have this core.
            if spins.is_multiple_of(SPINS) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
        assert!(shared.panicked.load(Ordering::Relaxed) == 0, "a worker thread panicked");
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(1, Ordering::Release);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        self.shared.wake();
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
