//! Buffers of a run, kept for the next one: after the first requests nothing is allocated but the outputs.

use crate::batch::Once;
use crate::layout::Layout;
use crate::program::Full;
use crate::run::{Choice, Wave};
use sparing_kernels::{Buffer, Element, PerWorker, Scratch};
use std::sync::Mutex;

/// Everything a run writes to.
pub(crate) struct Arena {
    /// The full buffers, in the order of [`Full::EVERY`].
    pub(crate) full: Vec<Buffer>,
    pub(crate) locals: PerWorker<Locals>,
    pub(crate) scratch: PerWorker<Scratch>,
    pub(crate) layout: Layout,
    pub(crate) wave: Wave,
    pub(crate) values: crate::values::Space,
    pub(crate) choice: Choice,
    pub(crate) once: Once,
}

/// A worker's own buffers.
pub(crate) struct Locals {
    pub(crate) buffers: Vec<Buffer>,
    /// One row of a table.
    pub(crate) row: Vec<f32>,
    /// Seconds per step, when they are counted.
    pub(crate) seconds: Vec<f64>,
}

/// A set of arenas; each run takes one and puts it back.
pub(crate) struct Arenas {
    free: Mutex<Vec<Arena>>,
    threads: usize,
    element: Element,
    locals: Vec<Element>,
}

impl Arenas {
    /// `element`: of activations that follow the precision; `locals`: of the local buffers.
    pub(crate) fn new(threads: usize, element: Element, locals: Vec<Element>) -> Self {
        Arenas { free: Mutex::new(Vec::new()), threads, element, locals }
    }

    /// Calls `f` with an arena of its own.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Arena) -> R) -> R {
        let free = self.free.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let mut arena = free.unwrap_or_else(|| self.make());
        let result = f(&mut arena);
        // Not reached after a panic: an arena that was interrupted is not used again.
        self.free.lock().unwrap_or_else(|e| e.into_inner()).push(arena);
        result
    }

    fn make(&self) -> Arena {
        let element = |full: &Full| if full.follows_precision() { self.element } else { Element::F32 };
        Arena {
            full: Full::EVERY.iter().map(|full| Buffer::new(element(full))).collect(),
            locals: PerWorker::new(self.threads, || Locals {
                buffers: self.locals.iter().map(|element| Buffer::new(*element)).collect(),
                row: Vec::new(),
                seconds: Vec::new(),
            }),
            scratch: PerWorker::new(self.threads, Scratch::default),
            layout: Layout::default(),
            wave: Wave::default(),
            values: crate::values::Space::default(),
            choice: Choice::default(),
            once: Once::default(),
        }
    }
}
